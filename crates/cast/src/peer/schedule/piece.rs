//! A piece of a read, and what is under way for it.

use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::window::Sent;
use crate::peer::NodeId;

/// Every piece ends within that time, one way or the other.
pub const PIECE_TIME_MAX: Duration = Duration::from_secs(60);

/// Ids of one group that are to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The recipe that they stand in.
    pub score: Score,
    /// Data or pages.
    pub kind: Kind,
    /// Their group ([`super::groups`]); for pages, any number that all nodes make of the page's id.
    pub group: u64,
    /// One to [`crate::peer::ASK_IDS_MAX`], no two the same.
    pub ids: Vec<BlockId>,
    /// Ask the origin only: what the home of a group does for others, or two homes could ask each other.
    pub origin_only: bool,
    /// A part of a large read. The piece waits until a peer has all of it. Meanwhile this node asks the origin for a few of the waiting
    /// pieces that it is the home of; when none of these is left, for pieces that it is the second choice for; at last it asks the
    /// homes for the rest. The piece's time begins when it is asked for. So nodes that read the same at once fetch different parts
    /// from the origin, and then each other's.
    pub can_wait: bool,
    /// Without peers: the origin should send these blocks and nothing else. Otherwise whole frames are welcome, because the rest of
    /// them is read soon, and the origin has less work.
    pub exact: bool,
    /// How long it is tried; among peers, more than [`PIECE_TIME_MAX`] makes no sense.
    pub patience: Duration,
}

/// Names a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// Where frames come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The origin.
    Origin,
    /// Another node.
    Peer(NodeId),
}

/// A question to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its number.
    pub request: u32,
    /// To whom.
    pub source: Source,
    /// As in [`Want`].
    pub score: Score,
    /// As in [`Want`].
    pub kind: Kind,
    /// Whether the peer may fetch what it lacks.
    pub fetch: bool,
    /// Whether the origin should send these blocks and nothing else.
    pub exact: bool,
    /// As in [`Want`], without those that came.
    pub ids: Vec<BlockId>,
}

/// Why a question got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Asked to come back after that time.
    Busy(Duration),
    /// Gone, or broke off.
    Gone,
    /// The origin refuses, or what it sent is wrong: asking again would give the same.
    Refused,
    /// Sent what does not decode, does not hash, or breaks the protocol: never asked again.
    Lied,
}

/// What is known of a piece that has not ended.
#[derive(Debug)]
pub(super) struct Piece {
    /// With the ids that did not come yet.
    pub(super) want: Want,
    /// Asks under way: at most [`super::deadline::ASKS_MAX`], all but the first hedges.
    pub(super) asks: Vec<u32>,
    /// `tried`: peers that were asked because their filters claim blocks. `homes_tried`: peers that were asked as the home. One peer can
    /// be in both: a home that holds a part is asked for that part, and then to fetch the rest, which no other node should fetch too.
    pub(super) tried: Vec<NodeId>,
    pub(super) homes_tried: Vec<NodeId>,
    pub(super) origin_failures: u32,
    /// It is not asked for before this time.
    pub(super) not_before: Duration,
    pub(super) ends_at: Duration,
    /// When something is to be done about it.
    pub(super) deadline: Duration,
    /// It can wait, and this node is the second choice for its home: it may ask the origin in the home's place.
    pub(super) stands_in: bool,
    /// It could wait at first: a reader in order waits for it.
    pub(super) announced: bool,
}

/// A question under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// Those that still need it: more than one at the origin only.
    pub(super) pieces: Vec<PieceId>,
    pub(super) groups: Vec<u64>,
    pub(super) source: Source,
    pub(super) fetch: bool,
    /// Of a piece that can wait, and not to a peer that says to have it.
    pub(super) is_first_hand: bool,
    pub(super) asked_at: Duration,
    /// When something last came of it.
    pub(super) progress_at: Duration,
    pub(super) ids: Vec<BlockId>,
    /// For the origin's window.
    pub(super) sent: Sent,
    /// Estimated bytes that have not come, and those that came.
    pub(super) expected: u64,
    pub(super) came: u64,
}
