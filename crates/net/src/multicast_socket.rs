//! Opens UDP sockets for multicast groups: interface, time to live, loopback, large buffers.
//!
//! All socket options of a cast are set here. It must never let a datagram pass the first router (TTL 1).

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::Path;

use crate::options::DISCOVERY;
use platter_image::{Error, IoContext, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// The requested receive buffer: 16 MB hold 100 ms at 1 Gbit/s, including the kernel's overhead.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The requested send buffer: large enough to keep a link busy, small enough to leave pacing to the pacer.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Numbers of ports that senders of a machine use before any others, so that a firewall can let them pass.
const SENDER_PORTS: u16 = 100;
/// How often any free TCP port is taken until the UDP port of its number is free as well.
const ANY_PORT_TRIES: usize = 8;

/// The IPv4 address for sending and for joining groups: that of the named interface (name or address), or of
/// the interface to which the route for the group points.
///
/// # Errors
/// `Refused` when there is no such interface or route.
pub(crate) fn interface_address(interface: Option<&str>, group: SocketAddrV4) -> Result<Ipv4Addr> {
    if let Some(address) = interface.and_then(|text| text.parse::<Ipv4Addr>().ok()) {
        return Ok(address);
    }
    // A probe over the loopback device would get the address of another interface, and send there.
    if interface.is_some_and(is_loopback) {
        return Ok(Ipv4Addr::LOCALHOST);
    }
    let probe = udp_socket()?;
    if let Some(name) = interface {
        probe.bind_device(Some(name.as_bytes())).map_err(|error| {
            Error::refused(format!("interface {name} does not exist or cannot be used")).with_source(error)
        })?;
    }
    probe.connect(&SocketAddr::V4(group).into()).map_err(|error| {
        let name = interface.unwrap_or("any interface");
        Error::refused(format!("no route to {group} over {name}: choose an interface with an IPv4 address"))
            .with_source(error)
    })?;
    let address =
        probe.local_addr().context(|| "reading the address of a probe socket".into())?.as_socket_ipv4();
    match address {
        Some(address) if !address.ip().is_unspecified() => Ok(*address.ip()),
        _ => Err(Error::refused(format!(
            "interface {} has no IPv4 address",
            interface.unwrap_or("of the default route")
        ))),
    }
}

/// Checks that groups can be reached over an interface.
///
/// # Errors
/// `Refused` when it does not exist or has no IPv4 address.
pub fn check_interface(interface: &str) -> Result<()> {
    interface_address(Some(interface), DISCOVERY).map(drop)
}

/// Whether an interface exists, but has no IPv4 address.
pub fn lacks_ipv4(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).exists() && check_interface(interface).is_err()
}

/// The address of this machine from which it reaches another one; `None` if that is not IPv4 or not reachable.
pub fn address_towards(other: SocketAddr) -> Option<Ipv4Addr> {
    let probe = udp_socket().ok()?;
    probe.connect(&other.into()).ok()?;
    probe.local_addr().ok()?.as_socket_ipv4().map(|address| *address.ip())
}

/// Whether a group is reachable without naming an interface.
pub fn has_route(group: SocketAddrV4) -> bool {
    interface_address(None, group).is_ok()
}

/// Whether the interface of that name is a loopback device.
fn is_loopback(name: &str) -> bool {
    const IFF_LOOPBACK: u32 = 8;
    let flags = std::fs::read_to_string(format!("/sys/class/net/{name}/flags")).unwrap_or_default();
    let flags = flags.trim().strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    flags.is_some_and(|flags| flags & IFF_LOOPBACK != 0)
}

