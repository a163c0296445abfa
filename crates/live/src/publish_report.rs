//! The report of a published version of a live disk.

use platter_records::Consistency;
use serde::{Deserialize, Serialize};

/// A published version of a live disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishReport {
    /// `lab/debian12@4`.
    pub version: String,
    /// Its score.
    pub score: String,
    /// The score of the version below the changes.
    pub base: String,
    /// `clean`: every filesystem was unmounted. `crash`: as after a power cut.
    pub consistency: Consistency,
    /// Bytes written since the previous version.
    pub written_bytes: u64,
    /// Number of blocks that the store lacked, and their bytes.
    pub new_blocks: u64,
    /// See `new_blocks`.
    pub new_raw_bytes: u64,
    /// Growth of the store in bytes, for blocks and recipe.
    pub new_stored_bytes: u64,
    /// Whether the disk stays attached, above the new version.
    pub attached: bool,
    /// Duration in seconds.
    pub seconds: f64,
    /// Notices, in sentences.
    pub notes: Vec<String>,
}
