//! A version that was published, and what publishing it did for others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Version;

/// What publishing a version did for others.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Repairs {
    /// Versions that were damaged and are whole again, because what they lacked was stored anew.
    pub repaired: Vec<String>,
    /// Versions for which the same is true of a part of what they lack.
    pub still_damaged: Vec<String>,
    /// Frames of before that were read and verified because the new version relies on them.
    pub known_frames_read: u64,
}

impl Repairs {
    /// What they are worth a note, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let whole = (!self.repaired.is_empty()).then(|| format!("repaired: {}", self.repaired.join(", ")));
        let damaged = (!self.still_damaged.is_empty()).then(|| {
            format!("still damaged, for they need other blocks too: {}", self.still_damaged.join(", "))
        });
        whole.into_iter().chain(damaged)
    }
}

/// A version that was published.
#[derive(Clone, Debug)]
pub struct PublishedVersion {
    /// The version.
    pub version: Version,
    /// What publishing it did for other versions.
    pub repairs: Repairs,
}
