//! The reported state of a served disk.

use platter_api::CacheStatus;
use platter_vdisk::CacheCounters;
use serde::{Deserialize, Serialize};

/// A served disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// Its name in exports.
    pub disk: String,
    /// The score of the version below its writes.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it is writable.
    pub writable: bool,
    /// Bytes that an earlier process wrote above the base.
    pub written_bytes: u64,
    /// Its addresses, as clients write them.
    pub exports: Vec<String>,
}

/// The reported counters of a memory cache.
pub(crate) fn cache_status(counters: CacheCounters) -> CacheStatus {
    CacheStatus { hits: counters.hits, misses: counters.misses, bytes_held: counters.bytes_held }
}
