//! The log of changes.

use platter_records::ChangeRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of changes in one reply.
pub const CHANGES_MAX: usize = 10_000;

/// Changes of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangesReply {
    /// The changes that the access token may see, ordered by number.
    pub changes: Vec<ChangeRecord>,
    /// Number of the last change that was considered. If it is less than `last`, ask again for the changes after it.
    pub up_to: u64,
    /// Number of the store's last change.
    pub last: u64,
    /// Whether the logs are undamaged where they were read. If not, changes may be missing.
    pub is_whole: bool,
}
