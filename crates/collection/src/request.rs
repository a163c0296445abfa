//! The request for a collection.

/// A request for a collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectRequest {
    /// Current time in milliseconds since 1970 UTC. It decides only how long dead packs are kept.
    pub now_unix_ms: i64,
    /// How long dead packs are kept, so that readers that planned their frames can go on.
    pub keep_trash_ms: i64,
    /// Only report.
    pub dry_run: bool,
    /// Go on even if more than [`CollectRequest::BRAKE_PERCENT`] of all bytes would be given up.
    pub is_confirmed: bool,
    /// Packs of which less than this share is needed are rewritten, in percent; 0: none.
    pub compact_percent: u64,
    /// Packs that get smaller by compressing their frames at this zstd level are rewritten, too.
    pub recompress: Option<i32>,
    /// Give up forgotten disks although clients of the origin read them lately.
    pub end_leases: bool,
}

impl CollectRequest {
    /// A run that would give up more than this share of all bytes, in whole packs or by compaction, needs a confirmation.
    pub const BRAKE_PERCENT: u64 = 30;
    /// The default of [`CollectRequest::compact_percent`].
    pub const COMPACT_PERCENT: u64 = 50;
}
