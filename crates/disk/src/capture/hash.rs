//! Turns the cuts of a batch into blocks: trims trailing zeros and computes ids.

use crossbeam_channel::{Receiver, Sender};
use platter_image::chunking::{BLOCK_LENGTH_MAX, Cut};
use platter_image::{BlockId, Domain, FrameStore, Kind, Pin, Result, SECTOR};

use super::look_up::look_up;
use super::read::Loaded;

/// A batch whose blocks all have ids.
pub(super) struct Hashed {
    pub(super) loaded: Loaded,
    /// One for each cut of the batch, in its order.
    pub(super) blocks: Vec<Block>,
    /// Contents of blocks that are not contiguous in the batch's buffer.
    pub(super) gathered: Vec<u8>,
}

/// The result for one cut.
pub(super) enum Block {
    /// All zeros.
    Zero,
    /// A block.
    Named {
        id: BlockId,
        /// Where its contents are.
        place: BlockBytes,
        /// Set by the lookup if the store has it.
        known: Option<Pin>,
    },
}

/// Where a block's contents are: offset and length in bytes.
#[derive(Clone, Copy)]
pub(super) enum BlockBytes {
    InBuffer(usize, usize),
    Gathered(usize, usize),
}

impl Hashed {
    /// The contents of a block.
    pub(super) fn contents(&self, place: BlockBytes) -> &[u8] {
        match place {
            BlockBytes::InBuffer(at, length) => &self.loaded.buffer[at..at + length],
            BlockBytes::Gathered(at, length) => &self.gathered[at..at + length],
        }
    }
}

/// Hashes batches until there are no more, or no one takes the results. Queries a near store as well.
pub(super) fn hash_batches<S: FrameStore>(
    near: Option<&S>,
    domain: Domain,
    loaded: &Receiver<Loaded>,
    hashed: &Sender<Hashed>,
) -> Result<()> {
    for loaded in loaded {
        let mut hashed_batch =
            Hashed { blocks: Vec::with_capacity(loaded.batch.cuts.len()), gathered: Vec::new(), loaded };
        for at in 0..hashed_batch.loaded.batch.cuts.len() {
            let cut = hashed_batch.loaded.batch.cuts[at];
            let place = trim(&mut hashed_batch, &cut);
            let contents = hashed_batch.contents(place);
            let block = if contents.is_empty() {
                Block::Zero
            } else {
                Block::Named { id: domain.id_of(Kind::Data, contents)?, place, known: None }
            };
            hashed_batch.blocks.push(block);
        }
        if let Some(store) = near {
            look_up(store, std::slice::from_mut(&mut hashed_batch))?;
        }
        if hashed.send(hashed_batch).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Finds the contents of a cut without trailing zero sectors; copies them together if they have gaps.
fn trim(hashed: &mut Hashed, cut: &Cut) -> BlockBytes {
    let Hashed { loaded, gathered, .. } = hashed;
    let pieces = loaded.batch.pieces_of(cut);
    let in_buffer = |offset: u64| (offset - loaded.span.offset) as usize;
    match pieces {
        [only] if only.offset == cut.extent.offset => {
            let at = in_buffer(only.offset);
            BlockBytes::InBuffer(at, trimmed_length(&loaded.buffer[at..at + only.length as usize]))
        }
        pieces => {
            debug_assert!(cut.extent.length <= BLOCK_LENGTH_MAX);
            let start = gathered.len();
            gathered.resize(start + cut.extent.length as usize, 0);
            for piece in pieces {
                let (from, length) = (in_buffer(piece.offset), piece.length as usize);
                let to = start + (piece.offset - cut.extent.offset) as usize;
                gathered[to..to + length].copy_from_slice(&loaded.buffer[from..from + length]);
            }
            let length = trimmed_length(&gathered[start..]);
            gathered.truncate(start + length);
            BlockBytes::Gathered(start, length)
        }
    }
}

/// The length without trailing zero sectors.
pub(crate) fn trimmed_length(contents: &[u8]) -> usize {
    contents
        .chunks_exact(SECTOR as usize)
        .rposition(|sector| !is_zero(sector))
        .map_or(0, |last| (last + 1) * SECTOR as usize)
}

pub(crate) fn is_zero(sector: &[u8]) -> bool {
    let (words, rest) = sector.as_chunks::<16>();
    words.iter().fold(0, |bits, word| bits | u128::from_ne_bytes(*word)) == 0
        && rest.iter().all(|byte| *byte == 0)
}
