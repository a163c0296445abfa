//! Reads a target along a recipe, in disk order, and finds what it already holds.
//!
//! Threads take one batch of claims after another and read and hash it, so memory does not depend on the disk.

use parking_lot::Mutex;
use std::thread;

use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, DiskRead, Domain, Error, Extent, Extents, Kind, Result};

use super::FreeSpace;
use super::claims::{Claim, Claims};
use super::delta::{Delta, LACKING_MAX};
use super::pieces::Pieces;
use crate::capture::{is_zero, start};

/// The longest sectors of disks, and the pages of the system's cache.
const SECTOR_LENGTH_MAX: u64 = 4096;
/// Threads that read and hash: each waits for its own reads.
const THREADS: usize = 4;

/// Compares a range of the recipe's disk with a target. Ranges in `emptied` do not count as held.
pub(super) fn compare<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    range: Extent,
    free: FreeSpace,
    target: &dyn DiskRead,
    emptied: &Extents,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Delta> {
    let domain = recipe.root().domain;
    let claims = Mutex::new(Claims::new(recipe, range, free));
    let found = Mutex::new(HeldRanges::default());
    let work = || -> Result<()> {
        let mut reader = ClaimReader::new(target, domain);
        loop {
            // The lock ends before the batch is read.
            let batch = claims.lock().next_batch()?;
            let Some(batch) = batch else { return Ok(()) };
            reader.load(&batch)?;
            let judged: Vec<bool> = batch.iter().map(|claim| reader.is_right(claim)).collect();
            let mut found = found.lock();
            for (claim, is_right) in batch.iter().zip(judged) {
                found.add(claim, is_right, reader.contents(claim), emptied);
                found.unreadable.extend(reader.missing(claim));
            }
            drop(found);
            progress(batch.iter().flat_map(|claim| &claim.pieces).map(|piece| piece.length).sum());
        }
    };
    thread::scope(|scope| {
        // As many further threads as can be had.
        let workers: Vec<_> = (1..THREADS).map_while(|_| start(scope, work).ok()).collect();
        let own = work();
        let panicked = |_| Err(Error::bug("a thread of the comparison panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).fold(own, Result::and)
    })?;
    let mut delta = found.into_inner().into_delta();
    delta.blocks.domain = domain;
    Ok(delta)
}

/// Whether a disk holds what a claim says.
pub(super) fn matches_on(disk: &dyn DiskRead, domain: Domain, claim: &Claim) -> bool {
    let mut reader = ClaimReader::new(disk, domain);
    reader.load(std::slice::from_ref(claim)).is_ok() && reader.is_right(claim)
}

/// The ranges compared so far, in any order.
#[derive(Default)]
struct HeldRanges {
    held: Vec<Extent>,
    stale: Vec<Extent>,
    /// Ranges that could not be read.
    unreadable: Vec<Extent>,
    delta: Delta,
}

impl HeldRanges {
    /// Adds a claim, and its bytes if it is in one piece.
    fn add(&mut self, claim: &Claim, is_right: bool, bytes: Option<&[u8]>, emptied: &Extents) {
        let is_emptied = claim.pieces.iter().any(|piece| emptied.clip(*piece).next().is_some());
        match (claim.block, is_right) {
            (None, true) => {
                let zeros: Extents = claim.pieces.iter().copied().collect();
                let held = zeros.subtract(emptied);
                self.stale.extend(&zeros.subtract(&held));
                self.held.extend(&held);
                self.delta.held_zero += held.total();
            }
            (Some(_), true) if !is_emptied => {
                self.held.extend(&claim.pieces);
                self.delta.held_data += claim.pieces.iter().map(|piece| piece.length).sum::<u64>();
            }
            (block, is_right) => {
                self.stale.extend(&claim.pieces);
                let Some(block) = block else { return };
                if is_right && bytes.is_some_and(|bytes| self.delta.blocks.keep(block, bytes)) {
                    return;
                }
                if self.delta.lacking.len() < LACKING_MAX {
                    self.delta.lacking.insert(block);
                } else {
                    self.delta.lacks_more = true;
                }
            }
        }
    }

    fn into_delta(self) -> Delta {
        let Self { held, mut stale, unreadable, mut delta } = self;
        let held = Extents::from_unsorted(held);
        // Whole sectors of any size are written there, because writing a part of a sector reads the rest.
        let around = unreadable.into_iter().map(|extent| {
            let start = extent.offset / SECTOR_LENGTH_MAX * SECTOR_LENGTH_MAX;
            Extent::between(start, extent.end().next_multiple_of(SECTOR_LENGTH_MAX))
        });
        delta.held = held.subtract(&Extents::from_unsorted(around.collect()));
        let given_up = held.subtract(&delta.held);
        let of_data = given_up.total().min(delta.held_data);
        delta.held_data -= of_data;
        delta.held_zero = delta.held_zero.saturating_sub(given_up.total() - of_data);
        stale.extend(&given_up);
        delta.stale = Extents::from_unsorted(stale);
        let blocks = &delta.blocks;
        delta.lacking.retain(|block| !blocks.has(block));
        delta
    }
}

/// Checks claims on a disk.
struct ClaimReader<'a> {
    pieces: Pieces<'a>,
    /// The domain of the claimed ids.
    domain: Domain,
    /// A block whose pieces are apart.
    gathered: Vec<u8>,
}

impl<'a> ClaimReader<'a> {
    fn new(disk: &'a dyn DiskRead, domain: Domain) -> Self {
        Self { pieces: Pieces::of(disk), domain, gathered: Vec::new() }
    }

    fn is_named(&self, bytes: &[u8], block: BlockId) -> bool {
        self.domain.id_of(Kind::Data, bytes).is_ok_and(|id| id == block)
    }

    /// Reads all pieces of these claims.
    fn load(&mut self, claims: &[Claim]) -> Result<()> {
        self.pieces.load(claims.iter().flat_map(|claim| &claim.pieces).copied())
    }

    /// Whether the loaded bytes are what a claim says.
    fn is_right(&mut self, claim: &Claim) -> bool {
        if let Some(bytes) = self.contents(claim) {
            return match &claim.block {
                Some(block) => self.is_named(bytes, *block),
                None => is_zero(bytes),
            };
        }
        let (Some(origin), Some(last)) = (claim.origin, claim.pieces.last()) else { return false };
        let length = last.end() - origin;
        self.pieces.gather(origin, length, &claim.pieces, &mut self.gathered)
            && claim.block.is_some_and(|block| self.is_named(&self.gathered, block))
    }

    /// The pieces of a claim that could not be read.
    fn missing<'c>(&'c self, claim: &'c Claim) -> impl Iterator<Item = Extent> + 'c {
        claim.pieces.iter().copied().filter(|piece| self.pieces.bytes(*piece).is_none())
    }

    /// The loaded bytes of a claim that is in one piece.
    fn contents(&self, claim: &Claim) -> Option<&[u8]> {
        match claim.pieces[..] {
            [piece] if claim.origin == Some(piece.offset) => self.pieces.bytes(piece),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_sectors_around_unreadable_ones_are_written() {
        let found = HeldRanges {
            held: vec![Extent::new(0, 4608), Extent::new(5120, 100 * 512)],
            stale: vec![Extent::new(4608, 512)],
            unreadable: vec![Extent::new(4608, 512)],
            delta: Delta { held_data: 4608 + 100 * 512, ..Delta::default() },
        };
        let delta = found.into_delta();
        let held = [Extent::new(0, 4096), Extent::new(8192, 5120 + 100 * 512 - 8192)];
        assert_eq!(delta.held, held.into_iter().collect());
        assert_eq!(delta.stale, [Extent::new(4096, 4096)].into_iter().collect());
        assert_eq!(delta.held_bytes(), (delta.held.total(), 0));
    }
}
