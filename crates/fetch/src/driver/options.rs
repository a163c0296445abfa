//! How a node shares, and the limits that nobody says anything about.

use std::net::SocketAddr;
use std::time::Duration;

/// Bits per second that are sent to peers when nobody says another rate.
const SHARE_DEFAULT: u64 = 1_000_000_000;
/// A peer that owes an answer, or a greeting, and says nothing whole for that long is gone. Longer than a question may be silent
/// ([`platter_cast::peer::Scheduler`] asks another before).
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Bytes of verified frames in memory.
const MEMORY_BYTES_MAX: u64 = 128 << 20;

/// How a node shares.
#[derive(Clone, Debug)]
pub(crate) struct PeerOptions {
    /// The sharing group: nodes of another one are not talked to.
    pub(crate) group: [u8; 16],
    /// Where other nodes reach this one; none, and it is asked for nothing.
    pub(crate) listen: Option<SocketAddr>,
    /// Ceiling of what is sent to all peers.
    pub(crate) share_bits_per_second: u64,
    pub(crate) silence_max: Duration,
    pub(crate) memory_bytes_max: u64,
}

impl PeerOptions {
    /// With the usual limits.
    pub(crate) fn new(group: [u8; 16], listen: Option<SocketAddr>) -> Self {
        Self {
            group,
            listen,
            share_bits_per_second: SHARE_DEFAULT,
            silence_max: SILENCE_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
        }
    }
}
