//! Reports the state of a service to systemd (sd_notify(3)): one datagram to the socket in the environment.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use rustix::net::sockopt::socket_peercred;

/// Sends an assignment such as `READY=1`, if systemd started this process. Failures are ignored: the service works without.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
}

/// Tells systemd that the process on the other side of `successor` is the main process of this service from now on. Only the
/// main process may say so (`NotifyAccess=main`), so the process that is replaced does.
pub fn notify_main_process(successor: &UnixStream) {
    if let Ok(peer) = socket_peercred(successor) {
        notify(&format!("MAINPID={}", peer.pid.as_raw_nonzero()));
    }
}
