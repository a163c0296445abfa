//! Reads batches from the disk in disk order, into buffers that are reused.

use crossbeam_channel::{Receiver, Sender};
use platter_image::chunking::{BATCH_SPAN_MAX, Batch, Cutter, FILE_ALIGNMENT, GRID, Region};
use platter_image::page::Entry;
use platter_image::{DiskRead, Extent, IoContext, Result};

use super::base::Base;

/// Gaps of at most this many bytes are read instead of skipped.
const GAP_READ_THROUGH: u64 = 64 << 10;

/// A batch with the bytes that were read for it.
pub(super) struct Loaded {
    /// The batch's position among all batches, from 0.
    pub(super) number: u64,
    pub(super) batch: Batch,
    /// The range of the disk in the buffer; bytes outside of pieces are unspecified.
    pub(super) span: Extent,
    pub(super) buffer: Vec<u8>,
    /// Entries copied from the base for the unchanged parts of the batch, which were removed from it.
    pub(super) kept: Vec<Entry>,
}

/// Reads all batches of all regions; used buffers come back through `used`.
pub(super) fn read_batches(
    disk: &dyn DiskRead,
    regions: &[Region],
    base: Option<&Base<'_>>,
    file_alignment: u64,
    loaded: &Sender<Loaded>,
    used: &Receiver<Vec<u8>>,
) -> Result<()> {
    let mut number = 0;
    for region in regions {
        for mut batch in Cutter::new(region, file_alignment) {
            let kept = base.map_or_else(|| Ok(Vec::new()), |base| base.take_unchanged(&mut batch))?;
            let span = batch.span();
            let mut buffer = used.try_recv().unwrap_or_default();
            let longest = (BATCH_SPAN_MAX + GRID + FILE_ALIGNMENT) as usize;
            let needed = span.length as usize;
            if buffer.len() < needed {
                // Allocate a new buffer instead of growing the old one: zeroed memory is cheap, and the old
                // contents are not needed.
                buffer = vec![0; needed.next_power_of_two().min(longest).max(needed)];
            }
            for run in runs(&batch) {
                let at = (run.offset - span.offset) as usize;
                disk.read_exact_at(&mut buffer[at..at + run.length as usize], run.offset).context(|| {
                    format!("reading {} bytes at offset {} of the disk", run.length, run.offset)
                })?;
            }
            if loaded.send(Loaded { number, batch, span, buffer, kept }).is_err() {
                // The stage that stopped has the error.
                return Ok(());
            }
            number += 1;
        }
    }
    Ok(())
}

/// The pieces of a batch, joined into a few reads.
fn runs(batch: &Batch) -> Vec<Extent> {
    let mut pieces = batch.pieces.clone();
    pieces.sort_unstable();
    let mut runs: Vec<Extent> = Vec::new();
    for piece in pieces {
        match runs.last_mut() {
            Some(run) if piece.offset <= run.end() + GAP_READ_THROUGH => {
                *run = Extent::between(run.offset, run.end().max(piece.end()));
            }
            _ => runs.push(piece),
        }
    }
    runs
}
