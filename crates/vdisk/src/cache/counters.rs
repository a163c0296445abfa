//! Counters of a cache, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a cache did since its creation, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Requested blocks that were in memory.
    pub hits: u64,
    /// Requested blocks that were not in memory.
    pub misses: u64,
    /// Misses that waited while another thread read the same frame.
    pub waits: u64,
    /// Frames decoded, whole or up to a block.
    pub frames_decoded: u64,
    /// Bytes decoded from them.
    pub bytes_decoded: u64,
    /// Recipe pages decoded.
    pub pages_decoded: u64,
    /// Blocks evicted, or not kept because they are too large for the cache.
    pub evictions: u64,
    /// Frames read ahead, either of a sequential reader or in storage order.
    pub ahead_frames: u64,
    /// Frames read ahead of which a block was then read.
    pub ahead_frames_used: u64,
    /// Bytes that blocks take now.
    pub bytes_held: u64,
    /// Bytes that pages take now.
    pub page_bytes_held: u64,
}

/// One counter.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: Count,
    pub(super) misses: Count,
    pub(super) waits: Count,
    pub(super) frames_decoded: Count,
    pub(super) bytes_decoded: Count,
    pub(super) ahead_frames: Count,
    pub(super) ahead_frames_used: Count,
}
