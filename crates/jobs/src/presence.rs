//! Whether a store has every block of a version, asked before a target is touched.

use std::collections::HashSet;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, FrameIndex, Result};
use serde::{Deserialize, Serialize};

/// Blocks of a disk that its store cannot give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub(crate) fn refuse(&self) -> Error {
        Error::corrupt(format!(
            "of the {} blocks of this disk {} are in no pack and {} are damaged, the first is {} for byte {} of the \
             disk; nothing was written; run `platter check`",
            self.blocks, self.missing, self.damaged, self.first, self.disk_offset
        ))
    }
}

/// Walks the recipe and looks every block up; `damaged` are those that are known to be. Blocks are not read: damage that
/// nobody has met yet is found when they are.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the page; what the index says.
pub fn missing_blocks<P: PageSource>(
    recipe: &Recipe<P>,
    source: &(impl FrameIndex + ?Sized),
    damaged: Vec<BlockId>,
) -> Result<Option<MissingBlocks>> {
    let damaged: HashSet<BlockId> = damaged.into_iter().collect();
    let mut asked = HashSet::new();
    let (mut missing, mut bad, mut first) = (0, 0, None);
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let entry = entry?;
        let State::Data { block, .. } = entry.state else { continue };
        if !asked.insert(block) {
            continue;
        }
        let (is_missing, is_bad) = (source.locate(&block)?.is_none(), damaged.contains(&block));
        missing += u64::from(is_missing);
        bad += u64::from(is_bad && !is_missing);
        if is_missing || is_bad {
            first = first.or(Some((block, entry.extent.offset)));
        }
    }
    Ok(first.map(|(block, disk_offset)| MissingBlocks {
        missing,
        damaged: bad,
        blocks: asked.len() as u64,
        first: block.to_string(),
        disk_offset,
    }))
}
