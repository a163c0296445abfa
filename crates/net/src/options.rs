//! The options of a cast over real sockets, the trait for reading its chunks, and its reports.
//!
//! Must never do I/O. It reads the clock in one place: to decide whether a cast that is kept may end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_cast::{
    CastFilter, Family, Hold, JoinKey, Opening, ReceiverStatus, SenderProgress, SessionId, Wanted,
};
use platter_image::{Result, Score};

use crate::group::Group;
use crate::joins::CONNECTIONS_MAX;
use crate::ports::CastPorts;
use crate::sink::SinkOutcome;
use crate::wake::Bell;

/// The default address for announcements. Its scope is administrative (RFC 2365), so no router forwards it.
pub const DISCOVERY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 80, 76), 7580);
/// The same for IPv6: the same last 32 bits, not registered, of one link (RFC 4291), so no router forwards it.
pub const DISCOVERY_IPV6: SocketAddrV6 =
    SocketAddrV6::new(Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0xefff, 0x504c), 7580, 0, 0);
/// The default TCP port for joins.
pub const JOIN_PORT: u16 = 7580;
/// The default number of chunks that a receiver holds at once: 96 × 1.4 MB = 135 MB.
pub const BUFFER_CHUNKS: usize = 96;

/// The options of a sender.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Name (`eth0`) or address of the interface to send on; `None`: as the routes say.
    pub interface: Option<String>,
    /// The family of the cast. `None`: that of the group, else IPv4 if this machine has such an address, else IPv6.
    pub family: Option<Family>,
    /// The group for data. `None`: a group in 239.255/16 or ff12::efff:0/112 derived from the session id, on the port of announcements.
    pub group: Option<Group>,
    /// The UDP port of group and announcements.
    pub port: u16,
    /// TCP port for joins, and UDP port for feedback. If another process of this machine uses it, the first free one of the next 99, else
    /// any, as for 0: receivers learn it from the announcement.
    pub join_port: u16,
    /// The open ports of the process: all its casts at an address share one. Receivers avoid the address of a cast that they could not use, so
    /// casts that are announced should not share a port with one of another owner.
    pub ports: Arc<CastPorts>,
    /// The maximum rate in bits per second on the wire, headers included. The actual rate adapts to the
    /// receivers below it.
    pub rate_bits_per_second: u64,
    /// The secret that receivers must have to join. With it, everything except announcements is encrypted. `None`: anybody on
    /// the network can join.
    pub join_key: Option<JoinKey>,
    /// Start once this many receivers have joined.
    pub wait_receivers: u32,
    /// Start after this time even if fewer receivers, but at least one, have joined.
    pub wait: Duration,
    /// How long to wait for late receivers after the last one has finished.
    pub linger: Duration,
    /// Give up if no receiver joins within this time. `None`: never.
    pub give_up: Option<Duration>,
    /// Set to true to end the cast early.
    pub stop: Arc<AtomicBool>,
    /// How many connections of joined receivers are kept, at least 1. Further receivers join, and connections that are not needed end.
    pub connections_max: usize,
    /// The cast is not announced at the discovery address, and admits only receivers that name its score.
    pub is_unlisted: bool,
    /// Controls the cast while it runs.
    pub control: Arc<SendControl>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            interface: None,
            family: None,
            group: None,
            port: DISCOVERY.port(),
            join_port: JOIN_PORT,
            ports: Arc::default(),
            rate_bits_per_second: 900_000_000,
            join_key: None,
            wait_receivers: 1,
            wait: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            give_up: None,
            stop: Arc::default(),
            connections_max: CONNECTIONS_MAX,
            is_unlisted: false,
            control: Arc::default(),
        }
    }
}

/// Controls a cast while it runs, from another thread.
#[derive(Debug)]
pub struct SendControl {
    rate_bits_per_second: AtomicU64,
    hold: Mutex<Hold>,
}

impl Default for SendControl {
    fn default() -> Self {
        Self { rate_bits_per_second: AtomicU64::new(u64::MAX), hold: Mutex::default() }
    }
}

