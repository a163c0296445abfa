//! Blocks of a disk that its store cannot read.

use platter_image::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Blocks of a disk that its store cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlocks {
    /// Number of blocks that are in no pack.
    pub missing: u64,
    /// Number of blocks that are known to be damaged in their pack.
    pub damaged: u64,
    /// Number of all blocks of the disk.
    pub blocks: u64,
    /// Id of the first of these blocks.
    pub first: String,
    /// Its byte offset on the disk.
    pub disk_offset: u64,
}

impl MissingBlocks {
    /// Returns the error for operations that need the whole disk.
    pub fn refuse(&self) -> Error {
        Error::corrupt(format!(
            "of the {} blocks of this disk {} are in no pack and {} are damaged, the first is {} for byte {} of the \
             disk; nothing was written; run `platter check`",
            self.blocks, self.missing, self.damaged, self.first, self.disk_offset
        ))
    }
}