/// The ports of a sender on the interface with that address: a TCP listener for joins, and [`sender_socket`] at the UDP port of the same
/// number: the first of [`SENDER_PORTS`] numbers from `port` up that no other cast of this machine uses, else any. 0: any.
///
/// # Errors
/// `Io`.
pub(crate) fn sender_ports(interface: Ipv4Addr, port: u16) -> Result<(TcpListener, UdpSocket)> {
    let numbers = (0..SENDER_PORTS).filter_map(|more| port.checked_add(more)).filter(|_| port > 0);
    let mut numbers = numbers.chain(std::iter::repeat_n(0, ANY_PORT_TRIES));
    loop {
        let number = numbers.next();
        let opened = TcpListener::bind((interface, number.unwrap_or(0))).and_then(|listener| {
            let feedback = bound_socket(interface, listener.local_addr()?.port())?;
            Ok((listener, feedback))
        });
        match opened {
            Err(error) if error.kind() == ErrorKind::AddrInUse && number.is_some() => {}
            opened => {
                let (listener, socket) = opened.context(|| {
                    format!("opening a TCP port and the UDP port of its number on {interface}")
                })?;
                return Ok((listener, set_up_sender(socket, interface)?));
            }
        }
    }
}

fn bound_socket(interface: Ipv4Addr, port: u16) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((interface, port)).into())?;
    Ok(socket)
}

/// A socket that sends to groups over the interface with that address, at any port.
///
/// # Errors
/// `Io`.
pub(crate) fn sender_socket(interface: Ipv4Addr) -> Result<UdpSocket> {
    let socket = bound_socket(interface, 0).context(|| format!("binding a UDP socket to {interface}"))?;
    set_up_sender(socket, interface)
}

fn set_up_sender(socket: Socket, interface: Ipv4Addr) -> Result<UdpSocket> {
    socket
        .set_multicast_if_v4(&interface)
        .context(|| format!("setting the multicast interface to {interface}"))?;
    socket.set_multicast_ttl_v4(1).context(|| "setting the multicast TTL to 1".into())?;
    socket.set_multicast_loop_v4(true).context(|| "enabling multicast loopback".into())?;
    enlarge_buffers(&socket);
    Ok(socket.into())
}

/// A socket that receives datagrams for a group and port on the interface with that address.
///
/// # Errors
/// `Io`; `Refused` when the address is not a group.
pub(crate) fn group_socket(interface: Ipv4Addr, group: SocketAddrV4) -> Result<UdpSocket> {
    if !group.ip().is_multicast() {
        return Err(Error::refused(format!(
            "{group} is not a multicast group (224.0.0.0 to 239.255.255.255)"
        )));
    }
    let socket = udp_socket()?;
    socket.set_reuse_address(true).context(|| "sharing a UDP port".into())?;
    socket.bind(&SocketAddr::V4(group).into()).context(|| format!("binding a UDP socket to {group}"))?;
    socket
        .join_multicast_v4(group.ip(), &interface)
        .context(|| format!("joining group {} on {interface}", group.ip()))?;
    enlarge_buffers(&socket);
    Ok(socket.into())
}

/// A receiver's socket for feedback.
///
/// # Errors
/// `Io`.
pub(crate) fn feedback_socket(interface: Ipv4Addr) -> Result<UdpSocket> {
    let socket = udp_socket()?;
    socket
        .bind(&SocketAddr::from((interface, 0)).into())
        .context(|| format!("binding a UDP socket to {interface}"))?;
    socket.set_nonblocking(true).context(|| "setting a socket to non-blocking".into())?;
    Ok(socket.into())
}

fn udp_socket() -> Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).context(|| "opening a UDP socket".into())
}

/// Enlarges the buffers as far as allowed: beyond the system's limits with the privilege for it, else up to
/// them. Never fails, because small buffers only cost repairs.
fn enlarge_buffers(socket: &Socket) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_its_own_address() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 1, 1), 7580);
        assert_eq!(interface_address(Some("lo"), group).unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(interface_address(Some("10.1.2.3"), group).unwrap(), Ipv4Addr::new(10, 1, 2, 3));
        assert!(interface_address(Some("none-such"), group).is_err());
    }
}
