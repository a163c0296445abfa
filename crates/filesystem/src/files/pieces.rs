//! The contents of a file, piece by piece.

use platter_image::{DiskRead, Extent, IoContext, Result};

/// Bytes read at once.
const STEP: u64 = 1 << 20;

/// A piece of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// As many zeros, which the disk does not store.
    Zeros(u64),
    /// Bytes.
    Bytes(&'b [u8]),
}

/// Called with the offset of each piece in the file, and the piece.
pub type Visit<'v> = &'v mut dyn FnMut(u64, Piece<'_>) -> Result<()>;

/// A run of a file's contents; parts of a file outside of runs read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Offset of its first byte in the file.
    pub file_offset: u64,
    /// Its range on the disk.
    pub place: Extent,
}

/// Where contents are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContents {
    /// In the inode.
    Inline(Vec<u8>),
    /// On the disk, as they are: in ascending order of file offset, without overlap.
    Runs(Vec<Run>),
    /// On the disk, compressed.
    Packed,
}

/// Passes contents that are in an inode to `visit`; what lacks up to `size` are zeros.
///
/// # Errors
/// Those of `visit`.
pub(crate) fn visit_inline(bytes: &[u8], size: u64, visit: Visit<'_>) -> Result<()> {
    let bytes = &bytes[..bytes.len().min(size as usize)];
    if !bytes.is_empty() {
        visit(0, Piece::Bytes(bytes))?;
    }
    let position = bytes.len() as u64;
    if position < size { visit(position, Piece::Zeros(size - position)) } else { Ok(()) }
}

/// Passes contents in runs to `visit`, which are in order and do not overlap. What is between and behind them, up to `size`, are
/// zeros.
///
/// # Errors
/// Errors of reading the disk, and those of `visit`.
pub(crate) fn visit_runs(
    disk: &dyn DiskRead,
    runs: impl IntoIterator<Item = Run>,
    size: u64,
    visit: Visit<'_>,
) -> Result<()> {
    let mut position = 0;
    let mut buffer = Vec::new();
    for run in runs.into_iter().take_while(|run| run.file_offset < size) {
        if run.file_offset > position {
            visit(position, Piece::Zeros(run.file_offset - position))?;
            position = run.file_offset;
        }
        let end = size.min(run.file_offset.saturating_add(run.place.length));
        while position < end {
            let length = STEP.min(end - position);
            let at = run.place.offset + (position - run.file_offset);
            buffer.resize(length as usize, 0);
            disk.read_exact_at(&mut buffer, at)
                .context(|| format!("reading {length} bytes of a file at offset {at}"))?;
            visit(position, Piece::Bytes(&buffer))?;
            position += length;
        }
    }
    if position < size { visit(position, Piece::Zeros(size - position)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_ends_are_zeros() {
        let disk: Vec<u8> = (0..=255).collect();
        let runs = [(4, 100, 4), (12, 200, 8)];
        let runs =
            runs.map(|(file_offset, offset, length)| Run { file_offset, place: Extent::new(offset, length) });
        for (size, expected) in [
            (30, vec![(0, 4, None), (4, 4, Some(100)), (8, 4, None), (12, 8, Some(200)), (20, 10, None)]),
            (14, vec![(0, 4, None), (4, 4, Some(100)), (8, 4, None), (12, 2, Some(200))]),
            (2, vec![(0, 2, None)]),
            (0, vec![]),
        ] {
            let mut found = Vec::new();
            visit_runs(&disk, runs, size, &mut |offset, piece| {
                found.push(match piece {
                    Piece::Zeros(length) => (offset, length, None),
                    Piece::Bytes(bytes) => (offset, bytes.len() as u64, Some(bytes[0])),
                });
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn contents_in_an_inode_end_with_the_file() {
        for (size, expected) in [(3, vec![3]), (8, vec![5, 3]), (0, vec![])] {
            let mut found = Vec::new();
            visit_inline(b"hello", size, &mut |_, piece| {
                found.push(match piece {
                    Piece::Zeros(length) => length,
                    Piece::Bytes(bytes) => bytes.len() as u64,
                });
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected);
        }
    }
}
