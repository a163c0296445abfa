//! Where the contents of a file are, and reading from any offset.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_export::tree::NodeId;
use platter_filesystem::{FileContents, FileInode, FileTree, Piece, Run};
use platter_image::{DiskRead, IoContext, Result};

use crate::open_filesystem::OpenFilesystem;

/// Where the contents of a regular file are.
#[derive(Debug)]
pub(crate) struct Contents {
    inode: Arc<FileInode>,
    stored: FileContents,
}

/// A piece that was decoded and of which a part may still be wanted: its file, its offset there, its bytes.
#[derive(Debug)]
struct Decoded {
    file: NodeId,
    offset: u64,
    bytes: Vec<u8>,
}

/// The last piece of packed contents that was decoded: a piece is larger than most requests.
#[derive(Debug, Default)]
pub(crate) struct LastDecoded(Mutex<Option<Decoded>>);

impl Contents {
    /// # Errors
    /// `Refused` if they are encrypted or elsewhere; those of reading.
    pub(crate) fn of(files: &mut dyn FileTree, inode: Arc<FileInode>) -> Result<Self> {
        if inode.is_encrypted() {
            return Err(platter_image::Error::refused(
                "its contents are encrypted, and the key is not in the image",
            ));
        }
        let stored = files.contents(&inode)?;
        Ok(Self { inode, stored })
    }

    /// Bytes of memory that this takes.
    pub(crate) fn memory(&self) -> usize {
        let stored = match &self.stored {
            FileContents::Inline(bytes) => bytes.len(),
            FileContents::Runs(runs) => runs.len() * size_of::<Run>(),
            FileContents::Packed => 0,
        };
        size_of::<Self>() + stored
    }

    fn size(&self) -> u64 {
        self.inode.metadata().size
    }

    /// Fills `buffer` with what is at `offset`; returns how many bytes there are.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn read(
        &self,
        (filesystem, id, last): (&OpenFilesystem, NodeId, &LastDecoded),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let count = self.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..count];
        if count == 0 {
            return Ok(0);
        }
        match &self.stored {
            FileContents::Inline(bytes) => {
                buffer.fill(0);
                copy(offset, buffer, 0, bytes);
            }
            FileContents::Runs(runs) => read_runs(&*filesystem.disk, runs, offset, buffer)?,
            FileContents::Packed => last.read((filesystem, id, &self.inode), offset, buffer)?,
        }
        Ok(count)
    }

    /// The first offset from `offset` on with data, or without; the end of the file counts as a hole.
    pub(crate) fn seek(&self, offset: u64, is_hole: bool) -> Option<u64> {
        match &self.stored {
            FileContents::Runs(runs) => seek_runs(runs, self.size(), offset, is_hole),
            _ if offset >= self.size() => None,
            _ => Some(if is_hole { self.size() } else { offset }),
        }
    }
}

/// The end of a run in its file.
fn end(run: &Run) -> u64 {
    run.file_offset.saturating_add(run.place.length)
}

/// [`Contents::seek`] in runs of a file of `size` bytes.
fn seek_runs(runs: &[Run], size: u64, offset: u64, is_hole: bool) -> Option<u64> {
    if offset >= size {
        return None;
    }
    let rest = &runs[runs.partition_point(|run| end(run) <= offset)..];
    if !is_hole {
        let first = rest.first().map(|run| run.file_offset.max(offset));
        return first.filter(|found| *found < size);
    }
    let mut place = offset;
    for run in rest.iter().take_while(|run| run.file_offset < size) {
        if run.file_offset > place {
            break;
        }
        place = end(run);
    }
    Some(place.min(size))
}

/// Copies what `bytes`, which are at `from` in the file, have in common with `buffer`, which is at `offset`.
fn copy(offset: u64, buffer: &mut [u8], from: u64, bytes: &[u8]) {
    let end = offset.saturating_add(buffer.len() as u64).min(from.saturating_add(bytes.len() as u64));
    let start = offset.max(from);
    if start < end {
        let length = (end - start) as usize;
        let (to, from) = ((start - offset) as usize, (start - from) as usize);
        buffer[to..to + length].copy_from_slice(&bytes[from..from + length]);
    }
}

