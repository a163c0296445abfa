//! Options of sharing, and fixed limits.

use std::net::SocketAddr;
use std::time::Duration;

/// Default limit of bits per second sent to peers.
const SHARE_DEFAULT: u64 = 1_000_000_000;
/// A peer that owes a reply or a greeting, and completes no message for this long, counts as gone. Longer than a
/// request may be silent ([`platter_cast::peer::Scheduler`] asks another node before).
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Options of sharing.
#[derive(Clone, Debug)]
pub(crate) struct PeerOptions {
    /// The sharing group: nodes of other groups are ignored.
    pub(crate) group: [u8; 16],
    /// The address at which other nodes reach this one; `None`: it serves nothing.
    pub(crate) listen: Option<SocketAddr>,
    /// Limit of bits per second sent to all peers together.
    pub(crate) share_bits_per_second: u64,
    pub(crate) silence_max: Duration,
}

impl PeerOptions {
    /// Options with the default limits.
    pub(crate) fn new(group: [u8; 16], listen: Option<SocketAddr>) -> Self {
        Self { group, listen, share_bits_per_second: SHARE_DEFAULT, silence_max: SILENCE_MAX }
    }
}
