//! Size options of a cache, and its counters.

use std::time::Duration;

use platter_image::{Error, Result};

/// Usual length of a segment in bytes. Large and small limits change it.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Minimum length of a segment in bytes: room for several of the largest frames.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Maximum length of a segment in bytes: offsets in it have 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Minimum number of segments, and the usual maximum: each segment is an open file.
const SEGMENTS_MIN: u64 = 8;
const SEGMENTS_USUAL: u64 = 256;

/// Options of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Maximum total length of its files in bytes. It may be exceeded by one segment for a moment.
    pub limit_bytes: u64,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// After a failed write, nothing is stored for this long.
    pub pause: Duration,
}

impl CacheOptions {
    /// Options for a cache of at most `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        let usual = SEGMENT_BYTES.max(limit_bytes / SEGMENTS_USUAL).min(SEGMENT_BYTES_MAX);
        Self {
            limit_bytes,
            segment_bytes: usual.min(limit_bytes / SEGMENTS_MIN),
            pause: Duration::from_secs(30),
        }
    }

    /// Checks the limit.
    ///
    /// # Errors
    /// `Refused` when it is too small.
    pub fn check(&self) -> Result<()> {
        if self.segment_bytes > SEGMENT_BYTES_MAX || self.segment_bytes < SEGMENT_BYTES_MIN {
            let least = SEGMENT_BYTES_MIN * SEGMENTS_MIN;
            return Err(Error::refused(format!(
                "a cache of {} bytes in segments of {} bytes is too small: use at least {least} bytes",
                self.limit_bytes, self.segment_bytes
            )));
        }
        Ok(())
    }
}

/// Counters since the cache was opened, and its current contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Requests for blocks and pages that were held.
    pub hits: u64,
    /// Requests for blocks and pages that were not held.
    pub misses: u64,
    /// Frames stored.
    pub taken: u64,
    /// Frames not stored, because everything is pinned or a write failed recently.
    pub refused: u64,
    /// Frames evicted to make room.
    pub evicted: u64,
    /// Frames dropped because they were damaged.
    pub damaged: u64,
    /// Failed writes and syncs.
    pub write_failures: u64,
    /// Blocks and pages that are held.
    pub blocks: u64,
    /// Total length of its files in bytes.
    pub bytes: u64,
    /// Total length of pinned frames in bytes.
    pub pinned_bytes: u64,
    /// The limit in bytes.
    pub limit_bytes: u64,
}
