//! What a cast over real sockets is told: addresses, limits, and where chunks come from and go to.
//!
//! Owns the options of both sides and the two traits at which jobs join in. Must never do I/O.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use platter_cast::{ReceiverStatus, SenderProgress, SessionDescription, Wanted};
use platter_image::{Result, Score};

/// Where sessions are announced unless told otherwise: administratively scoped (RFC 2365), so no router forwards it.
pub const DISCOVERY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 80, 76), 7580);
/// The TCP port of joins unless told otherwise.
pub const JOIN_PORT: u16 = 7580;
/// Chunks that a receiver holds at once unless told otherwise: 96 × 1.4 MB = 135 MB.
pub const BUFFER_CHUNKS: usize = 96;

/// How a sender sends.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Name (`eth0`) or IPv4 address of the interface to send on; `None`: where the routes point.
    pub interface: Option<String>,
    /// Where data goes. `None`: a group of 239.255/16 derived from the session id, on the discovery port.
    pub group: Option<SocketAddrV4>,
    /// Where sessions are announced.
    pub discovery: SocketAddrV4,
    /// TCP port for joins; 0 takes any free one (receivers learn it from the announcement).
    pub join_port: u16,
    /// Ceiling of the rate on the wire, headers included. The rate actually used follows receivers below it.
    pub rate_bits_per_second: u64,
    /// Start as soon as that many receivers have joined.
    pub wait_receivers: u32,
    /// Start after that long even if fewer (but at least one) have joined.
    pub wait: Duration,
    /// After the last receiver has finished, wait that long for late ones.
    pub linger: Duration,
    /// Give up when nobody has joined for that long. `None`: never.
    pub give_up: Option<Duration>,
    /// Set to true by whoever wants the cast to end early.
    pub stop: Arc<AtomicBool>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            interface: None,
            group: None,
            discovery: DISCOVERY,
            join_port: JOIN_PORT,
            rate_bits_per_second: 900_000_000,
            wait_receivers: 1,
            wait: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            give_up: None,
            stop: Arc::default(),
        }
    }
}

/// How a receiver receives.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Name (`eth0`) or IPv4 address of the interface to listen on; `None`: where the routes point.
    pub interface: Option<String>,
    /// Which session to take.
    pub wanted: Wanted,
    /// Where sessions are announced.
    pub discovery: SocketAddrV4,
    /// The sender's join address, if it is known: then no announcement is awaited.
    pub sender: Option<SocketAddr>,
    /// What this machine calls itself, for the sender's screen.
    pub hello: String,
    /// Chunks held in memory at once, being received or waiting for the sink (1.4 MB each).
    pub buffer_chunks: usize,
    /// Want every chunk from the start, instead of what the sink says when it knows the recipe: that is sooner, and
    /// right for a target that has nothing of the image yet.
    pub everything: bool,
    /// Give up when no sender was heard for that long. `None`: never.
    pub give_up: Option<Duration>,
    /// Set to true by whoever wants this to end early.
    pub stop: Arc<AtomicBool>,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            interface: None,
            wanted: Wanted::Any,
            discovery: DISCOVERY,
            sender: None,
            hello: String::new(),
            buffer_chunks: BUFFER_CHUNKS,
            everything: true,
            give_up: None,
            stop: Arc::default(),
        }
    }
}

/// Where a sender's chunks come from. Called by a few worker threads, ahead of the sending; a chunk may be asked for
/// again (repairs, late joiners).
pub trait ChunkSource: Sync {
    /// Content chunk `index`: exactly the bytes that the description's length says.
    ///
    /// # Errors
    /// Whatever it is, it ends the cast.
    fn read(&self, index: u32) -> Result<Arc<[u8]>>;
}

/// What a sink says to a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkVerdict {
    /// Verified and taken.
    Accepted,
    /// Verified and taken, and now these content chunks are wanted too (the recipe told).
    AcceptedWant(Vec<Range<u32>>),
    /// Not what it must be: it is fetched from the sender alone. When that is wrong several times, the receiver fails.
    Bad(String),
    /// Verified and taken, and it shows that some of these content chunks, which were taken before, were not the
    /// sender's: they are fetched from the sender alone, and come again.
    Contradicts(Vec<Range<u32>>),
}

/// What a receiver achieved, for the sender's screen and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkOutcome {
    /// The score that was verified.
    pub score: Score,
    /// Bytes written to the target.
    pub bytes_written: u64,
}

/// Where a receiver's chunks go. Called on one thread of its own, so the network never waits for it.
pub trait ChunkSink: Send {
    /// A session begins, or begins anew after the sender came back with another table: says which content chunks are
    /// wanted (others may be wanted later by [`ChunkVerdict::AcceptedWant`]).
    ///
    /// # Errors
    /// Whatever it is, it ends the receiving; the sender is told.
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>>;

    /// A wanted chunk has arrived, in any order. Nothing of it is verified yet.
    ///
    /// # Errors
    /// Whatever it is (a full disk), it ends the receiving; the sender is told. A chunk that is not what it must be
    /// is not an error but [`ChunkVerdict::Bad`].
    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict>;

    /// All wanted chunks were accepted: makes everything durable and says what was verified.
    ///
    /// # Errors
    /// As for [`ChunkSink::chunk`].
    fn finish(&mut self) -> Result<SinkOutcome>;
}

/// What a sender tells while it works.
#[derive(Clone, Debug)]
pub enum SendEvent {
    /// Sockets are open; joins come to this address, data goes to that group.
    Ready {
        /// TCP address for joins.
        join: SocketAddr,
        /// Where data goes.
        group: SocketAddr,
    },
    /// A receiver's state changed (joined, finished, failed, lost), or a quarter second has passed.
    Status {
        /// All receivers that ever joined.
        receivers: Vec<ReceiverStatus>,
        /// The sender's own counters.
        progress: SenderProgress,
    },
}

/// What a receiver tells while it works.
#[derive(Clone, Debug)]
pub enum ReceiveEvent {
    /// A session was joined.
    Joined {
        /// What it carries; the table of chunks is not known yet.
        name: String,
        /// The recipe's root.
        score: Score,
    },
    /// The sender is gone; looking for it, or for another one with the same image.
    SenderLost,
    /// Content chunks accepted by the sink, of those wanted so far.
    Progress {
        /// Accepted.
        chunks: u32,
        /// Wanted.
        wanted: u32,
        /// Bytes accepted.
        bytes: u64,
    },
}

/// How a cast ended, on the sender's side.
#[derive(Clone, Debug)]
pub struct SendSummary {
    /// Every receiver that ever joined, with its result.
    pub receivers: Vec<ReceiverStatus>,
    /// The sender's counters.
    pub progress: SenderProgress,
    /// From the first receiver's start to the end of the last.
    pub duration: Duration,
}

/// How a cast ended, on a receiver's side.
#[derive(Clone, Debug)]
pub struct ReceiveSummary {
    /// What the sink verified.
    pub outcome: SinkOutcome,
    /// Symbols received, once each.
    pub symbols: u64,
    /// Symbols made from repair symbols.
    pub repaired: u64,
    /// Symbols received in vain.
    pub duplicates: u64,
    /// Chunks that came wrong by multicast and were fetched from the sender alone.
    pub fetched_chunks: u64,
    /// From joining to the end.
    pub duration: Duration,
    /// Whether the sender acknowledged the result; if not, it may list this receiver as lost.
    pub acknowledged: bool,
}