impl SendControl {
    /// Limits the rate, below the maximum of the options.
    pub fn limit_rate(&self, bits_per_second: u64) {
        self.rate_bits_per_second.store(bits_per_second, Ordering::Relaxed);
    }

    /// Keeps the cast until this time at least, even if it has no receiver. Returns `false` if it has ended.
    #[must_use]
    pub fn keep(&self, until: Instant) -> bool {
        self.hold.lock().extend(until)
    }

    pub(crate) fn rate(&self, max: u64) -> u64 {
        self.rate_bits_per_second.load(Ordering::Relaxed).min(max)
    }

    pub(crate) fn end(&self) -> bool {
        self.hold.lock().end(Instant::now())
    }
}

/// The options of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Name (`eth0`) or address of the interface to listen on; `None`: as [`interface_of`](crate::interface_of) says, else as the
    /// routes say. Casts of both families are heard, as far as it has addresses.
    pub interface: Option<String>,
    /// Which session to receive.
    pub wanted: Wanted,
    /// Which of the sessions that match may be received. Others are ignored and reported.
    pub filter: CastFilter,
    /// The secret that the sender must have, too. Casts without it, or with another one, are not joined.
    pub join_key: Option<JoinKey>,
    /// The UDP port of announcements.
    pub port: u16,
    /// The sender's join address, if known; then no announcement is needed.
    pub sender: Option<SocketAddr>,
    /// The sender's join address, if another thread learns it from an origin; then no announcement is needed, either.
    pub told: Option<Arc<ToldSender>>,
    /// The addresses of that origin.
    pub origin: Vec<SocketAddr>,
    /// The name of this machine, for the sender's screen.
    pub hello: String,
    /// The most chunks in memory (1.4 MB each), being received or waiting for the sink.
    pub buffer_chunks: usize,
    /// Want every chunk from the start, instead of waiting for the sink to select chunks by the recipe. This
    /// starts sooner and suits a target that has none of the image's data.
    pub everything: bool,
    /// Give up if no sender is heard for this time. `None`: never.
    pub give_up: Option<Duration>,
    /// Set to true to end receiving early.
    pub stop: Arc<AtomicBool>,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            interface: None,
            wanted: Wanted::Any,
            filter: CastFilter::default(),
            join_key: None,
            port: DISCOVERY.port(),
            sender: None,
            told: None,
            origin: Vec::new(),
            hello: String::new(),
            buffer_chunks: BUFFER_CHUNKS,
            everything: true,
            give_up: None,
            stop: Arc::default(),
        }
    }
}

impl ReceiveOptions {
    /// Where to join, as far as it is known without an announcement.
    pub(crate) fn known_place(&self) -> Option<JoinPlace> {
        let named = self.sender.map(|address| JoinPlace { address, session: None });
        named.or_else(|| self.told.as_ref()?.place())
    }

    /// The address of that place.
    pub(crate) fn known_sender(&self) -> Option<SocketAddr> {
        self.known_place().map(|place| place.address)
    }
}

/// Where a session is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinPlace {
    /// The join address.
    pub address: SocketAddr,
    /// The first 4 bytes of the session's id: other sessions may be joined at the same address. `None`: not known.
    pub session: Option<u32>,
}

impl JoinPlace {
    pub(crate) fn of_session(address: SocketAddr, session: &SessionId) -> Self {
        Self { address, session: Some(session.short()) }
    }

    pub(crate) fn opening(&self) -> Opening {
        Opening { session: self.session }
    }
}

/// Where to join, which another thread learns while the receiver runs.
#[derive(Debug, Default)]
pub struct ToldSender {
    place: Mutex<Option<JoinPlace>>,
    /// Wakes the receiver.
    bell: Mutex<Option<Bell>>,
    /// How often it was set.
    namings: AtomicU32,
    is_joined: AtomicBool,
}

impl ToldSender {
    /// Sets the place. The session can be joined there now.
    pub fn set(&self, place: JoinPlace) {
        *self.place.lock() = Some(place);
        self.namings.fetch_add(1, Ordering::Relaxed);
        self.bell.lock().iter().for_each(Bell::ring);
    }

