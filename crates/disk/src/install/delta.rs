//! Delta: what of a disk need not be fetched, because this machine already has it.
//!
//! ```text
//! claims of the recipe ─▶ read and hash the target ─▶ held ranges: neither fetched nor written
//!                                                  └▶ lacking blocks ─▶ survey and cut the old contents of the target, and
//!                                                                       other disks: blocks found at any offset
//! ```
//!
//! All of this happens before the first write, and only what has the hash of its block counts. A block that was
//! found elsewhere on the target is read again, and hashed again, when it is written. This is safe in any order
//! and with cycles, because such a block is used in place only if the install never writes to that place. Bytes
//! of other blocks are kept in memory, up to [`MEMORY_MAX`]; beyond that, blocks are fetched.
//!
//! The edges of a target are emptied first ([`super::EdgesLast`]), so nothing in them counts as held. Their blocks are kept
//! in memory.

use std::collections::HashSet;

use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, DiskRead, Extent, Extents, Result};

use super::FreeSpace;
use super::claims::Claims;
use super::edges_last::edges;
use super::held::{self, matches_on};
use super::local::LocalBlocks;

/// The most bytes of blocks that are kept in memory.
pub(super) const MEMORY_MAX: usize = 128 << 20;
/// The most lacking blocks that are searched for elsewhere, because each takes memory. They have up to 64 KiB each.
pub(super) const LACKING_MAX: usize = 1 << 21;
/// Places at which a target is compared with a recipe to decide whether it has a similar disk.
const SAMPLES: u64 = 64;
/// One of so many of these must match.
const SAMPLES_PER_MATCH: usize = 8;
/// How far behind a sampled position a block is searched for.
const SAMPLE_SPAN: u64 = 4 << 20;

/// The part of a disk, or of a range of it, that a machine already has.
#[derive(Debug, Default)]
pub struct Delta {
    /// Verified ranges of the target.
    pub(super) held: Extents,
    /// Of these, bytes of data and of zeros.
    pub(super) held_data: u64,
    pub(super) held_zero: u64,
    /// The other ranges, which are written.
    pub(super) stale: Extents,
    /// The blocks of these that were not found anywhere yet.
    pub(super) lacking: HashSet<BlockId>,
    /// Whether there are more of them than `lacking` can hold.
    pub(super) lacks_more: bool,
    pub(super) blocks: LocalBlocks,
}

impl Delta {
    /// Compares `range` of the recipe's disk with a target that nothing was written to. `is_to_be_emptied` says
    /// whether the target's edges will be emptied before it is written. `progress` is called with the number of bytes
    /// compared since its last call.
    ///
    /// A range that cannot be read counts as not held.
    ///
    /// # Errors
    /// Those of reading the recipe.
    pub fn of_target<P: PageSource + Sync>(
        recipe: &Recipe<P>,
        range: Extent,
        free: FreeSpace,
        target: &dyn DiskRead,
        is_to_be_emptied: bool,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Self> {
        let emptied: Extents = match is_to_be_emptied {
            true => edges(target.length()).into_iter().collect(),
            false => Extents::new(),
        };
        let mut delta = held::compare(recipe, range, free, target, &emptied, progress)?;
        delta.find_copies(recipe, range, free)?;
        Ok(delta)
    }

    /// Searches the old contents of the target for lacking blocks, as its partition table and filesystems describe
    /// them. Contents that cannot be surveyed yield nothing.
    pub fn search_target<P: PageSource>(&mut self, recipe: &Recipe<P>, target: &dyn DiskRead) {
        let emptied: Extents = edges(target.length()).into_iter().collect();
        self.search(recipe.root().cut_policy, target, None, Some(&emptied));
    }

    /// Searches another disk, which is not changed meanwhile, for lacking blocks. `data` says where a sparse file has data: its
    /// holes are not read.
    pub fn search_other<P: PageSource>(
        &mut self,
        recipe: &Recipe<P>,
        disk: Box<dyn DiskRead>,
        data: Option<&Extents>,
    ) {
        self.search(recipe.root().cut_policy, &*disk, data, None);
        self.blocks.add_disk(disk);
    }

    /// Bytes of data and of zeros that are already in their places.
    pub fn held_bytes(&self) -> (u64, u64) {
        (self.held_data, self.held_zero)
    }

    /// Bytes that were copied from other places so far.
    pub fn copied_bytes(&self) -> u64 {
        self.blocks.copied()
    }

    /// The verified ranges.
    pub fn held(&self) -> &Extents {
        &self.held
    }

    /// Finds lacking blocks that are also elsewhere in the held ranges.
    fn find_copies<P: PageSource>(
        &mut self,
        recipe: &Recipe<P>,
        range: Extent,
        free: FreeSpace,
    ) -> Result<()> {
        let mut claims = Claims::new(recipe, range, free);
        while !self.lacking.is_empty() {
            let Some(batch) = claims.next_batch()? else { break };
            for claim in batch {
                let Some((block, place)) = claim.whole_block() else { continue };
                let is_held = self.held.clip(place).map(|part| part.length).sum::<u64>() == place.length;
                if is_held && self.lacking.remove(&block) {
                    self.blocks.add_place(block, None, place);
                }
            }
        }
        Ok(())
    }
}

/// Whether a target seems to hold much of a disk already, from a few samples: one in eight of them must have the
/// right hash. Chance or intent can only waste one reading of the target.
///
/// # Errors
/// Those of reading the recipe.
pub fn is_alike<P: PageSource>(recipe: &Recipe<P>, range: Extent, target: &dyn DiskRead) -> Result<bool> {
    let (mut compared, mut matched) = (0, 0);
    for sample in 0..SAMPLES {
        let start = range.offset + range.length / SAMPLES * sample;
        let span = Extent::new(start, SAMPLE_SPAN).intersect(&range);
        let Some(span) = span else { continue };
        let mut claims = Claims::new(recipe, span, FreeSpace::Skip);
        let Some(batch) = claims.next_batch()? else { continue };
        if let Some(claim) = batch.into_iter().find(|claim| claim.whole_block().is_some()) {
            compared += 1;
            matched += usize::from(matches_on(target, recipe.root().domain, &claim));
        }
    }
    Ok(compared > 0 && matched * SAMPLES_PER_MATCH >= compared)
}
