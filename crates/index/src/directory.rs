//! Which blocks a frame has: the directories of packs, kept in memory up to a limit, and their conversion to entries of the index and
//! back.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{BlockId, FrameAddress, Kind};
use platter_pack::{FrameRow, PackDirectory};

use crate::entry::Entry;

/// Maximum bytes of footers that are kept. The footer of a full pack has about 400 KB.
const DIRECTORIES_BYTES_MAX: usize = 32 << 20;

/// The directory of a pack, for finding a frame by its offset.
#[derive(Debug)]
pub struct FrameList {
    frames: Vec<ListedFrame>,
    ids: Vec<BlockId>,
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
        let mut first_block = 0;
        let frames = directory.frames.iter().map(|row| {
            let frame = ListedFrame { offset: row.offset, length: row.whole_length() as u32, first_block };
            first_block += row.blocks;
            frame
        });
        Self { frames: frames.collect(), ids: directory.ids }
    }

    fn memory_bytes(&self) -> usize {
        self.frames.capacity() * size_of::<ListedFrame>() + self.ids.capacity() * BlockId::LEN
    }

    /// Returns the frame that begins at that offset: its length and its blocks.
    pub fn at(&self, offset: u64) -> Option<(u32, &[BlockId])> {
        let number = self.frames.binary_search_by_key(&offset, |frame| frame.offset).ok()?;
        let end = self.frames.get(number + 1).map_or(self.ids.len(), |next| next.first_block as usize);
        let frame = self.frames.get(number)?;
        Some((frame.length, self.ids.get(frame.first_block as usize..end)?))
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
