//! Probes of a network over real sockets: the loops of `platter cast --probe` and `platter receive --probe`.
//!
//! They use the options of a cast, as far as those are about the network. No thread but the caller's is used.

mod interface;
mod querier;
mod receive;
mod send;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use platter_cast::{ProbeCounts, ProbeSent};

pub use receive::probe_receiver;
pub use send::probe_sender;

/// The group to which link-local multicast is sent: for experiments (RFC 4727).
const LINK_LOCAL: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);

/// What a probe uses on this machine.
#[derive(Clone, Debug)]
pub struct ProbePlace {
    /// The name of the interface, if its routes tell.
    pub interface: Option<String>,
    /// The address from which this machine sends.
    pub address: Ipv4Addr,
    /// The group for announcements.
    pub discovery: SocketAddrV4,
}

/// Reports of a probe.
#[derive(Clone, Debug)]
pub enum ProbeEvent {
    /// The sockets are open.
    Ready(ProbePlace),
    /// The sender listens for joins, and will send to this group.
    Listening {
        /// TCP address for joins.
        join: SocketAddr,
        /// The group.
        group: SocketAddr,
    },
    /// The receiver has joined this sender.
    Joined(SocketAddr),
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
