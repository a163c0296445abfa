//! Whether the network has a multicast querier (RFC 2236, RFC 3376), without which switches forget memberships.
//!
//! Queries are rare, so a querier is asked: this machine joins a group of its own and says that it leaves it, which a querier
//! answers with a query. Needs a raw socket; without the privilege for it, nothing is known.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::devices::CastPlace;
use crate::multicast_socket::group_socket;

/// The protocol number of IGMP.
const IGMP: i32 = 2;
const QUERY: u8 = 0x11;
const LEAVE: u8 = 0x17;
/// Where machines say that they leave.
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Most packets that are read at once.
const PACKETS_MAX: usize = 64;

/// Listens for a querier.
pub(super) struct Querier {
    /// `None`: this process may not listen.
    socket: Option<Socket>,
    interface: Ipv4Addr,
    group: Ipv4Addr,
    /// Keeps the membership.
    _member: Option<UdpSocket>,
    is_heard: bool,
}

impl Querier {
    /// Listens, and joins the group, which must have no other use.
    /// `None` at a place of IPv6.
    pub(super) fn new(place: &CastPlace, group: SocketAddrV4) -> Option<Self> {
        let IpAddr::V4(interface) = place.address else { return None };
        let member = group_socket(place, group.into()).ok();
        let socket = raw_socket(interface, place.name()).ok().filter(|_| member.is_some());
        Some(Self { socket, interface, group: *group.ip(), _member: member, is_heard: false })
    }

    /// Says that this machine leaves the group.
    pub(super) fn ask(&self) {
        let Some(socket) = &self.socket else { return };
        let _ = socket.send_to(&leave(self.interface, self.group), &SocketAddrV4::new(ALL_ROUTERS, 0).into());
    }

    /// Reads what has arrived.
    pub(super) fn listen(&mut self) {
        let mut packet = [0; 1500];
        let Some(mut socket) = self.socket.as_ref() else { return };
        for _ in 0..PACKETS_MAX {
            let Ok(length) = socket.read(&mut packet) else { return };
            self.is_heard |= is_query(&packet[..length]);
        }
    }

    /// Whether there is one, if that can be known.
    pub(super) fn answer(&self) -> Option<bool> {
        self.socket.is_some().then_some(self.is_heard)
    }
}

fn raw_socket(interface: Ipv4Addr, name: Option<&str>) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IGMP)))?;
    socket.set_header_included_v4(true)?;
    socket.set_multicast_if_v4(&interface)?;
    socket.set_nonblocking(true)?;
    if let Some(name) = name {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    Ok(socket)
}

/// Whether an IPv4 packet of IGMP is a query.
fn is_query(packet: &[u8]) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    packet.get(header) == Some(&QUERY)
}

/// A leave message of IGMPv2 in an IPv4 packet with the router alert option. The kernel sets length and checksum of the packet.
fn leave(from: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x46, 0xc0, 0, 32, 0, 0, 0, 0, 1, IGMP as u8, 0, 0];
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&ALL_ROUTERS.octets());
    packet.extend_from_slice(&[0x94, 4, 0, 0]);
    let mut message = [0; 8];
    message[0] = LEAVE;
    message[4..].copy_from_slice(&group.octets());
    let sum: u32 = message.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    packet.extend_from_slice(&message);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leave_has_a_valid_checksum_and_is_no_query() {
        let packet = leave(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 255, 200, 201));
        assert_eq!(packet.len(), 32);
        let sum: u32 = packet[24..].chunks_exact(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert!(!is_query(&packet));
        let query = [&packet[..24], &[QUERY, 10, 0, 0, 0, 0, 0, 0]].concat();
        assert!(is_query(&query) && !is_query(&query[..24]) && !is_query(&[]));
    }
}
