//! What the driver of a receiver gives and gets: options, events, counters.

use std::net::SocketAddr;

#[cfg(doc)]
use super::machine::Receiver;
use super::senders::CastFilter;
use crate::join_key::JoinKey;
use crate::session::{SessionDescription, SessionId};
use crate::wire::announce::Announce;
use crate::wire::join::Wanted;

/// Options of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Spreads the timers of receivers; any number that differs between them.
    pub seed: u64,
    /// The session to join.
    pub wanted: Wanted,
    /// Which of the sessions that match may be joined.
    pub filter: CastFilter,
    /// With a join key, only casts with the same key are joined.
    pub join_key: Option<JoinKey>,
    /// Random bytes that make connections unique. Never reuse them with the same join key.
    pub nonce_seed: [u8; 32],
    /// The name that it gives itself.
    pub hello: String,
    /// Maximum number of chunks that it may hold at once, including those that the driver has not returned. A corrupt one that is
    /// being fetched may exceed this by one.
    pub buffer_chunks: usize,
    /// Request every chunk of the first session's first segment from the start, without waiting until the driver knows from the
    /// recipe what it wants; this saves two round trips. In any case, the driver gets data chunks only after it has accepted all
    /// wanted recipe chunks of that segment.
    pub everything: bool,
}

/// An event for the driver.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// A session was found: connect the reliable channel to it.
    Connect {
        /// Its join address.
        join: SocketAddr,
        /// Its id.
        session: SessionId,
    },
    /// A joined session needs its reliable channel again: connect to where it was connected.
    Reconnect,
    /// The session was joined: receive from its multicast group.
    Joined(Box<Announce>),
    /// The chunk table is known: call [`Receiver::want`]. Occurs again after the sender was restarted.
    Session(SessionDescription),
    /// A chunk is complete: return it with [`Receiver::chunk_accepted`], [`Receiver::chunk_bad`] or
    /// [`Receiver::chunk_contradicts`], with the same generation.
    Chunk {
        /// The number of its session, counted from 1.
        generation: u32,
        /// Content chunk number.
        index: u32,
        /// Its bytes, unverified.
        bytes: Vec<u8>,
    },
    /// A sender is ignored. Each one is reported once, up to a limit.
    Ignored {
        /// The name under which it casts.
        name: String,
        /// Where it expects joins.
        join: SocketAddr,
        /// Why it is ignored.
        reason: String,
    },
    /// The sender refused the join, or the connection of a joined receiver: close the reliable channel and call
    /// [`Receiver::handle_disconnected`].
    Refused(String),
    /// The data of the joined sender cannot be used.
    Unusable(String),
    /// The sender is gone: close the reliable channel and call [`Receiver::handle_disconnected`].
    SenderLost,
    /// The sender does not know this receiver any more: close the reliable channel and call [`Receiver::handle_disconnected`]. Then it is
    /// joined anew.
    Forgotten,
    /// The sender has confirmed the result.
    Acknowledged,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStatistics {
    /// New symbols received.
    pub symbols: u64,
    /// Source symbols restored from repair symbols.
    pub repaired: u64,
    /// Symbols that were received again or no longer wanted.
    pub duplicates: u64,
    /// Chunks that were corrupt and fetched over the reliable channel.
    pub fetched: u64,
    /// Symbols dropped because no buffer was free.
    pub no_room: u64,
    /// Datagrams and messages that were rejected: forged, damaged, or of other sessions.
    pub rejected: u64,
    /// Datagrams that were rejected as repetitions.
    pub repeated: u64,
    /// Senders that were ignored.
    pub ignored_senders: u32,
    /// Content chunks wanted so far.
    pub wanted: u32,
    /// Content chunks accepted by the driver.
    pub done: u32,
}
