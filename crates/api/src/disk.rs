//! Live disks of a machine, and statistics of their caches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A live disk.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiskStatus {
    /// Its name in exports.
    pub disk: String,
    /// Score of the disk without local changes.
    pub base: String,
    /// Size of the disk in bytes.
    pub disk_bytes: u64,
    /// Whether it is writable.
    pub writable: bool,
    /// Holder of the edit lock.
    pub holder: Option<String>,
    /// Number of the edit lock.
    pub edit_lock: Option<u64>,
    /// Bytes of local changes; `None` when no process serves the disk and its changes could not be opened.
    pub written_bytes: Option<u64>,
    /// Addresses of the exports.
    pub exports: Vec<String>,
    /// Id of the process that serves it; `None` for a disk with local changes that no process serves.
    pub process: Option<u32>,
    /// Memory cache of that process, for all of its disks together.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
    /// Progress of the fill, if the whole disk is to be cached.
    #[serde(default)]
    pub fill: Option<FillStatus>,
    /// Node cache of that process, for all of its disks together.
    #[serde(default)]
    pub node: Option<NodeCounters>,
}

/// Statistics of a memory cache since its process started.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Reads of blocks that were in memory.
    pub hits: u64,
    /// Reads of blocks that were not.
    pub misses: u64,
    /// Current size of the cached blocks in bytes.
    pub bytes_held: u64,
}

/// Progress of a fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FillStatus {
    /// Number of blocks and pages of the disk; 0 until its recipe was read.
    pub blocks: u64,
    /// Number of those in the cache.
    pub held: u64,
    /// Whether all of them are durable in the cache, so that the disk no longer needs the origin or peers.
    pub filled: bool,
    /// Why the fill is paused.
    pub trouble: Option<String>,
}

/// Statistics of a node cache since its process started, for all disks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCounters {
    /// Requests for blocks and pages that were in the cache.
    pub hits: u64,
    /// Requests for blocks and pages that were not.
    pub misses: u64,
    /// Number of frames fetched from the origin or from peers.
    pub fetched_frames: u64,
    /// Size of these frames in bytes.
    pub fetched_bytes: u64,
    /// Number of frames evicted to free space.
    pub evicted: u64,
    /// Number of frames that were damaged and fetched again.
    pub damaged: u64,
    /// Number of frames that were not cached because everything is pinned or a write failed.
    pub refused: u64,
    /// Number of cached blocks and pages.
    pub blocks: u64,
    /// Size of the cache in bytes.
    pub cache_bytes: u64,
    /// Size of the pinned part in bytes.
    pub pinned_bytes: u64,
    /// Maximum size of the cache in bytes.
    pub limit_bytes: u64,
}

/// An entry in the list of disks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedDisk {
    /// State of the disk.
    #[serde(flatten)]
    pub status: DiskStatus,
    /// Its edit lock was taken over or released: what was written to it can become a new image, or be discarded, but
    /// never the image's next version.
    pub lost: bool,
}