    /// Has this bell rung whenever the place is set.
    pub(crate) fn wake(&self, bell: Bell) {
        *self.bell.lock() = Some(bell);
    }

    /// Whether the receiver has joined a sender, and not lost it.
    pub fn is_joined(&self) -> bool {
        self.is_joined.load(Ordering::Relaxed)
    }

    pub(crate) fn place(&self) -> Option<JoinPlace> {
        *self.place.lock()
    }

    pub(crate) fn namings(&self) -> u32 {
        self.namings.load(Ordering::Relaxed)
    }

    pub(crate) fn set_joined(&self, is_joined: bool) {
        self.is_joined.store(is_joined, Ordering::Relaxed);
    }
}

/// The source of a sender's chunks. A few worker threads call it ahead of sending; a chunk may be requested
/// again (for repairs or late joiners).
pub trait ChunkSource: Sync {
    /// The contents of chunk `index`: exactly as many bytes as the description says.
    ///
    /// # Errors
    /// Any error ends the cast.
    fn read(&self, index: u32) -> Result<Arc<[u8]>>;

    /// Whether chunks can still be read, as far as that is known without reading one. Called several times a second before the data starts, so
    /// that a cast that waits for receivers ends in time.
    ///
    /// # Errors
    /// Any error ends the cast.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Reports of a sender.
#[derive(Clone, Debug)]
pub enum SendEvent {
    /// The sockets are open.
    Ready {
        /// Where receivers join.
        place: JoinPlace,
        /// The group for data.
        group: SocketAddr,
    },
    /// A receiver's state changed (joined, finished, failed, lost), or 250 ms have passed.
    Status {
        /// All receivers that ever joined.
        receivers: Vec<ReceiverStatus>,
        /// The sender's own counters.
        progress: SenderProgress,
    },
}

/// Reports of a receiver.
#[derive(Clone, Debug)]
pub enum ReceiveEvent {
    /// Something keeps this machine from a cast, in words; it goes on trying. Each is told once, and at most eight senders that
    /// cannot be reached.
    Trouble(String),
    /// A session was joined.
    Joined {
        /// The image's name; the table of chunks is not known yet.
        name: String,
        /// The image's score.
        score: Score,
        /// What the sender says about signatures, unverified.
        offer: Vec<u8>,
        /// The group of its data.
        group: SocketAddr,
    },
    /// A sender is ignored, because it does not cast what is wanted, although its name says so. Each one is reported once.
    Ignored {
        /// The name under which it casts.
        name: String,
        /// Where it expects joins.
        join: SocketAddr,
        /// Why it is ignored.
        reason: String,
    },
    /// The sender is gone; the receiver looks for it, or for another sender of the image.
    SenderLost,
    /// Progress of content chunks.
    Progress {
        /// Chunks accepted by the sink.
        chunks: u32,
        /// Chunks wanted so far.
        wanted: u32,
        /// Bytes accepted.
        bytes: u64,
    },
}

/// The result of a cast on the sender's side.
#[derive(Clone, Debug)]
pub struct SendSummary {
    /// Every receiver that ever joined, with its result.
    pub receivers: Vec<ReceiverStatus>,
    /// The sender's counters.
    pub progress: SenderProgress,
    /// From the start of the first receiver to the end of the last.
    pub duration: Duration,
}

/// The result of a cast on a receiver's side.
#[derive(Clone, Debug)]
pub struct ReceiveSummary {
    /// What the sink verified.
    pub outcome: SinkOutcome,
    /// Distinct symbols received.
    pub symbols: u64,
    /// Symbols rebuilt from repair symbols.
    pub repaired: u64,
    /// Symbols that were received more than once.
    pub duplicates: u64,
    /// Chunks that were invalid when received by multicast and then fetched by unicast.
    pub fetched_chunks: u64,
    /// Datagrams and messages that were rejected: forged, damaged, or of other sessions.
    pub rejected: u64,
    /// Datagrams that were rejected as repetitions.
    pub repeated: u64,
    /// From joining to the end.
    pub duration: Duration,
    /// Whether the sender acknowledged the result; if not, it may list this receiver as lost.
    pub acknowledged: bool,
}
