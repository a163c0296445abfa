//! The output of the scheduler: events for its driver, and statistics.

use platter_image::BlockId;

use super::piece::{Ask, PieceId, Source};

/// An event for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleEvent {
    /// Send this request.
    Ask(Ask),
    /// A reply is no longer needed.
    Cancel {
        /// Where the request was sent.
        source: Source,
        /// Number of the request.
        request: u32,
    },
    /// All blocks of this piece have arrived.
    Done(PieceId),
    /// Some blocks of a piece did not arrive: the origin does not have them, or failed, or the time is over.
    Failed {
        /// The piece.
        piece: PieceId,
        /// The missing blocks.
        ids: Vec<BlockId>,
    },
}

/// Statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleStatistics {
    /// Requests to peers whose filters claimed the blocks.
    pub peer_asks: u64,
    /// Requests to homes.
    pub home_asks: u64,
    /// Requests to the origin.
    pub origin_asks: u64,
    /// Requests that were hedges; they are also counted above.
    pub hedges: u64,
    /// Ids that an up-to-date filter claimed, but the peer did not have.
    pub false_positives: u64,
    /// Ids that the peer did not have, while the filter here was outdated.
    pub stale: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Banned peers.
    pub liars: u64,
}
