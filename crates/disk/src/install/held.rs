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
use crate::capture::is_zero;

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
    let found = Mutex::new(Found::default());
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
            }
            drop(found);
            progress(batch.iter().flat_map(|claim| &claim.pieces).map(|piece| piece.length).sum());
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(Error::bug("a thread of the comparison panicked"));
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(panicked))
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

/// What was found so far, in any order.
#[derive(Default)]
struct Found {
    held: Vec<Extent>,
    stale: Vec<Extent>,
    delta: Delta,
}

impl Found {
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
        let Self { held, stale, mut delta } = self;
        delta.held = Extents::from_unsorted(held);
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

    /// The loaded bytes of a claim that is in one piece.
    fn contents(&self, claim: &Claim) -> Option<&[u8]> {
        match claim.pieces[..] {
            [piece] if claim.origin == Some(piece.offset) => self.pieces.bytes(piece),
            _ => None,
        }
    }
}
