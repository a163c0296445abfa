//! Compares the contents of two files by the ids of blocks and, where these differ, by the bytes.
//!
//! A piece is equal without being read if it is at the same place on both disks and nothing differs there, or if both
//! recipes have the same parts of the same blocks for it, at any place. Everything else is read.

use std::collections::VecDeque;

use platter_filesystem::{FileContents, FileInode, FileTree, Piece as Bytes};
use platter_image::page::{Entry, State};
use platter_image::recipe::Recipe;
use platter_image::{BlockId, DiskRead, Error, Extent, Extents, IoContext, Kind, Result};
use platter_vdisk::Source;

/// Size in bytes of a window of the disk whose recipe entries are kept, and the number of such windows.
const WINDOW: u64 = 16 << 20;
const WINDOWS_MAX: usize = 32;
/// Bytes compared at once.
const STEP: u64 = 1 << 20;
/// Bytes read at once.
const READ_LENGTH: u64 = 256 << 10;
/// Longer compressed files are not compared: their hashes take 1 GiB of memory each.
const HASHED_MAX: u64 = 128 << 30;
/// The unit in bytes in which changes are counted.
const PIECE: u64 = 4096;

/// One version's side of a comparison.
pub(super) struct Side<'a> {
    pub(super) files: Box<dyn FileTree + 'a>,
    disk: &'a dyn DiskRead,
    recipe: &'a Recipe<&'a dyn Source>,
    /// Recipe entries of some windows of the disk, the most recently used first.
    windows: VecDeque<(u64, Vec<Entry>)>,
    buffer: Vec<u8>,
}

/// The place of a piece of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceSource {
    Hole,
    Inline,
    Disk(u64),
}

impl<'a> Side<'a> {
    pub(super) fn new(
        files: Box<dyn FileTree + 'a>,
        disk: &'a dyn DiskRead,
        recipe: &'a Recipe<&'a dyn Source>,
    ) -> Self {
        Self { files, disk, recipe, windows: VecDeque::new(), buffer: Vec::new() }
    }

    /// Returns the recipe entries of a place, with offsets relative to its start; a hole has none.
    fn entries(&mut self, place: PieceSource, length: u64) -> Result<Vec<Entry>> {
        let PieceSource::Disk(start) = place else { return Ok(Vec::new()) };
        let wanted = Extent::new(start, length);
        let mut found = Vec::new();
        for window in start / WINDOW..wanted.end().div_ceil(WINDOW) {
            let entries = self.window(window)?;
            let first = entries.partition_point(|entry| entry.extent.end() <= start);
            found.extend(entries[first..].iter().map_while(|entry| entry.clip(wanted)));
        }
        for entry in &mut found {
            entry.extent.offset -= start;
        }
        Ok(found)
    }

    fn window(&mut self, number: u64) -> Result<&[Entry]> {
        if let Some(place) = self.windows.iter().position(|(known, _)| *known == number) {
            self.windows.swap(0, place);
        } else {
            let range = Extent::new(number * WINDOW, WINDOW);
            let entries: Vec<Entry> = self.recipe.entries(range).collect::<Result<_>>()?;
            self.windows.truncate(WINDOWS_MAX - 1);
            self.windows.push_front((number, entries));
        }
        Ok(self.windows.front().map_or(&[], |(_, entries)| entries))
    }

    /// Reads a piece into the buffer.
    fn read(
        &mut self,
        contents: &FileContents,
        place: PieceSource,
        file_offset: u64,
        length: u64,
    ) -> Result<()> {
        self.buffer.clear();
        self.buffer.resize(length as usize, 0);
        match (place, contents) {
            (PieceSource::Hole, _) | (PieceSource::Inline, FileContents::Runs(_) | FileContents::Packed) => {}
            (PieceSource::Inline, FileContents::Inline(bytes)) => {
                let bytes = bytes.get(file_offset as usize..).unwrap_or_default();
                let length = self.buffer.len().min(bytes.len());
                self.buffer[..length].copy_from_slice(&bytes[..length]);
            }
            (PieceSource::Disk(offset), _) => self
                .disk
                .read_exact_at(&mut self.buffer, offset)
                .context(|| format!("reading {length} bytes of a file at {offset}"))?,
        }
        Ok(())
    }
}

