//! Plans: which frames a job needs and where their blocks go. Plans are derived from a recipe and an index;
//! they are never authoritative and never stored.

use crate::page::{Entry, State};
use crate::recipe::{PageSource, Recipe};
use crate::{BlockId, BlockPlace, Extent, FrameIndex, Result, locate};

/// Locates the pages needed to read `range` of a disk, each once, in the fastest reading order.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the page.
pub fn pages<P: PageSource>(
    recipe: &Recipe<P>,
    range: Extent,
    source: &(impl FrameIndex + ?Sized),
) -> Result<Vec<BlockPlace>> {
    let mut places = Vec::new();
    recipe.visit_pages(range, &mut |id| {
        places.push(locate(source, id)?);
        Ok(())
    })?;
    Ok(ordered(places))
}

/// Locates the blocks of `range` of a disk, each once, in the fastest reading order.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the page or block.
pub fn blocks<P: PageSource>(
    recipe: &Recipe<P>,
    range: Extent,
    source: &(impl FrameIndex + ?Sized),
) -> Result<Vec<BlockPlace>> {
    let mut places = Vec::new();
    for entry in recipe.entries(range) {
        if let State::Data { block, .. } = entry?.state {
            let place = locate(source, &block)?;
            // Pieces of one block often follow each other.
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    Ok(ordered(places))
}

fn ordered(mut places: Vec<BlockPlace>) -> Vec<BlockPlace> {
    places.sort_unstable();
    places.dedup();
    places
}

/// For each block of a disk, all places where its bytes go. A receiver derives them from a verified recipe
/// and writes nowhere else.
#[derive(Debug, Default)]
pub struct Places {
    /// Sorted by block, then by offset in the block.
    entries: Vec<(BlockId, u32, Extent)>,
    zero: Vec<Extent>,
}

impl Places {
    /// The places inside `range`.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming the page.
    pub fn of<P: PageSource>(recipe: &Recipe<P>, range: Extent) -> Result<Self> {
        let mut places = Self::default();
        for entry in recipe.entries(range) {
            let Entry { extent, state } = entry?;
            match state {
                State::Data { block, offset } => places.entries.push((block, offset, extent)),
                State::Zero => places.zero.push(extent),
                State::Free => {}
            }
        }
        places.entries.sort_unstable();
        Ok(places)
    }

    /// Where bytes of that block go: offset in the block, extent on the disk.
    pub fn of_block(&self, id: &BlockId) -> impl Iterator<Item = (u32, Extent)> + '_ {
        let range = self.range_of(id);
        self.entries[range].iter().map(|(_, offset, extent)| (*offset, *extent))
    }

    /// The positions of the block's places among all places.
    pub fn range_of(&self, id: &BlockId) -> std::ops::Range<usize> {
        let start = self.entries.partition_point(|entry| entry.0 < *id);
        let length = self.entries[start..].iter().take_while(|entry| entry.0 == *id).count();
        start..start + length
    }

    /// Number of places of blocks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no places of blocks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The extents that must read as zeros.
    pub fn zero(&self) -> &[Extent] {
        &self.zero
    }

    /// The block and extent at that position, for reporting what was not written.
    pub fn block_at(&self, position: usize) -> (BlockId, Extent) {
        let (id, _, extent) = self.entries[position];
        (id, extent)
    }
}
