//! Opens UDP sockets for multicast groups of both families: interface, hop limit, loopback, large buffers.
//!
//! All socket options of a cast are set here. It must never let a datagram pass the first router (TTL or hop limit 1).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use platter_cast::Family;
use platter_image::{Error, IoContext, Result};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use crate::devices::CastPlace;

/// The routers that a datagram may pass, and one: IPv4 calls it the time to live.
const HOPS: u32 = 1;
/// The requested receive buffer: 16 MB hold 100 ms at 1 Gbit/s, including the kernel's overhead.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The requested send buffer: large enough to keep a link busy, small enough to leave pacing to the pacer.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Numbers of ports that senders of a machine use before any others, so that a firewall can let them pass.
const SENDER_PORTS: u16 = 100;
/// How often any free TCP port is taken until the UDP port of its number is free as well.
const ANY_PORT_TRIES: usize = 8;

/// The ports of a sender at its place: a TCP listener for joins, and a UDP socket for feedback at the port of the same number: the first of
/// [`SENDER_PORTS`] numbers from `port` up that no other cast of this machine uses, else any. 0: any.
///
/// # Errors
/// `Io`.
pub(crate) fn sender_ports(place: &CastPlace, port: u16) -> Result<(TcpListener, UdpSocket)> {
    let numbers = (0..SENDER_PORTS).filter_map(|more| port.checked_add(more)).filter(|_| port > 0);
    let mut numbers = numbers.chain(std::iter::repeat_n(0, ANY_PORT_TRIES));
    loop {
        let number = numbers.next();
        let opened = TcpListener::bind(place.at(number.unwrap_or(0))).and_then(|listener| {
            let feedback = bound_socket(place, listener.local_addr()?.port())?;
            Ok((listener, feedback))
        });
        match opened {
            Err(error) if error.kind() == ErrorKind::AddrInUse && number.is_some() => {}
            opened => {
                let (listener, socket) = opened.context(|| {
                    format!("opening a TCP port and the UDP port of its number on {}", place.address)
                })?;
                enlarge_receive_buffer(&socket);
                return Ok((listener, socket.into()));
            }
        }
    }
}

fn bound_socket(place: &CastPlace, port: u16) -> std::io::Result<Socket> {
    let socket = udp_socket(place.family())?;
    socket.bind(&place.at(port).into())?;
    Ok(socket)
}

/// A socket that sends to groups from this place, at any port.
///
/// # Errors
/// `Io`.
pub(crate) fn sender_socket(place: &CastPlace) -> Result<UdpSocket> {
    let socket = bound_socket(place, 0).context(|| format!("binding a UDP socket to {}", place.address))?;
    set_up_sender(socket, place)
}

fn set_up_sender(socket: Socket, place: &CastPlace) -> Result<UdpSocket> {
    match place.address {
        IpAddr::V4(address) => socket
            .set_multicast_if_v4(&address)
            .and_then(|()| socket.set_multicast_ttl_v4(HOPS))
            .and_then(|()| socket.set_multicast_loop_v4(true)),
        IpAddr::V6(_) => socket
            .set_multicast_if_v6(place.index())
            .and_then(|()| socket.set_multicast_hops_v6(HOPS))
            .and_then(|()| socket.set_multicast_loop_v6(true)),
    }
    .context(|| format!("setting interface, hop limit and loopback of multicast from {}", place.address))?;
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
    // Nobody reads what arrives here.
    let _ = socket.set_recv_buffer_size(0);
    Ok(socket.into())
}

/// Limits how far the datagrams of a socket get by unicast: to the first router.
///
/// # Errors
/// `Io`.
pub(crate) fn stay_on_link(socket: &UdpSocket, family: Family) -> Result<()> {
    let socket = SockRef::from(socket);
    match family {
        Family::Ipv4 => socket.set_ttl_v4(HOPS),
        Family::Ipv6 => socket.set_unicast_hops_v6(HOPS),
    }
    .context(|| "setting the hop limit to 1".into())
}

/// A socket that receives datagrams for a group and port at this place.
///
/// # Errors
/// `Io`; `Refused` when the address is not a group, or of another family.
pub(crate) fn group_socket(place: &CastPlace, group: SocketAddr) -> Result<UdpSocket> {
    if !group.ip().is_multicast() {
        return Err(Error::refused(format!("{group} is not a multicast group")));
    }
    let socket = udp_socket(Family::of(group.ip())).context(|| "opening a UDP socket".into())?;
    socket.set_reuse_address(true).context(|| "sharing a UDP port".into())?;
    socket.bind(&place.scoped(group).into()).context(|| format!("binding a UDP socket to {group}"))?;
    match (group.ip(), place.address) {
        // Groups that another process joined at another interface are not for this socket. Not every kernel has this option.
        (IpAddr::V4(group), IpAddr::V4(address)) => {
            let _ = socket.set_multicast_all_v4(false);
            match place.index() {
                0 => socket.join_multicast_v4(&group, &address),
                // Another interface may have the same address.
                index => socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index)),
            }
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => {
            let _ = socket.set_multicast_all_v6(false);
            socket.join_multicast_v6(&group, place.index())
        }
        _ => {
            return Err(Error::refused(format!(
                "the cast uses the group {group}, and this machine {}",
                place.address
            )));
        }
    }
    .context(|| format!("joining group {} at {}", group.ip(), place.address))?;
    enlarge_receive_buffer(&socket);
    Ok(socket.into())
}

/// A receiver's socket for feedback.
///
/// # Errors
/// `Io`.
pub(crate) fn feedback_socket(place: &CastPlace) -> Result<UdpSocket> {
    let socket = bound_socket(place, 0).context(|| format!("binding a UDP socket to {}", place.address))?;
    socket.set_nonblocking(true).context(|| "setting a socket to non-blocking".into())?;
    Ok(socket.into())
}

fn udp_socket(family: Family) -> std::io::Result<Socket> {
    let domain = match family {
        Family::Ipv4 => Domain::IPV4,
        Family::Ipv6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if family == Family::Ipv6 {
        // A socket has one family, as the cast has.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Enlarges the buffer as far as allowed: beyond the system's limits with the privilege for it, else up to
/// them. Never fails, because small buffers only cost repairs.
fn enlarge_receive_buffer(socket: &Socket) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
}
