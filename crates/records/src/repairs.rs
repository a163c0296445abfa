//! The result of publishing: the new version, and damaged versions that its blocks repaired.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Version;

/// Effects of publishing a version on damaged versions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Repairs {
    /// Damaged versions that are now complete, because their missing blocks were stored again.
    pub repaired: Vec<String>,
    /// Damaged versions of which some, but not all missing blocks were stored again.
    pub still_damaged: Vec<String>,
    /// Number of older frames that were read and verified because the new version needs them.
    pub known_frames_read: u64,
}

impl Repairs {
    /// Returns notes for the user.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let whole = (!self.repaired.is_empty()).then(|| format!("repaired: {}", self.repaired.join(", ")));
        let damaged = (!self.still_damaged.is_empty()).then(|| {
            format!("still damaged, for they need other blocks too: {}", self.still_damaged.join(", "))
        });
        whole.into_iter().chain(damaged)
    }
}

/// A newly published version.
#[derive(Clone, Debug)]
pub struct PublishedVersion {
    /// The version.
    pub version: Version,
    /// Other versions that its blocks repaired.
    pub repairs: Repairs,
}
