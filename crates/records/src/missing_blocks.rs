//! Blocks of a disk that its store cannot give.

use platter_image::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Blocks of a disk that its store cannot give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlocks {
    /// How many are in no pack.
    pub missing: u64,
    /// How many are in a pack and known to be damaged there.
    pub damaged: u64,
    /// How many the disk has in all.
    pub blocks: u64,
    /// The first of them.
    pub first: String,
    /// Where the disk needs it, in bytes.
    pub disk_offset: u64,
}

impl MissingBlocks {
    /// What that means for whoever wanted to write the disk.
    pub fn refuse(&self) -> Error {
        Error::corrupt(format!(
            "of the {} blocks of this disk {} are in no pack and {} are damaged, the first is {} for byte {} of the \
             disk; nothing was written; run `platter check`",
            self.blocks, self.missing, self.damaged, self.first, self.disk_offset
        ))
    }
}
