//! Reads pieces of a disk in a few aligned reads, into one buffer that is reused.

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::{DiskRead, Extent, IoContext, Result};

use crate::AlignedBuffer;

/// Pieces that are at most this far apart are read together, in bytes.
pub(super) const GAP_READ: u64 = 64 << 10;
/// Reads begin and end at multiples of this many bytes, if the disk does.
const READ_ALIGNMENT: u64 = AlignedBuffer::ALIGNMENT as u64;

/// Pieces of a disk in memory.
pub(super) struct Pieces<'a> {
    disk: &'a dyn DiskRead,
    buffer: Option<AlignedBuffer>,
    /// The ranges of the disk that were read, each with its offset in the buffer; ascending.
    runs: Vec<(Extent, usize)>,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(disk: &'a dyn DiskRead) -> Self {
        Self { disk, buffer: None, runs: Vec::new() }
    }

    /// Reads these pieces instead of the earlier ones. What cannot be read is missing afterwards.
    ///
    /// # Errors
    /// `Io` when there is no memory.
    pub(super) fn load(&mut self, pieces: impl Iterator<Item = Extent>) -> Result<()> {
        let mut runs = Vec::new();
        let mut at = 0;
        for run in joined(pieces, self.disk.length()) {
            runs.push((run, at));
            at += run.length.next_multiple_of(READ_ALIGNMENT) as usize;
        }
        if self.buffer.as_ref().is_none_or(|buffer| buffer.len() < at) {
            let buffer = AlignedBuffer::zeroed(at.next_power_of_two());
            self.buffer = Some(buffer.context(|| "allocating memory for reading a disk".to_owned())?);
        }
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        runs.retain(|(run, at)| {
            self.disk.read_exact_at(&mut buffer[*at..*at + run.length as usize], run.offset).is_ok()
        });
        self.runs = runs;
        Ok(())
    }

    /// The bytes of one of the loaded pieces.
    pub(super) fn bytes(&self, piece: Extent) -> Option<&[u8]> {
        let run = self.runs.partition_point(|(run, _)| run.offset <= piece.offset).checked_sub(1)?;
        let (run, at) = self.runs[run];
        if piece.end() > run.end() {
            return None;
        }
        let start = at + (piece.offset - run.offset) as usize;
        self.buffer.as_ref()?.get(start..start + piece.length as usize)
    }

    /// Replaces `block` by `length` bytes of the disk from `origin`: those of the pieces, which ascend, and zeros
    /// between them. `false` if that is no block, or a piece is missing.
    pub(super) fn gather(&self, origin: u64, length: u64, pieces: &[Extent], block: &mut Vec<u8>) -> bool {
        if length > BLOCK_LENGTH_MAX {
            return false;
        }
        block.clear();
        block.resize(length as usize, 0);
        pieces.iter().all(|piece| {
            let to = piece.offset.checked_sub(origin).and_then(|start| block.get_mut(start as usize..));
            let Some((bytes, to)) = self.bytes(*piece).zip(to) else { return false };
            to.get_mut(..bytes.len()).map(|to| to.copy_from_slice(bytes)).is_some()
        })
    }
}

/// Pieces, joined into a few aligned reads on a disk of that length.
fn joined(pieces: impl Iterator<Item = Extent>, length: u64) -> Vec<Extent> {
    let mut pieces: Vec<Extent> = pieces.filter(|piece| piece.end() <= length).collect();
    pieces.sort_unstable();
    let mut runs: Vec<Extent> = Vec::new();
    for piece in pieces {
        let start = piece.offset / READ_ALIGNMENT * READ_ALIGNMENT;
        let end = piece.end().next_multiple_of(READ_ALIGNMENT).min(length);
        match runs.last_mut() {
            Some(run) if start <= run.end() + GAP_READ => {
                *run = Extent::between(run.offset, run.end().max(end));
            }
            _ => runs.push(Extent::between(start, end)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_found_wherever_they_are() {
        let disk: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 512) as u8).collect();
        let all = [Extent::new(512, 1024), Extent::new(300_032, 512), Extent::new(999_424, 512)];
        let mut pieces = Pieces::of(&disk);
        pieces.load(all.into_iter().rev().chain([Extent::new(1_000_000, 512)])).unwrap();
        for piece in all {
            assert_eq!(pieces.bytes(piece), Some(&disk[piece.offset as usize..piece.end() as usize]));
        }
        assert_eq!(pieces.bytes(Extent::new(500_224, 512)), None);
        assert_eq!(pieces.bytes(Extent::new(999_936, 512)), None);
        let mut block = Vec::new();
        assert!(pieces.gather(0, 2048, &all[..1], &mut block));
        assert_eq!(
            (&block[..512], &block[512..1536], &block[1536..]),
            (&[0; 512][..], &disk[512..1536], &[0; 512][..])
        );
        assert!(!pieces.gather(0, 1024, &all[..1], &mut block), "the piece reaches past the block");
        assert!(!pieces.gather(1024, 2048, &all[..1], &mut block), "the piece starts before the block");
    }
}
