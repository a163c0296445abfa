//! What the driver of a sender gives and gets: options, batches of datagrams, counters.

use std::net::SocketAddr;
use std::time::Duration;

use crate::join_key::JoinKey;
use crate::wire::data::SEALED_DATA_BYTES;

/// Maximum number of datagrams in a batch: 44 × 1,448 bytes are less than the 65,507 bytes of one UDP send.
pub const BATCH_DATAGRAMS_MAX: usize = 44;

/// Options of a sender.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Secret random bytes from which the session id and all keys of the session are derived. Never reuse them.
    pub seed: [u8; 32],
    /// With a join key, only receivers that know it can join, and everything except announcements is encrypted.
    pub join_key: Option<JoinKey>,
    /// Maximum rate on the wire, in bits per second.
    pub rate_bits_per_second: u64,
    /// The multicast group of the data.
    pub group: SocketAddr,
    /// The address for joins (TCP).
    pub join: SocketAddr,
    /// The address for requests and reports (UDP).
    pub feedback: SocketAddr,
    /// Start as soon as this many receivers have joined, at least 1.
    pub wait_receivers: u32,
    /// Start after this time even with fewer receivers.
    pub wait: Duration,
    /// Time to wait for late receivers after the last one has finished.
    pub linger: Duration,
    /// End if nobody joins within this time.
    pub give_up: Option<Duration>,
    /// Announce the session in its own group only, and admit only receivers that name the score: those that were told of it.
    pub is_unlisted: bool,
}

/// The destination of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The multicast group of the data.
    Group,
    /// The data group and the discovery group, where sessions are announced.
    GroupAndDiscovery,
}

/// A batch of datagrams of equal length (the last may be shorter), to be sent in one call. Its owner reuses it.
#[derive(Debug)]
pub struct Transmit {
    /// The destination.
    pub to: Destination,
    /// Length of each datagram in bytes.
    pub segment_bytes: usize,
    /// All datagrams, one after another.
    pub bytes: Vec<u8>,
}

impl Transmit {
    /// Makes an empty batch with capacity for the largest one.
    pub fn new() -> Self {
        let bytes = Vec::with_capacity(BATCH_DATAGRAMS_MAX * SEALED_DATA_BYTES);
        Self { to: Destination::Group, segment_bytes: 0, bytes }
    }

    /// Returns the datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment_bytes.max(1))
    }
}

impl Default for Transmit {
    fn default() -> Self {
        Self::new()
    }
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderProgress {
    /// Whether data is being sent.
    pub started: bool,
    /// Source symbols sent, including repetitions of whole chunks.
    pub source_symbols: u64,
    /// Symbols sent on request: repair symbols, and named source symbols.
    pub repair_symbols: u64,
    /// Bytes of chunks sent over reliable channels.
    pub fetched_bytes: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Payload bytes of the datagrams sent.
    pub bytes: u64,
    /// Bytes of the datagrams sent on an Ethernet wire: with all headers, preamble and gap.
    pub wire_bytes: u64,
    /// Datagrams and messages that were rejected: of strangers, forged, damaged or of other sessions.
    pub rejected: u64,
    /// Datagrams that were rejected as repetitions.
    pub repeated: u64,
    /// Current maximum rate, in bits per second.
    pub rate_bits_per_second: u64,
    /// Chunks that are pending or being sent.
    pub chunks_remaining: u32,
}
