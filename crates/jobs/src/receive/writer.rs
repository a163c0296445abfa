//! Writes verified blocks to the places that the recipe gives them, whatever order they come in.
//!
//! Owns the record of what was written. Nothing is written that no recipe, verified from the score down, asks for.

use platter_disk::AlignedBuffer;
use platter_image::frame::FrameHeader;
use platter_image::plan::Places;
use platter_image::{DiskWrite, Extent, IoContext, Result};

/// Bytes that are gathered for one write.
const WRITE_LENGTH: usize = 4 << 20;

/// The places of a disk, with a mark at each that was written.
pub(super) struct Writer {
    places: Places,
    written: Vec<bool>,
    left: usize,
    buffer: AlignedBuffer,
    /// Bytes written.
    pub(super) bytes: u64,
}

/// Bytes of a decoded chunk and where they go.
struct Move {
    to: Extent,
    from: usize,
}

impl Writer {
    pub(super) fn new(places: Places) -> Self {
        let count = places.len();
        Self {
            places,
            written: vec![false; count],
            left: count,
            buffer: AlignedBuffer::zeroed(WRITE_LENGTH),
            bytes: 0,
        }
    }

    /// Whether every block has been written everywhere it goes.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// How many places wait for their block, and the first of them.
    pub(super) fn missing(&self) -> Option<(usize, Extent)> {
        let first = self.written.iter().position(|written| !written)?;
        Some((self.left, self.places.block_at(first).1))
    }

    /// What must read as zeros.
    pub(super) fn zero(&self) -> &[Extent] {
        self.places.zero()
    }

    /// Writes the blocks of decoded, verified frames, which stand one after another in `raw`.
    pub(super) fn write(
        &mut self,
        target: &dyn DiskWrite,
        headers: &[FrameHeader],
        raw: &[u8],
    ) -> Result<()> {
        let mut moves = Vec::new();
        let mut start = 0;
        for block in headers.iter().flat_map(|header| &header.blocks) {
            let range = self.places.range_of(&block.id);
            for (position, (offset, to)) in range.clone().zip(self.places.of_block(&block.id)) {
                // A recipe may ask for more than its block has; the place is then never marked, and the end tells.
                if !self.written[position] && u64::from(offset) + to.length <= u64::from(block.length) {
                    moves.push(Move { to, from: start + offset as usize });
                    self.written[position] = true;
                    self.left -= 1;
                }
            }
            start += block.length as usize;
        }
        moves.sort_unstable_by_key(|one| one.to.offset);
        for run in moves.chunk_by(|a, b| a.to.end() == b.to.offset) {
            self.write_run(target, run, raw)?;
        }
        Ok(())
    }

    fn write_run(&mut self, target: &dyn DiskWrite, run: &[Move], raw: &[u8]) -> Result<()> {
        let (mut filled, mut offset) = (0, run[0].to.offset);
        for one in run {
            let length = one.to.length as usize;
            if filled + length > WRITE_LENGTH {
                flush(target, &self.buffer[..filled], offset)?;
                (offset, filled) = (one.to.offset, 0);
            }
            self.buffer[filled..filled + length].copy_from_slice(&raw[one.from..one.from + length]);
            filled += length;
            self.bytes += one.to.length;
        }
        flush(target, &self.buffer[..filled], offset)
    }
}

fn flush(target: &dyn DiskWrite, bytes: &[u8], offset: u64) -> Result<()> {
    target
        .write_all_at(bytes, offset)
        .context(|| format!("writing {} bytes at {offset} of the target", bytes.len()))
}
