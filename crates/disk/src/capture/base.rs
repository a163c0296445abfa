//! The base of a capture: the version from which a disk started, and the ranges that were written since.
//!
//! It decides which parts of a cut are copied from the version unread, and which are cut anew
//! (design: overlays). It must never copy an entry over a byte that was written.

use platter_image::chunking::{Batch, Cut};
use platter_image::page::{Entry, State};
use platter_image::{Extent, Extents, Result};

/// Returns the base's data and zero entries inside an extent, ascending and clipped to it.
pub type EntriesOf<'a> = dyn Fn(Extent) -> Result<Vec<Entry>> + Sync + 'a;

/// A version, and what was written above it.
pub struct Base<'a> {
    /// The contents of the version; gaps read as zeros.
    pub entries: &'a EntriesOf<'a>,
    /// The ranges that were written since.
    pub changed: &'a Extents,
}

impl Base<'_> {
    /// Removes from the batch what was not written, and returns the base's entries for it.
    ///
    /// A cut of which at least half was written stays whole, so that a rewritten file has the same blocks as
    /// on any disk. Of other cuts, only the written parts become blocks: the parts beside them keep referring
    /// to old blocks, and free space around them is not stored.
    pub(super) fn take_unchanged(&self, batch: &mut Batch) -> Result<Vec<Entry>> {
        let span = batch.span();
        let changed: Extents = self.changed.clip(span).collect();
        let below = (self.entries)(span)?;
        let old = std::mem::take(batch);
        let mut kept = Vec::new();
        batch.zeroed.clone_from(&old.zeroed);
        for cut in &old.cuts {
            let pieces: Extents = old.pieces_of(cut).iter().copied().collect();
            let written: Extents =
                changed.clip(cut.extent).flat_map(|run| pieces.clip(run).collect::<Vec<_>>()).collect();
            if written.total() * 2 >= cut.extent.length {
                add_cut(batch, cut.extent, pieces.as_slice());
                continue;
            }
            for run in &written {
                add_cut(batch, *run, &[*run]);
            }
            for piece in &pieces.subtract(&written) {
                keep(&below, *piece, &mut kept);
            }
        }
        Ok(kept)
    }
}

fn add_cut(batch: &mut Batch, extent: Extent, pieces: &[Extent]) {
    let first = batch.pieces.len() as u32;
    batch.pieces.extend_from_slice(pieces);
    batch.cuts.push(Cut { extent, pieces: (first, batch.pieces.len() as u32) });
}

/// Copies the entries of `below` inside `piece` to `kept`, with zeros in the gaps.
fn keep(below: &[Entry], piece: Extent, kept: &mut Vec<Entry>) {
    let mut position = piece.offset;
    let first = below.partition_point(|entry| entry.extent.end() <= piece.offset);
    for entry in below[first..].iter().map_while(|entry| entry.clip(piece)) {
        kept.extend(zeros(position, entry.extent.offset));
        kept.push(entry);
        position = entry.extent.end();
    }
    kept.extend(zeros(position, piece.end()));
}

fn zeros(start: u64, end: u64) -> Option<Entry> {
    (start < end).then(|| Entry { extent: Extent::between(start, end), state: State::Zero })
}
