//! What the fetching machine tells its driver: things to do, and counters.

use platter_image::BlockId;

use super::piece::{Ask, PieceId, Source};

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleEvent {
    /// Send this question.
    Ask(Ask),
    /// An answer is not needed any more.
    Cancel {
        /// Whom was asked.
        source: Source,
        /// The question.
        request: u32,
    },
    /// All of it came.
    Done(PieceId),
    /// These did not come: the origin does not have them, or failed, or time is up.
    Failed {
        /// The piece.
        piece: PieceId,
        /// What lacks.
        ids: Vec<BlockId>,
    },
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleStatistics {
    /// Questions to peers whose filter said yes.
    pub peer_asks: u64,
    /// Questions to homes.
    pub home_asks: u64,
    /// Questions to the origin.
    pub origin_asks: u64,
    /// Questions that were hedges; they count among the above too.
    pub hedges: u64,
    /// Ids that a filter said were there, and were not.
    pub false_positives: u64,
    /// Ids that were not there, while the filter here was older than the peer's.
    pub stale: u64,
    /// Questions that failed.
    pub failures: u64,
    /// Peers dropped for good.
    pub liars: u64,
}
