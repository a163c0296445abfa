//! Writes verified blocks to their places in the recipe, in any order.
//!
//! Owns the record of written places. Writes nothing that a recipe, verified from the score down, does not contain.

use std::sync::Arc;

use platter_disk::install::Local;
use platter_image::frame::FrameHeader;
use platter_image::plan::Places;
use platter_image::{BlockId, DiskRead, DiskWrite, Extent, Extents, IoContext, Result};

use platter_net::SinkTimes;

use super::flusher::{Flusher, WRITE_LENGTH, write};
use super::read_back::Fingerprints;
use super::sink::ReceivedDisk;
use crate::Compared;

/// Zeros up to this length are written, together with preceding data if there is some; longer ones are requested from
/// the device, in bytes.
const ZEROS_WRITTEN_MAX: u64 = 64 << 10;

/// The places of a disk, with a mark at each written one.
pub(super) struct Writer {
    places: Places,
    written: Vec<bool>,
    left: usize,
    /// Ranges that must read as zeros, ascending and separate, and which of them are done.
    zero: Vec<Extent>,
    zero_written: Vec<bool>,
    flusher: Flusher,
    /// Fingerprints of the written data, if it is to be read back.
    fingerprints: Option<Fingerprints>,
    /// Bytes written.
    pub(super) bytes: u64,
}

/// Bytes of a decoded chunk, or zeros, with their destination.
struct Move {
    to: Extent,
    from: Option<usize>,
}

impl Writer {
    /// Makes a writer of this target.
    ///
    /// # Errors
    /// `Io` when the system has no more memory or threads.
    pub(super) fn new(
        places: Places,
        read_back: bool,
        target: Arc<dyn ReceivedDisk>,
        times: Arc<SinkTimes>,
    ) -> Result<Self> {
        let count = places.len();
        let zero: Vec<Extent> = places.zero().iter().copied().collect::<Extents>().iter().copied().collect();
        Ok(Self {
            zero_written: vec![false; zero.len()],
            zero,
            fingerprints: read_back.then(|| Fingerprints::new(count)),
            places,
            written: vec![false; count],
            left: count,
            flusher: Flusher::start(target, times)?,
            bytes: 0,
        })
    }

    /// Whether the recipe contains a block.
    pub(super) fn names(&self, id: &BlockId) -> bool {
        !self.places.range_of(id).is_empty()
    }

    /// Whether every block was written to all its places.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Returns how many places are not written, and the first of them.
    pub(super) fn missing(&self) -> Option<(usize, Extent)> {
        let first = self.written.iter().position(|written| !written)?;
        Some((self.left, self.places.block_at(first).1))
    }

