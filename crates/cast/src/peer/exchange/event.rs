//! Options, events and counters of the exchange.

use std::sync::Arc;
use std::time::Duration;

use platter_image::BlockId;

use crate::peer::filter::{FilterChanges, FilterPiece, FilterVersion};
use crate::peer::wire::{AskMessage, Hello, NodeId};

/// Options of the exchange.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// The HELLO of this node.
    pub hello: Hello,
    /// Salt of the filter: random, and different at each start.
    pub salt: u64,
    /// Maximum rate of sending to all peers, in bits per second.
    pub share_bits_per_second: u64,
}

/// An event for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// A message waits for a stream to that node: connect, and call [`Exchange::handle_connected`] or
    /// [`Exchange::handle_disconnected`].
    Connect(NodeId),
    /// The peer belongs to our sharing group. Subscribe if its filter is wanted.
    Joined(NodeId),
    /// Pass it to [`crate::peer::Scheduler::handle_filter`].
    Filter(NodeId, FilterPiece),
    /// For [`crate::peer::Scheduler::handle_changes`].
    Changes(NodeId, FilterChanges),
    /// Read frames with these ids: call [`Exchange::give`] for each, then [`Exchange::finish`].
    Asked(NodeId, AskMessage),
    /// A peer cancelled that question. Further frames for it are dropped.
    Cancelled(NodeId, u32),
    /// A frame for our question, unverified.
    Frame(NodeId, u32, Arc<[u8]>),
    /// The end of the answer to our question: the ids that the peer does not hold, and its filter's version.
    Answered(NodeId, u32, Vec<BlockId>, FilterVersion),
    /// The peer refused our question for that time.
    Busy(NodeId, u32, Duration),
}

/// Counters of the exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeStatistics {
    /// Frames sent to peers.
    pub frames_sent: u64,
    /// Bytes of the frames sent to peers.
    pub frame_bytes_sent: u64,
    /// Bytes of filters and their changes sent to peers.
    pub filter_bytes_sent: u64,
    /// Questions of peers refused with BUSY.
    pub busy: u64,
    /// Frames received for questions that were cancelled before.
    pub unwanted_frames: u64,
}
