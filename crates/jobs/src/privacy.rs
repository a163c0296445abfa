//! Whatever this process makes is for its owner only: it holds the contents of disks, or leads to them.

use rustix::fs::Mode;

/// Has the system make every file of this process 0600 and every directory 0700 at most, whatever it was started with. Modes that
/// are set on purpose, such as a socket's, are not touched by that.
pub fn make_files_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}
