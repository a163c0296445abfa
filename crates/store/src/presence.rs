//! Whether a store has every block of a version, asked before a target is touched.

use std::collections::HashSet;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Extent, FrameIndex, Result};
use platter_records::MissingBlocks;

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
