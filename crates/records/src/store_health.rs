//! What reads of a store's packs have shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PackCount;

/// What reads of a store's packs have shown. Times are in milliseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreHealth {
    /// The packs, without collected ones.
    pub packs: PackCount,
    /// Collected packs whose files are kept for now.
    pub trash: PackCount,
    /// The packs that no check and no scrub has read back.
    pub never_read_back: PackCount,
    /// Among the packs that were read back, the oldest of these times; null if there is none.
    pub oldest_read_back_unix_ms: Option<i64>,
    /// Every pack was read back at this time or later; null if a pack was never read back, or there is none.
    pub all_read_since_unix_ms: Option<i64>,
    /// Number of quarantined frames.
    pub quarantined_frames: u64,
    /// Number of blocks that only quarantined frames have.
    pub quarantined_blocks: u64,
}
