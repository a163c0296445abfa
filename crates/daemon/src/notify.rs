//! Notifies systemd when the origin is ready and when it ends (sd_notify(3)): one datagram to the socket in
//! `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1`, if a notification socket is set. A failure is ignored: the origin runs without it.
pub(crate) fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
}
