//! How large a cache is, and what it tells of itself.

use std::time::Duration;

use platter_image::{Error, Result};

/// Bytes of a segment, where the limit is neither large nor small.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Least bytes of a segment: several of the largest frames.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Most bytes of a segment: offsets in it have 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Segments that a cache has at least, and about how many at most: each is an open file.
const SEGMENTS_MIN: u64 = 8;
const SEGMENTS_USUAL: u64 = 256;

/// How large a cache is, and how it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Most bytes of its files, passed by one segment at most, for a moment.
    pub limit_bytes: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// After a write that failed, nothing is taken for so long.
    pub pause: Duration,
}

impl CacheOptions {
    /// A cache of that many bytes at most.
    pub fn new(limit_bytes: u64) -> Self {
        let usual = SEGMENT_BYTES.max(limit_bytes / SEGMENTS_USUAL).min(SEGMENT_BYTES_MAX);
        Self {
            limit_bytes,
            segment_bytes: usual.min(limit_bytes / SEGMENTS_MIN),
            pause: Duration::from_secs(30),
        }
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<()> {
        if self.segment_bytes > SEGMENT_BYTES_MAX || self.segment_bytes < SEGMENT_BYTES_MIN {
            let least = SEGMENT_BYTES_MIN * SEGMENTS_MIN;
            return Err(Error::refused(format!(
                "a cache of {} bytes in segments of {}: it needs {least} bytes at least",
                self.limit_bytes, self.segment_bytes
            )));
        }
        Ok(())
    }
}

/// What a cache did since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Blocks and pages that were asked for and held.
    pub hits: u64,
    /// Blocks and pages that were asked for and not held.
    pub misses: u64,
    /// Frames taken.
    pub taken: u64,
    /// Frames not taken: everything is pinned, or writing failed lately.
    pub refused: u64,
    /// Frames that went to make room.
    pub evicted: u64,
    /// Frames that went because they were damaged.
    pub damaged: u64,
    /// Writes and syncs that failed.
    pub write_failures: u64,
    /// Blocks and pages held.
    pub blocks: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of frames that are pinned.
    pub pinned_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}
