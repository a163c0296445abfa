//! Reads batches from the disk, in disk order, into buffers that are used again and again.

use crossbeam_channel::{Receiver, Sender};
use platter_image::chunking::{BATCH_SPAN_MAX, Batch, Cutter, FILE_ALIGNMENT, GRID, Region};
use platter_image::page::Entry;
use platter_image::{DiskRead, Extent, IoContext, Result};

use super::base::Base;

/// Gaps up to this are read through rather than jumped over, in bytes.
const GAP_READ_THROUGH: u64 = 64 << 10;

/// A batch with what the disk holds of it.
pub(super) struct Loaded {
    /// Position of the batch among all, from 0.
    pub(super) number: u64,
    pub(super) batch: Batch,
    /// What the buffer covers of the disk; where no piece lies, its contents mean nothing.
    pub(super) span: Extent,
    pub(super) buffer: Vec<u8>,
    /// What stands in the parts of the batch's cuts that were taken out of it.
    pub(super) kept: Vec<Entry>,
}

/// Reads all batches of all regions; buffers come back by `used`.
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
                // Anew, and not longer: zeros from the system cost nothing, and the old contents mean nothing.
                buffer = vec![0; needed.next_power_of_two().min(longest).max(needed)];
            }
            for run in runs(&batch) {
                let at = (run.offset - span.offset) as usize;
                disk.read_exact_at(&mut buffer[at..at + run.length as usize], run.offset)
                    .context(|| format!("reading {} bytes at {} of the disk", run.length, run.offset))?;
            }
            if loaded.send(Loaded { number, batch, span, buffer, kept }).is_err() {
                // Whoever stopped taking has the reason.
                return Ok(());
            }
            number += 1;
        }
    }
    Ok(())
}

/// The pieces of a batch in as few reads as makes sense.
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
