//! What the exchanging machine is told at its start, and what it tells its driver.

use std::sync::Arc;
use std::time::Duration;

use platter_image::BlockId;

use crate::peer::filter::{FilterChanges, FilterPiece, FilterVersion};
use crate::peer::wire::{AskMessage, Hello, NodeId};

/// How a node shares.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// Who this node is.
    pub hello: Hello,
    /// The filter's salt: random, another one at each start.
    pub salt: u64,
    /// Ceiling of what is sent to all peers, bits per second.
    pub share_bits_per_second: u64,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// A question waits for a stream to that node: call [`Exchange::handle_connected`] or
    /// [`Exchange::handle_disconnected`].
    Connect(NodeId),
    /// The peer is one of our store. Subscribe if its filter is wanted.
    Joined(NodeId),
    /// For [`crate::peer::Choice::handle_filter`].
    Filter(NodeId, FilterPiece),
    /// For [`crate::peer::Choice::handle_changes`].
    Changes(NodeId, FilterChanges),
    /// Read frames with these ids: [`Exchange::give`] each, then [`Exchange::finish`].
    Asked(NodeId, AskMessage),
    /// No more of that; what is given all the same goes nowhere.
    Cancelled(NodeId, u32),
    /// A frame for our question, unverified.
    Frame(NodeId, u32, Arc<[u8]>),
    /// Our question was answered to its end: what is not there, and the peer's version.
    Answered(NodeId, u32, Vec<BlockId>, FilterVersion),
    /// Our question was put off for that time.
    Busy(NodeId, u32, Duration),
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeStatistics {
    /// Frames sent to peers, and their bytes.
    pub frames_sent: u64,
    /// See `frames_sent`.
    pub frame_bytes_sent: u64,
    /// Bytes of filters and changes sent.
    pub filter_bytes_sent: u64,
    /// Questions put off.
    pub busy: u64,
    /// Frames that came for questions cancelled before.
    pub unwanted_frames: u64,
}