    /// Leaves alone what the target already holds, and writes the blocks that were found elsewhere on this machine.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn take_delta(&mut self, target: &dyn ReceivedDisk, local: &Local<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for position in 0..self.places.len() {
            let (_, place) = self.places.block_at(position);
            if !local.holds(place) {
                continue;
            }
            self.written[position] = true;
            self.left -= 1;
            if let Some(fingerprints) = &mut self.fingerprints {
                bytes.resize(place.length as usize, 0);
                let read = target.read_exact_at(&mut bytes, place.offset);
                read.context(|| format!("reading {} bytes at {}", place.length, place.offset))?;
                fingerprints.set(position, &bytes);
            }
        }
        for (zero, written) in self.zero.iter().zip(&mut self.zero_written) {
            *written = local.holds(*zero);
        }
        for id in local.found() {
            let written =
                local.copy(&id, |bytes| self.write_blocks(std::iter::once((id, bytes.len() as u32)), bytes));
            written?;
            // What is found on the target itself may be read again.
            self.flusher.drain()?;
        }
        Ok(())
    }

    /// The blocks that must still arrive.
    pub(super) fn needed(&self) -> impl Iterator<Item = BlockId> + '_ {
        let missing = self.written.iter().enumerate().filter(|(_, written)| !**written);
        missing.map(|(position, _)| self.places.block_at(position).0)
    }

    /// Waits until all data is written, and writes the zeros that were not written with it.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write_rest(&mut self, target: &dyn DiskWrite) -> Result<()> {
        self.flusher.drain()?;
        let mut zeros = Vec::new();
        let rest = self.zero.iter().zip(&self.zero_written).filter(|(_, written)| !**written);
        for extent in rest.map(|(extent, _)| extent) {
            if extent.length <= ZEROS_WRITTEN_MAX {
                zeros.resize(extent.length as usize, 0);
                write(target, &zeros, extent.offset)?;
            } else {
                make_zeros(target, extent)?;
            }
        }
        Ok(())
    }

    /// Compares the written data with the target, if requested. Everything must have been written.
    ///
    /// # Errors
    /// `Corrupt`, with where the first difference found is; `Io` when the target cannot be read.
    pub(super) fn compare(
        &self,
        target: &(impl DiskRead + ?Sized),
        free: &Extents,
    ) -> Result<Option<Compared>> {
        let compare =
            |kept: &Fingerprints| kept.compare(target, &self.places, self.zero.iter().chain(free.iter()));
        self.fingerprints.as_ref().map(compare).transpose()
    }

    /// Returns the zeros that start at `offset`, if they are short and not written yet; they count as written then.
    fn zeros_after(&mut self, offset: u64) -> Option<Move> {
        let at = self.zero.binary_search_by_key(&offset, |extent| extent.offset).ok()?;
        let short = self.zero[at].length <= ZEROS_WRITTEN_MAX;
        (short && !std::mem::replace(&mut self.zero_written[at], true))
            .then(|| Move { to: self.zero[at], from: None })
    }

    /// Writes the blocks of decoded, verified frames, whose contents are consecutive in `raw`.
    pub(super) fn write(&mut self, headers: &[FrameHeader], raw: &[u8]) -> Result<()> {
        let blocks = headers.iter().flat_map(|header| &header.blocks);
        self.write_blocks(blocks.map(|block| (block.id, block.length)), raw)
    }

    /// Writes verified blocks with these lengths, whose contents are consecutive in `raw`.
    fn write_blocks(&mut self, blocks: impl Iterator<Item = (BlockId, u32)>, raw: &[u8]) -> Result<()> {
        let mut moves = Vec::new();
        let mut start = 0;
        for (id, length) in blocks {
            let range = self.places.range_of(&id);
            for (position, (offset, to)) in range.clone().zip(self.places.of_block(&id)) {
                // A recipe may refer to more bytes than a block has: the place then stays unmarked, which is noticed at
                // the end.
                if !self.written[position] && u64::from(offset) + to.length <= u64::from(length) {
                    let from = start + offset as usize;
                    moves.push(Move { to, from: Some(from) });
                    if let Some(fingerprints) = &mut self.fingerprints {
                        fingerprints.set(position, &raw[from..from + to.length as usize]);
                    }
                    self.written[position] = true;
                    self.left -= 1;
                }
            }
            start += length as usize;
        }
        let ends: Vec<u64> = moves.iter().map(|one| one.to.end()).collect();
        moves.extend(ends.into_iter().filter_map(|end| self.zeros_after(end)));
        moves.sort_unstable_by_key(|one| one.to.offset);
        for run in moves.chunk_by(|a, b| a.to.end() == b.to.offset) {
            self.write_run(run, raw)?;
        }
        Ok(())
    }

    fn write_run(&mut self, run: &[Move], raw: &[u8]) -> Result<()> {
        let (mut filled, mut offset) = (0, run[0].to.offset);
        let mut buffer = self.flusher.buffer()?;
        for one in run {
            let length = one.to.length as usize;
            if filled + length > WRITE_LENGTH {
                self.flusher.write(buffer, filled, offset)?;
                buffer = self.flusher.buffer()?;
                (offset, filled) = (one.to.offset, 0);
            }
            let bytes = &mut buffer[filled..filled + length];
            match one.from {
                Some(from) => {
                    bytes.copy_from_slice(&raw[from..from + length]);
                    self.bytes += one.to.length;
                }
                None => bytes.fill(0),
            }
            filled += length;
        }
        self.flusher.write(buffer, filled, offset)
    }
}

/// Requests zeros from the device.
pub(super) fn make_zeros(target: &dyn DiskWrite, extent: &Extent) -> Result<()> {
    target
        .write_zeroes(extent.offset, extent.length)
        .context(|| format!("zeroing {} bytes at {} of the target", extent.length, extent.offset))
}