fn read_runs(disk: &dyn DiskRead, runs: &[Run], offset: u64, buffer: &mut [u8]) -> Result<()> {
    let until = offset + buffer.len() as u64;
    let mut position = offset;
    let first = runs.partition_point(|run| end(run) <= offset);
    for run in runs[first..].iter().take_while(|run| run.file_offset < until) {
        let start = run.file_offset.max(position);
        let stop = end(run).min(until).max(start);
        buffer[(position - offset) as usize..(start - offset) as usize].fill(0);
        let part = &mut buffer[(start - offset) as usize..(stop - offset) as usize];
        let place = run.place.offset.saturating_add(start - run.file_offset);
        let length = part.len();
        disk.read_exact_at(part, place)
            .context(|| format!("reading {length} bytes of a file at offset {place} of the disk"))?;
        position = stop;
    }
    buffer[(position - offset) as usize..].fill(0);
    Ok(())
}

impl LastDecoded {
    fn read(
        &self,
        (filesystem, id, inode): (&OpenFilesystem, NodeId, &FileInode),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let (mut start, end) = (offset, offset + buffer.len() as u64);
        buffer.fill(0);
        if let Some(decoded) = self.0.lock().as_ref().filter(|decoded| decoded.file == id) {
            let known = decoded.offset..decoded.offset.saturating_add(decoded.bytes.len() as u64);
            if known.contains(&start) {
                copy(offset, buffer, decoded.offset, &decoded.bytes);
                start = known.end.min(end);
            }
        }
        if start == end {
            return Ok(());
        }
        filesystem.with(|files| {
            files.visit_packed(inode, start..end, &mut |at, piece| {
                let Piece::Bytes(bytes) = piece else { return Ok(()) };
                copy(offset, buffer, at, bytes);
                if at.saturating_add(bytes.len() as u64) > end {
                    *self.0.lock() = Some(Decoded { file: id, offset: at, bytes: bytes.to_vec() });
                }
                Ok(())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use platter_image::Extent;

    use super::*;

    fn runs(all: &[(u64, u64, u64)]) -> Vec<Run> {
        let run = |(file_offset, offset, length): &(u64, u64, u64)| Run {
            file_offset: *file_offset,
            place: Extent::new(*offset, *length),
        };
        all.iter().map(run).collect()
    }

    #[test]
    fn any_range_is_read() {
        let disk: Vec<u8> = (0..=255).collect();
        let runs = runs(&[(4, 100, 4), (8, 30, 2), (12, 200, 8)]);
        let mut whole = [0; 24];
        for (file_offset, offset, length) in [(4, 100, 4), (8, 30, 2), (12, 200, 8)] {
            whole[file_offset..file_offset + length].copy_from_slice(&disk[offset..offset + length]);
        }
        for start in 0..24 {
            for end in start..=24 {
                let mut buffer = vec![9; end - start];
                read_runs(&disk, &runs, start as u64, &mut buffer).unwrap();
                assert_eq!(buffer, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn runs_that_overlap_do_no_harm() {
        let disk = vec![1; 256];
        let mut buffer = vec![9; 20];
        read_runs(&disk, &runs(&[(0, 0, 15), (5, 0, 3), (8, 0, 9)]), 2, &mut buffer).unwrap();
        assert_eq!(buffer[19], 0);
    }

    #[test]
    fn data_and_holes_are_found() {
        let runs = runs(&[(4, 100, 4), (8, 30, 2), (12, 200, 8)]);
        for (offset, data, hole) in [
            (0, Some(4), Some(0)),
            (4, Some(4), Some(10)),
            (9, Some(9), Some(10)),
            (10, Some(12), Some(10)),
            (12, Some(12), Some(18)),
            (17, Some(17), Some(18)),
            (18, None, None),
        ] {
            let found = [false, true].map(|is_hole| seek_runs(&runs, 18, offset, is_hole));
            assert_eq!(found, [data, hole], "{offset}");
        }
        assert_eq!((seek_runs(&[], 5, 1, false), seek_runs(&[], 5, 1, true)), (None, Some(1)));
    }
}