/// Returns the number of differing bytes in the contents of two files. `changed` has the ranges in which the disks
/// differ.
///
/// # Errors
/// `Corrupt` when one of the files is damaged; the errors of reading the disks.
pub(super) fn changed_bytes(
    (a, inode_a): (&mut Side<'_>, &FileInode),
    (b, inode_b): (&mut Side<'_>, &FileInode),
    changed: &Extents,
) -> Result<u64> {
    let contents_a = a.files.contents(inode_a)?;
    let contents_b = b.files.contents(inode_b)?;
    if contents_a == FileContents::Packed || contents_b == FileContents::Packed {
        return changed_pieces((a, inode_a), (b, inode_b));
    }
    let (length_a, length_b) = (length(inode_a, &contents_a), length(inode_b, &contents_b));
    let common = length_a.min(length_b);
    let mut bytes = length_a.abs_diff(length_b);
    let mut position = 0;
    while position < common {
        let (place_a, end_a) = place(&contents_a, position);
        let (place_b, end_b) = place(&contents_b, position);
        let end = end_a.min(end_b).min(common).min(position + STEP);
        for doubt in doubts((a, place_a), (b, place_b), end - position, changed)? {
            let pieces = Extent::new(position + doubt.offset, doubt.length);
            let mut start = pieces.offset;
            while start < pieces.end() {
                let next = (start / READ_LENGTH * READ_LENGTH + READ_LENGTH).min(pieces.end());
                let moved = |place| match place {
                    PieceSource::Disk(offset) => PieceSource::Disk(offset + (start - position)),
                    place => place,
                };
                a.read(&contents_a, moved(place_a), start, next - start)?;
                b.read(&contents_b, moved(place_b), start, next - start)?;
                bytes += differing(&a.buffer, &b.buffer, start);
                start = next;
            }
        }
        position = end;
    }
    Ok(bytes)
}

/// The same for files of which one is compressed: both are read, and only hashes of their pieces are kept.
fn changed_pieces(
    (a, inode_a): (&mut Side<'_>, &FileInode),
    (b, inode_b): (&mut Side<'_>, &FileInode),
) -> Result<u64> {
    let (hashes_a, hashes_b) = (piece_hashes(a, inode_a)?, piece_hashes(b, inode_b)?);
    let sizes = (inode_a.metadata().size, inode_b.metadata().size);
    let common = hashes_a.iter().zip(&hashes_b).filter(|(a, b)| a != b).count() as u64 * PIECE;
    // A last piece that both have in part counts with the difference of their lengths.
    Ok(common.min(sizes.0.min(sizes.1)) + sizes.0.abs_diff(sizes.1))
}

fn piece_hashes(side: &mut Side<'_>, inode: &FileInode) -> Result<Vec<BlockId>> {
    if inode.metadata().size > HASHED_MAX {
        return Err(Error::corrupt(format!(
            "its {} compressed bytes are too many to compare",
            inode.metadata().size
        )));
    }
    let mut hashes = Vec::new();
    let mut piece = Vec::with_capacity(PIECE as usize);
    side.files.visit_contents(inode, &mut |_, bytes| {
        let (mut left, bytes) = match bytes {
            Bytes::Zeros(length) => (length, None),
            Bytes::Bytes(bytes) => (bytes.len() as u64, Some(bytes)),
        };
        let mut at = 0;
        while left > 0 {
            let step = left.min(PIECE - piece.len() as u64) as usize;
            match bytes {
                Some(bytes) => piece.extend_from_slice(&bytes[at..at + step]),
                None => piece.resize(piece.len() + step, 0),
            }
            at += step;
            left -= step as u64;
            if piece.len() as u64 == PIECE {
                hashes.push(BlockId::of(Kind::Data, &piece));
                piece.clear();
            }
        }
        Ok(())
    })?;
    if !piece.is_empty() {
        hashes.push(BlockId::of(Kind::Data, &piece));
    }
    Ok(hashes)
}

/// Returns the length to compare: data after the end of a file only counts for fs-verity.
fn length(inode: &FileInode, contents: &FileContents) -> u64 {
    match contents {
        FileContents::Runs(runs) if inode.has_verity() => {
            let end = runs.last().map_or(0, |run| run.file_offset + run.place.length);
            end.max(inode.metadata().size)
        }
        _ => inode.metadata().size,
    }
}

/// Returns the place of the byte at `position`, and the end of its piece.
fn place(contents: &FileContents, position: u64) -> (PieceSource, u64) {
    let runs = match contents {
        FileContents::Inline(_) | FileContents::Packed => return (PieceSource::Inline, u64::MAX),
        FileContents::Runs(runs) => runs,
    };
    let after = runs.partition_point(|run| run.file_offset <= position);
    let next = runs.get(after).map_or(u64::MAX, |run| run.file_offset);
    match after.checked_sub(1).map(|before| runs[before]) {
        Some(run) if position - run.file_offset < run.place.length => {
            let inside = position - run.file_offset;
            (PieceSource::Disk(run.place.offset + inside), run.file_offset + run.place.length)
        }
        _ => (PieceSource::Hole, next),
    }
}

/// Returns the parts of a piece that may differ, as offsets in the piece.
fn doubts(
    (a, place_a): (&mut Side<'_>, PieceSource),
    (b, place_b): (&mut Side<'_>, PieceSource),
    length: u64,
    changed: &Extents,
) -> Result<Vec<Extent>> {
    match (place_a, place_b) {
        (PieceSource::Inline, _) | (_, PieceSource::Inline) => return Ok(vec![Extent::new(0, length)]),
        (PieceSource::Hole, PieceSource::Hole) => return Ok(Vec::new()),
        (PieceSource::Disk(offset), PieceSource::Disk(other))
            if offset == other && changed.clip(Extent::new(offset, length)).next().is_none() =>
        {
            return Ok(Vec::new());
        }
        _ => {}
    }
    let (entries_a, entries_b) = (a.entries(place_a, length)?, b.entries(place_b, length)?);
    let (mut rest_a, mut rest_b) = (&entries_a[..], &entries_b[..]);
    let mut found = Extents::new();
    let mut position = 0;
    while position < length {
        let (state_a, end_a) = take(&mut rest_a, position, length);
        let (state_b, end_b) = take(&mut rest_b, position, length);
        let end = end_a.min(end_b);
        // Zeros and free space read the same.
        let is_data = |state| matches!(state, State::Data { .. });
        if state_a != state_b && (is_data(state_a) || is_data(state_b)) {
            found.push(Extent::between(position, end));
        }
        position = end;
    }
    Ok(found.as_slice().to_vec())
}

/// Returns the state at `position`, and its end; drops earlier entries.
fn take(entries: &mut &[Entry], position: u64, length: u64) -> (State, u64) {
    while let [first, rest @ ..] = entries
        && first.extent.end() <= position
    {
        *entries = rest;
    }
    match entries.first() {
        Some(entry) if entry.extent.offset <= position => {
            let here = entry.clip(Extent::between(position, u64::MAX));
            (here.map_or(State::Free, |here| here.state), entry.extent.end())
        }
        next => (State::Free, next.map_or(length, |entry| entry.extent.offset)),
    }
}

/// Returns the bytes of differing pieces; pieces start at multiples of their length in the file.
fn differing(a: &[u8], b: &[u8], file_offset: u64) -> u64 {
    let (mut bytes, mut position) = (0, 0);
    while position < a.len() {
        let left = PIECE - (file_offset + position as u64) % PIECE;
        let end = a.len().min(position + left as usize);
        if a[position..end] != b[position..end] {
            bytes += (end - position) as u64;
        }
        position = end;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_filesystem::Run;

    #[test]
    fn places_of_a_sparse_file() {
        let run = |file_offset, offset, length| Run { file_offset, place: Extent::new(offset, length) };
        let contents = FileContents::Runs(vec![run(4096, 100 << 10, 4096), run(8192, 10 << 10, 4096)]);
        assert_eq!(place(&contents, 0), (PieceSource::Hole, 4096));
        assert_eq!(place(&contents, 5000), (PieceSource::Disk((100 << 10) + 904), 8192));
        assert_eq!(place(&contents, 8192), (PieceSource::Disk(10 << 10), 12288));
        assert_eq!(place(&contents, 12288), (PieceSource::Hole, u64::MAX));
        assert_eq!(place(&FileContents::Inline(vec![1]), 0), (PieceSource::Inline, u64::MAX));
    }

    #[test]
    fn pieces_are_counted_where_they_lie_in_the_file() {
        let (a, mut b) = (vec![0; 10_000], vec![0; 10_000]);
        assert_eq!(differing(&a, &b, 1000), 0);
        b[0] = 1;
        b[9999] = 1;
        assert_eq!(differing(&a, &b, 1000), 3096 + (10_000 - 3096 - 4096));
    }
}
