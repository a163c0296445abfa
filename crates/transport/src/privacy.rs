//! Files of this process are for its owner only: they hold the contents of disks, or secrets.

use rustix::fs::Mode;

/// Sets the umask to 077: every file that this process makes is 0600 and every directory 0700 at most. Modes that are set
/// explicitly, such as a socket's, are not affected.
pub fn make_files_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}
