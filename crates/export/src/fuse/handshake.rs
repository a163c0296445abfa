//! The first message of a mount, and how a later process starts without receiving one.
//!
//! The kernel sends `INIT` once, and the FUSE library requires it as its first message. So the library gets one end of
//! a socket pair instead of the device and reads the recorded message from it. Its reply is forwarded to the kernel
//! only if the kernel waits for one. Then the device replaces the socket under the same descriptor number.
//!
//! The negotiated options stay as the first process agreed on them, whatever a later version would prefer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use fuser::{Config, Session, SessionACL};
use platter_image::{Error, IoContext, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::filesystem::Requests;

/// Buffer size that the kernel requires of a reader before the negotiation.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Reads the first message of a new mount.
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
            Err(error) => return Err(Error::io("reading the first message of a mount", error.into())),
        }
    }
}

/// Starts a session that has received `init` and uses `device` from then on. With `answers`, the kernel gets the reply.
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
    let doing = || "starting a FUSE session".to_owned();
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs): (OwnedFd, OwnedFd) = pair.map_err(io::Error::from).context(doing)?;
    send(&ours, init, SendFlags::NOSIGNAL).map_err(io::Error::from).context(doing)?;
    // The kernel checks access itself, with better knowledge of the callers than the library.
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

/// Makes the descriptor number of `place` refer to `device`.
fn replace(place: BorrowedFd<'_>, device: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: both descriptors are open here. The session owns its number before and after. Until now the number was a
    // socket that only this code knows, and the session has not read from it since its handshake.
    #[expect(unsafe_code, reason = "the library cannot take over a descriptor in another way")]
    let replaced = unsafe { libc::dup3(device.as_raw_fd(), place.as_raw_fd(), libc::O_CLOEXEC) };
    if replaced < 0 {
        return Err(Error::io("starting a FUSE session", io::Error::last_os_error()));
    }
    Ok(())
}
