//! Claims: what a recipe says about a few neighbouring ranges of the disk, so that it can be checked there by one hash.
//!
//! A block is checked as a whole, but its pieces may be apart: a cell of the grid leaves out the free space and the
//! files inside it, which count as zeros in the block. Only pieces at their own distances from the start of the
//! block belong to one claim.

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::page::{Entry, State};
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Extent, Result};

use super::FreeSpace;
use super::described::described;
use super::pieces::GAP_READ;

/// Approximate bytes of claims that are checked together.
const BATCH_LENGTH: u64 = 2 << 20;
/// Long runs of zeros are divided at multiples of this many bytes.
const ZEROS_LENGTH: u64 = 1 << 20;

/// A block, or zeros, and the ranges of the disk that must hold it.
#[derive(Debug)]
pub(super) struct Claim {
    /// The block; `None` for zeros.
    pub(super) block: Option<BlockId>,
    /// Where the block begins on the disk; `None` if it would begin before the disk.
    pub(super) origin: Option<u64>,
    /// Ascending.
    pub(super) pieces: Vec<Extent>,
}

impl Claim {
    /// The block and its place, if all of it is in one piece.
    pub(super) fn whole_block(&self) -> Option<(BlockId, Extent)> {
        match (self.block, &self.pieces[..]) {
            (Some(block), [piece]) if self.origin == Some(piece.offset) => Some((block, *piece)),
            _ => None,
        }
    }

    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, Extent::end)
    }
}

/// The claims of a range of a recipe, in batches.
pub(super) struct Claims<I> {
    entries: I,
    /// The rest of a long entry.
    rest: Option<Entry>,
    /// Claims that a following entry may continue.
    open: Vec<Claim>,
}

impl Claims<()> {
    pub(super) fn new<P: PageSource>(
        recipe: &Recipe<P>,
        range: Extent,
        free: FreeSpace,
    ) -> Claims<impl Iterator<Item = Result<Entry>>> {
        Claims { entries: described(recipe, range, free, None), rest: None, open: Vec::new() }
    }
}

impl<I: Iterator<Item = Result<Entry>>> Claims<I> {
    /// The next few claims; `None` after the last.
    ///
    /// # Errors
    /// Those of reading the recipe.
    pub(super) fn next_batch(&mut self) -> Result<Option<Vec<Claim>>> {
        let (mut batch, mut length, mut position) = (Vec::new(), 0, 0);
        while length < BATCH_LENGTH {
            let Some(entry) = self.next_entry()? else {
                batch.append(&mut self.open);
                break;
            };
            batch.extend(self.open.extract_if(.., |claim| {
                claim
                    .origin
                    .is_none_or(|origin| origin.saturating_add(BLOCK_LENGTH_MAX) <= entry.extent.offset)
            }));
            length += entry.extent.length + entry.extent.offset.saturating_sub(position).min(GAP_READ);
            position = entry.extent.end();
            match entry.state {
                State::Zero | State::Free => {
                    let origin = Some(entry.extent.offset);
                    batch.push(Claim { block: None, origin, pieces: vec![entry.extent] });
                }
                State::Data { block, offset } => self.add(block, offset, entry.extent),
            }
        }
        Ok((!batch.is_empty() || !self.open.is_empty()).then_some(batch))
    }

    fn next_entry(&mut self) -> Result<Option<Entry>> {
        let entry = match self.rest.take() {
            Some(rest) => rest,
            None => match self.entries.next().transpose()? {
                Some(entry) => entry,
                None => return Ok(None),
            },
        };
        if matches!(entry.state, State::Data { .. }) {
            return Ok(Some(entry));
        }
        let end = (entry.extent.offset / ZEROS_LENGTH + 1).saturating_mul(ZEROS_LENGTH);
        self.rest = entry.clip(Extent::between(end, u64::MAX));
        Ok(entry.clip(Extent::between(0, end)))
    }

    fn add(&mut self, block: BlockId, offset: u32, extent: Extent) {
        let origin = extent.offset.checked_sub(u64::from(offset));
        let known = self.open.iter_mut().find(|claim| claim.block == Some(block) && claim.origin == origin);
        match known.filter(|_| origin.is_some()) {
            Some(claim) if claim.end() == extent.offset => {
                claim.pieces.last_mut().into_iter().for_each(|last| last.length += extent.length);
            }
            Some(claim) => claim.pieces.push(extent),
            None => self.open.push(Claim { block: Some(block), origin, pieces: vec![extent] }),
        }
    }
}
