//! A disk that a process serves, as it is told to others.

use platter_api::CacheStatus;
use platter_vdisk::CacheCounters;
use serde::{Deserialize, Serialize};

/// A disk that is served now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Bytes written above the base before, by a process that ended.
    pub written_bytes: u64,
    /// Where it is served, as clients write it.
    pub exports: Vec<String>,
}

/// The counters of a memory cache, as they are reported.
pub(crate) fn cache_status(counters: CacheCounters) -> CacheStatus {
    CacheStatus { hits: counters.hits, misses: counters.misses, bytes_held: counters.bytes_held }
}
