//! What is told of a version that was published of a live disk.

use platter_records::Consistency;
use serde::{Deserialize, Serialize};

/// A published version of a live disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishReport {
    /// `lab/debian12@4`.
    pub version: String,
    /// Its score.
    pub score: String,
    /// The score it was written above.
    pub base: String,
    /// `clean`: every filesystem was unmounted. `crash`: as after a power cut.
    pub consistency: Consistency,
    /// Bytes written since the version before.
    pub written_bytes: u64,
    /// Blocks that the store did not have, and their bytes.
    pub new_blocks: u64,
    /// See `new_blocks`.
    pub new_raw_bytes: u64,
    /// Bytes that the store grew by for blocks and recipe.
    pub new_stored_bytes: u64,
    /// Whether the disk goes on, above the new version.
    pub attached: bool,
    /// Wall time.
    pub seconds: f64,
    /// What was odd, in sentences.
    pub notes: Vec<String>,
}
