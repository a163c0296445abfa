//! Probes of a network over real sockets: the loops of `platter cast --probe` and `platter receive --probe`.
//!
//! They use the options of a cast, as far as those are about the network. No thread but the caller's is used.

mod querier;
mod receive;
mod send;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use platter_cast::{Family, ProbeCounts, ProbeSent};

use crate::devices::{CastPlace, discovery};

pub use receive::probe_receiver;
pub use send::probe_sender;

/// The group to which link-local multicast is sent, which every switch passes to all ports: over IPv4 one for experiments (RFC 4727), over
/// IPv6 all nodes, the only one that MLD snooping does not filter (RFC 4541).
fn link_local(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::Ipv4 => (Ipv4Addr::new(224, 0, 0, 254), port).into(),
        Family::Ipv6 => (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), port).into(),
    }
}

/// What a probe uses on this machine.
#[derive(Clone, Debug)]
pub struct ProbePlace {
    /// The name of the interface, if the kernel tells.
    pub interface: Option<String>,
    /// The address from which this machine sends.
    pub address: IpAddr,
    /// The group for announcements.
    pub discovery: SocketAddr,
}

impl ProbePlace {
    fn new(place: &CastPlace, port: u16) -> Self {
        let (interface, address) = (place.name().map(str::to_owned), place.address);
        Self { interface, address, discovery: discovery(place.family(), port) }
    }
}

/// Reports of a probe.
#[derive(Clone, Debug)]
pub enum ProbeEvent {
    /// The sockets of a family are open. A receiver waits in both, and then uses that of the sender.
    Ready(ProbePlace),
    /// This machine has no address to listen at, for this reason; it is looked for again.
    NoAddress(String),
    /// The sender listens for joins, and will send to this group.
    Listening {
        /// TCP address for joins.
        join: SocketAddr,
        /// The group.
        group: SocketAddr,
    },
    /// The receiver has joined this sender, from this address.
    Joined(SocketAddr, IpAddr),
    /// So many receivers have joined the sender.
    Receivers(usize),
    /// The sender sends.
    Begun,
    /// Datagrams could not be sent, for this reason.
    NotSent(String),
}

/// What a receiver knows at the end.
#[derive(Clone, Copy, Debug)]
pub struct ProbeReceived {
    /// What the sender did.
    pub sent: ProbeSent,
    /// What arrived.
    pub counts: ProbeCounts,
}
