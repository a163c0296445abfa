//! The first message of a mount, and how a later process goes on without one.
//!
//! The kernel says `INIT` once, and the library wants to hear it before anything else. So the library never talks to the
//! kernel for that: it is given one end of a socket pair, hears the recorded message there, and its answer goes to the
//! kernel only if the kernel waits for one. Then the device takes the place of the socket, under the same number.
//!
//! What was agreed on stays as the first process agreed on it, whatever a later version would like.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use fuser::{Config, Session, SessionACL};
use platter_image::{Error, IoContext, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::filesystem::Requests;

/// What the kernel wants a reader to have room for before anything is agreed on.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Hears the first message of a new mount.
///
/// # Errors
/// `Io`.
pub(super) fn hear_init(device: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    loop {
        match rustix::io::read(device, &mut message) {
            Ok(count) => {
                message.truncate(count);
                return Ok(message);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(Error::io("hearing from the kernel", error.into())),
        }
    }
}

/// A session that has heard `init` and talks to `device` from now on. With `answers`, the kernel gets the answer.
///
/// # Errors
/// `Io`.
pub(super) fn begin(
    requests: Requests,
    device: BorrowedFd<'_>,
    init: &[u8],
    answers: bool,
    config: Config,
) -> Result<Session<Requests>> {
    let doing = || "beginning to talk to the kernel".to_owned();
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs): (OwnedFd, OwnedFd) = pair.map_err(io::Error::from).context(doing)?;
    send(&ours, init, SendFlags::NOSIGNAL).map_err(io::Error::from).context(doing)?;
    // The kernel itself keeps others out, and knows better than the library who they are.
    let session = Session::from_fd(requests, theirs, SessionACL::All, config).context(doing)?;
    let mut answer = vec![0; MESSAGE_BYTES_MAX];
    let heard = recv(&ours, &mut answer[..], RecvFlags::DONTWAIT).map_err(io::Error::from);
    let (_, length) = heard.context(doing)?;
    if answers {
        rustix::io::write(device, &answer[..length]).map_err(io::Error::from).context(doing)?;
    }
    replace(session.as_fd(), device)?;
    Ok(session)
}

/// Makes the number of `place` one of `device`.
fn replace(place: BorrowedFd<'_>, device: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: both numbers are open here. The session owns its number before and after; it was a socket until now, of which
    // nobody knows but us, and it has not read from it since its handshake.
    #[expect(unsafe_code, reason = "the library has no other way to go on with a descriptor")]
    let replaced = unsafe { libc::dup3(device.as_raw_fd(), place.as_raw_fd(), libc::O_CLOEXEC) };
    if replaced < 0 {
        return Err(Error::io("beginning to talk to the kernel", io::Error::last_os_error()));
    }
    Ok(())
}
