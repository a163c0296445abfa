//! Which blocks a frame has: the directories of packs, kept in memory up to a limit, and their conversion to entries of the index and
//! back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use platter_image::{BlockId, FrameAddress, Kind};
use platter_pack::{FrameRow, PackDirectory};

use crate::entry::Entry;

/// Maximum bytes of footers that are kept. The footer of a full pack has about 400 KB.
const DIRECTORIES_BYTES_MAX: usize = 32 << 20;

/// So many frames of a pack are read by its outline; then its directory is read. Each costs a small read, and those of neighbours
/// share a page.
const OUTLINE_FRAMES_MAX: u32 = 64;

/// The directory of a pack, for finding a frame by its offset; or its outline, which lacks the ids.
#[derive(Debug)]
pub struct FrameList {
    frames: Vec<ListedFrame>,
    /// Number of all blocks.
    blocks: usize,
    /// The ids of all blocks; of an outline, none.
    ids: Vec<BlockId>,
    outline: Option<Outline>,
}

#[derive(Debug)]
struct Outline {
    /// Offset of the ids in the pack's file.
    ids_at: u64,
    /// Number of frames that were looked up.
    uses: AtomicU32,
}

/// A frame, and the position of its first block in the list of all.
#[derive(Debug)]
struct ListedFrame {
    offset: u64,
    length: u32,
    first_block: u32,
}

impl FrameList {
    /// Makes the list from a pack's directory.
    pub fn new(directory: PackDirectory) -> Self {
        Self { ids: directory.ids, ..Self::of(&directory.frames) }
    }

    /// Makes an outline from a pack's frames and the offset of their ids in its file.
    pub fn outline(rows: &[FrameRow], ids_at: u64) -> Self {
        Self { outline: Some(Outline { ids_at, uses: AtomicU32::new(0) }), ..Self::of(rows) }
    }

    fn of(rows: &[FrameRow]) -> Self {
        let mut first_block = 0;
        let frames = rows.iter().map(|row| {
            let frame = ListedFrame { offset: row.offset, length: row.whole_length() as u32, first_block };
            first_block += row.blocks;
            frame
        });
        Self { frames: frames.collect(), blocks: first_block as usize, ids: Vec::new(), outline: None }
    }

    /// Returns whether this is an outline.
    pub fn is_outline(&self) -> bool {
        self.outline.is_some()
    }

    /// Returns the offset of a frame's ids in the pack's file, and their number. `None` if this is no outline, if it lacks the frame,
    /// or if it was asked so often that the directory is worth reading.
    pub fn place_of_ids(&self, address: FrameAddress) -> Option<(u64, usize)> {
        let outline = self.outline.as_ref()?;
        if outline.uses.fetch_add(1, Ordering::Relaxed) >= OUTLINE_FRAMES_MAX {
            return None;
        }
        let (_, blocks) = self.frame(address.offset).filter(|(length, _)| *length == address.length)?;
        Some((outline.ids_at + (blocks.start * BlockId::LEN) as u64, blocks.len()))
    }

    fn memory_bytes(&self) -> usize {
        self.frames.capacity() * size_of::<ListedFrame>() + self.ids.capacity() * BlockId::LEN
    }

    /// Returns the frame that begins at that offset: its length, and the positions of its blocks.
    fn frame(&self, offset: u64) -> Option<(u32, Range<usize>)> {
        let number = self.frames.binary_search_by_key(&offset, |frame| frame.offset).ok()?;
        let end = self.frames.get(number + 1).map_or(self.blocks, |next| next.first_block as usize);
        let frame = self.frames.get(number)?;
        Some((frame.length, frame.first_block as usize..end))
    }

    /// Returns the frame that begins at that offset: its length and its blocks. An outline knows none.
    pub fn at(&self, offset: u64) -> Option<(u32, &[BlockId])> {
        let (length, blocks) = self.frame(offset)?;
        Some((length, self.ids.get(blocks)?))
    }

    /// Returns the addresses of all frames.
    pub fn addresses(&self, pack: u32) -> Vec<FrameAddress> {
        let address = |frame: &ListedFrame| FrameAddress { pack, offset: frame.offset, length: frame.length };
        self.frames.iter().map(address).collect()
    }
}

/// The directories in use, the most recently used at the end.
#[derive(Debug, Default)]
pub struct Directories(Mutex<VecDeque<(u32, Arc<FrameList>)>>);

