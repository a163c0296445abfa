//! Live disks of a machine, and what caches do for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A disk that a process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiskStatus {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Who edits it, and the number of the edit lock.
    pub holder: Option<String>,
    /// See `holder`.
    pub edit_lock: Option<u64>,
    /// Bytes written above the base; `None` when no process serves the disk and it could not be opened.
    pub written_bytes: Option<u64>,
    /// Where it is served.
    pub exports: Vec<String>,
    /// The process that serves it; `None` for one that was written and waits.
    pub process: Option<u32>,
    /// What the memory cache of that process did, for all of its disks together.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
    /// How far its filling is, if all of it is to be held.
    #[serde(default)]
    pub fill: Option<FillStatus>,
    /// What the cache that the origin is read through did, for all disks of that process together.
    #[serde(default)]
    pub node: Option<NodeCounters>,
}

/// What a memory cache did since its process began.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Blocks that were in memory when a read asked for them.
    pub hits: u64,
    /// Blocks that were not.
    pub misses: u64,
    /// Bytes that blocks take now.
    pub bytes_held: u64,
}

/// How far a fill is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FillStatus {
    /// Blocks and pages of the disk; 0 until its recipe was read.
    pub blocks: u64,
    /// Those of them that are held.
    pub held: u64,
    /// All of them are, and durable: the disk needs nobody.
    pub filled: bool,
    /// Why it does not go on for now.
    pub trouble: Option<String>,
}

/// What the cache of a node did since its process began, for all disks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCounters {
    /// Blocks and pages that were asked for and held.
    pub hits: u64,
    /// Blocks and pages that were not held.
    pub misses: u64,
    /// Frames that came from the origin or from peers, and their bytes.
    pub fetched_frames: u64,
    /// See `fetched_frames`.
    pub fetched_bytes: u64,
    /// Frames that went to make room.
    pub evicted: u64,
    /// Frames that were found damaged, and had again.
    pub damaged: u64,
    /// Frames that the cache did not take: all is pinned, or writing failed.
    pub refused: u64,
    /// Blocks and pages held.
    pub blocks: u64,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of it that are pinned.
    pub pinned_bytes: u64,
    /// Its limit.
    pub limit_bytes: u64,
}

/// A disk as it is listed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedDisk {
    /// What is known of it.
    #[serde(flatten)]
    pub status: DiskStatus,
    /// Its edit lock was taken over or released: what was written to it can become a new image, or be discarded, but
    /// never the image's next version.
    pub lost: bool,
}
