//! A piece of a read, and its requests.

use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::window::Sent;
use crate::peer::NodeId;

/// Every piece succeeds or fails within this time.
pub const PIECE_TIME_MAX: Duration = Duration::from_secs(60);

/// Ids of one group to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The recipe that contains them.
    pub score: Score,
    /// Data or pages.
    pub kind: Kind,
    /// Their group ([`super::groups`]); for pages, a number that all nodes derive from the page's id.
    pub group: u64,
    /// 1 to [`crate::peer::ASK_IDS_MAX`] different ids.
    pub ids: Vec<BlockId>,
    /// Request from the origin only. Used by the home of a group for other nodes; otherwise two homes could request from each other.
    pub origin_only: bool,
    /// A part of a large read. The piece waits until a peer has all of it. Meanwhile, this node requests a few of the
    /// waiting pieces from the origin: those whose home it is, then those that it is the second choice for; in the end
    /// it requests the rest from the homes. The time of the piece starts when it is requested. So nodes that read the
    /// same data at once fetch different parts from the origin, and the rest from each other.
    pub can_wait: bool,
    /// Without peers: the origin should send only these blocks. Otherwise it may send whole frames, because the rest of
    /// them is read soon, and the origin has less work.
    pub exact: bool,
    /// How long to try; with peers, at most [`PIECE_TIME_MAX`].
    pub patience: Duration,
}

/// The number of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// The source of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The origin.
    Origin,
    /// Another node.
    Peer(NodeId),
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its number.
    pub request: u32,
    /// Where to send it.
    pub source: Source,
    /// As in [`Want`].
    pub score: Score,
    /// As in [`Want`].
    pub kind: Kind,
    /// Whether the peer should fetch missing blocks.
    pub fetch: bool,
    /// Whether the origin should send only these blocks.
    pub exact: bool,
    /// As in [`Want`], without those that have arrived.
    pub ids: Vec<BlockId>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The source is busy; retry after this time.
    Busy(Duration),
    /// The source disconnected or aborted.
    Gone,
    /// The origin refuses, or sent wrong data: another request would have the same result.
    Refused,
    /// The peer sent invalid frames or blocks, or violated the protocol: it is banned.
    Lied,
}

/// An unfinished piece.
#[derive(Debug)]
pub(super) struct Piece {
    /// With the ids that have not arrived yet.
    pub(super) want: Want,
    /// Requests in flight, at most [`super::deadline::ASKS_MAX`]; all except the first are hedges.
    pub(super) asks: Vec<u32>,
    /// `tried`: peers that got a request because their filters claim blocks. `homes_tried`: peers that got a request as
    /// the home. A peer can be in both: a home that has a part first gets a request for this part, and then one to
    /// fetch the rest, so that no other node fetches the rest too.
    pub(super) tried: Vec<NodeId>,
    pub(super) homes_tried: Vec<NodeId>,
    pub(super) origin_failures: u32,
    /// It is not requested before this time.
    pub(super) not_before: Duration,
    pub(super) ends_at: Duration,
    /// Time of the next action for it.
    pub(super) deadline: Duration,
    /// It can wait, and this node is the second choice for its home: it may request it from the origin in place of the home.
    pub(super) stands_in: bool,
    /// It was announced by a sequential reader before the reader waited for it.
    pub(super) announced: bool,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// The pieces that still need it; more than one only at the origin.
    pub(super) pieces: Vec<PieceId>,
    pub(super) groups: Vec<u64>,
    pub(super) source: Source,
    pub(super) fetch: bool,
    /// Whether the piece can wait and the source is not a holder.
    pub(super) is_first_hand: bool,
    pub(super) asked_at: Duration,
    /// Time at which part of the reply last arrived.
    pub(super) progress_at: Duration,
    pub(super) ids: Vec<BlockId>,
    /// The state of the origin's window when it was sent.
    pub(super) sent: Sent,
    /// Estimated bytes that have not arrived, and bytes that have.
    pub(super) expected: u64,
    pub(super) came: u64,
}
