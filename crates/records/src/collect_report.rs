//! What a garbage collection did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of packs, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackCount {
    /// Number of packs.
    pub packs: usize,
    /// Total length of their files.
    pub bytes: u64,
}

impl PackCount {
    /// Adds a pack of that length.
    pub fn add(&mut self, bytes: u64) {
        self.packs += 1;
        self.bytes += bytes;
    }
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectReport {
    /// The packs before the run, without dead ones.
    pub before: PackCount,
    /// Bytes of frames that something needs.
    pub live_bytes: u64,
    /// The packs that the run gave up, or would give up.
    pub given_up: PackCount,
    /// Bytes that the run gives up in whole packs or by compaction, as estimated at its start.
    #[serde(default)]
    pub unneeded_bytes: u64,
    /// The packs that compaction emptied, or would empty; part of `given_up` once they were given up.
    pub compacted: PackCount,
    /// Wasteful packs that were kept because the disk has no space for copies of what is needed of them.
    #[serde(default)]
    pub waiting: PackCount,
    /// Bytes that compaction copied.
    pub copied_bytes: u64,
    /// The packs whose files were deleted.
    pub deleted: PackCount,
    /// The dead packs whose files are kept for now.
    pub trash: PackCount,
    /// The disks that no version has any more, but that stay for clients of the origin that read them lately.
    #[serde(default)]
    pub leased: usize,
    /// Nothing was given up: the run would give up so much that it has to be confirmed.
    pub needs_confirmation: bool,
    /// The files that could not be deleted, one message each. The next run tries again.
    pub failed: Vec<String>,
}