impl Directories {
    /// Returns the directory of a pack, if it is kept.
    pub fn get(&self, ordinal: u32) -> Option<Arc<FrameList>> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(|(known, _)| *known == ordinal)?;
        if at + 1 < kept.len() {
            let found = kept.remove(at)?;
            kept.push_back(found);
        }
        kept.back().map(|(_, list)| Arc::clone(list))
    }

    /// Keeps the directory of a pack, and drops others if they are too many.
    pub fn add(&self, ordinal: u32, list: &Arc<FrameList>) {
        let mut kept = self.0.lock();
        kept.retain(|(known, _)| *known != ordinal);
        kept.push_back((ordinal, Arc::clone(list)));
        let mut bytes: usize = kept.iter().map(|(_, list)| list.memory_bytes()).sum();
        while bytes > DIRECTORIES_BYTES_MAX && kept.len() > 1 {
            bytes -= kept.pop_front().map_or(0, |(_, list)| list.memory_bytes());
        }
    }
}

/// Returns the entries of all blocks in a pack's directory. Their pack numbers are set when they are added to an index.
pub fn entries_of(directory: &PackDirectory) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(directory.blocks());
    for (frame, ids) in directory.iter() {
        let (offset, length) = (frame.offset, frame.whole_length() as u32);
        let listed = (0_u16..).zip(ids);
        entries.extend(listed.map(|(slot, id)| Entry { id: *id, pack: 0, offset, slot, length }));
    }
    entries
}

/// Rebuilds a directory from the entries of the index. What readers of addresses need is exact; the lengths of frames before
/// compression are not known.
pub fn directory_of(entries: &[Entry]) -> PackDirectory {
    let mut directory = PackDirectory::default();
    for frame in entries.chunk_by(|one, next| one.offset == next.offset) {
        let Some(first) = frame.first() else { continue };
        let listed = frame.len() * BlockId::LEN;
        let row = FrameRow {
            offset: first.offset,
            packed_length: first.length.saturating_sub(listed as u32),
            raw_length: 0,
            kind: Kind::Data,
            blocks: frame.len() as u32,
        };
        directory.push(row, frame.iter().map(|entry| entry.id));
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_survives_the_index() {
        let mut directory = PackDirectory::default();
        for (offset, blocks) in [(64, 3), (900, 1)] {
            let packed_length = 400 + blocks;
            let row = FrameRow { offset, packed_length, raw_length: 0, kind: Kind::Data, blocks };
            directory.push(row, (0..blocks).map(|at| BlockId([offset as u8 + at as u8; 32])));
        }
        assert_eq!(directory_of(&entries_of(&directory)), directory);
        let list = FrameList::new(directory.clone());
        let address = directory.frames[1].address(7);
        assert_eq!(list.at(900), Some((address.length, &directory.ids[3..])));
        assert_eq!((list.at(65), list.addresses(7)[1]), (None, address));
        assert_eq!(list.place_of_ids(address), None, "this is no outline");
    }

    #[test]
    fn an_outline_tells_where_ids_are_a_few_times() {
        let row =
            |offset, blocks| FrameRow { offset, packed_length: 400, raw_length: 0, kind: Kind::Data, blocks };
        let rows = [row(64, 3), row(464, 1), row(864, 2)];
        let outline = FrameList::outline(&rows, 5_000);
        let places = rows.map(|row| outline.place_of_ids(row.address(7)));
        assert_eq!(places, [Some((5_000, 3)), Some((5_096, 1)), Some((5_128, 2))]);
        for wrong in [row(65, 3), row(464, 2)] {
            assert_eq!(outline.place_of_ids(wrong.address(7)), None);
        }
        assert!(rows.iter().all(|row| outline.at(row.offset).is_none()), "it has no ids");
        let places = (5..100).filter(|_| outline.place_of_ids(rows[0].address(7)).is_some()).count();
        assert_eq!(places as u32, OUTLINE_FRAMES_MAX - 5);
    }

    /// The directories that were used last stay, up to the limit; the one that was added last always stays.
    #[test]
    fn few_directories_are_kept() {
        let list = |blocks: usize| {
            let row = FrameRow {
                offset: 64,
                packed_length: 400,
                raw_length: 0,
                kind: Kind::Data,
                blocks: blocks as u32,
            };
            let mut directory = PackDirectory::default();
            directory.push(row, (0..blocks).map(|_| BlockId([1; 32])));
            directory.ids.shrink_to_fit();
            Arc::new(FrameList::new(directory))
        };
        let kept = Directories::default();
        let third = DIRECTORIES_BYTES_MAX / 3 / BlockId::LEN;
        for pack in 0..2 {
            kept.add(pack, &list(third - 100));
        }
        assert!(kept.get(0).is_some(), "it is used, so it stays longer than the other one");
        kept.add(2, &list(third + 200));
        assert!(kept.get(1).is_none());
        assert!(kept.get(0).is_some() && kept.get(2).is_some());
        kept.add(3, &list(4 * third));
        assert!((0..3).all(|pack| kept.get(pack).is_none()));
        assert!(kept.get(3).is_some());
    }
}
