//! A disk that a process serves, as it is told to others.

use platter_vdisk::CacheCounters;
use serde::{Deserialize, Serialize};

use crate::node::{FillStatus, NodeCounters};

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

/// A disk that a process serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskStatus {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Who edits it, and the number of the edit token.
    pub holder: Option<String>,
    /// See `holder`.
    pub token: Option<u64>,
    /// Bytes written above the base; `None` when no process serves it.
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Blocks that were in memory when a read asked for them.
    pub hits: u64,
    /// Blocks that were not.
    pub misses: u64,
    /// Bytes that blocks take now.
    pub bytes_held: u64,
}

impl From<CacheCounters> for CacheStatus {
    fn from(counters: CacheCounters) -> Self {
        Self { hits: counters.hits, misses: counters.misses, bytes_held: counters.bytes_held }
    }
}
