//! An index in memory: where blocks are stored. A session has one for its own blocks, a hoard for all, and a store for the packs that
//! its index on disk does not cover.
//!
//! It takes about 45 bytes per block: 32 for the id, 4 and some slack in a hash table of ordinals, and a share of the 16 bytes
//! of its frame. The ids of a frame are consecutive in one list, so a block's ordinal determines its frame and slot.
//!
//! A frame that was found bad stays in the index, so that reading its blocks reports damage and not a missing block. If a sound
//! frame has a copy of the block, that copy is found instead. The packs that collection gives up stay in the index as well, so
//! that whoever planned their frames can read them; blocks are found there only if no other pack has them.
//!
//! Whoever makes blocks can choose their ids to some degree, so the table's hash is salted.

use std::collections::{BTreeSet, HashSet};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use platter_image::{BlockId, BlockPlace, Error, FrameAddress, Result};
use platter_pack::IdHash;

/// Maximum number of blocks: ordinals have 32 bits.
const BLOCKS_MAX: usize = u32::MAX as usize;

/// A frame, and the ordinal of its first block. Its blocks end where those of the next frame begin.
#[derive(Clone, Copy, Debug)]
struct IndexedFrame {
    offset: u64,
    length: u32,
    first_block: u32,
}

/// Consecutive frames of one pack, in order of their offsets.
#[derive(Clone, Copy, Debug)]
struct Run {
    pack: u32,
    first_frame: usize,
}

/// The number of a run, with its pack.
#[derive(Clone, Copy, Debug)]
struct RunOfPack {
    pack: u32,
    run: u32,
}

/// A map from blocks to the frames that hold them.
#[derive(Debug)]
pub struct Index {
    hash: IdHash,
    ids: Vec<BlockId>,
    table: HashTable<u32>,
    frames: Vec<IndexedFrame>,
    runs: Vec<Run>,
    /// All runs, ordered by pack.
    by_pack: Vec<RunOfPack>,
    /// Numbers of frames that were found bad. The table refers to a block in a bad frame only if no sound frame has it.
    bad: BTreeSet<usize>,
    /// Packs that are being given up. The table refers to a block in one of them only if no sound frame of another pack has it.
    demoted: BTreeSet<u32>,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// Makes an empty index.
    pub fn new() -> Self {
        Self {
            hash: IdHash::new(),
            ids: Vec::new(),
            table: HashTable::new(),
            frames: Vec::new(),
            runs: Vec::new(),
            by_pack: Vec::new(),
            bad: BTreeSet::new(),
            demoted: BTreeSet::new(),
        }
    }

    /// Reserves space for more blocks and frames.
    pub fn reserve(&mut self, blocks: usize, frames: usize) {
        let (hash, ids) = (self.hash, &self.ids);
        self.table.reserve(blocks, |ordinal| hash.of(&ids[*ordinal as usize]));
        self.ids.reserve(blocks);
        self.frames.reserve(frames);
    }

    /// Adds a frame and its blocks. A block that the index already has keeps its first place, unless that frame is bad or its
    /// pack is demoted, and the new one is neither.
    ///
    /// # Errors
    /// `Refused` when the index is full.
    pub fn push_frame(&mut self, frame: FrameAddress, blocks: impl Iterator<Item = BlockId>) -> Result<()> {
        let follows = |last: &IndexedFrame| last.offset < frame.offset;
        if self.runs.last().is_none_or(|run| run.pack != frame.pack)
            || !self.frames.last().is_some_and(follows)
        {
            // Packs mostly come in the order of their numbers, so this is mostly an append.
            let at = self.by_pack.partition_point(|run| run.pack <= frame.pack);
            self.by_pack.insert(at, RunOfPack { pack: frame.pack, run: self.runs.len() as u32 });
            self.runs.push(Run { pack: frame.pack, first_frame: self.frames.len() });
        }
        let first_block = self.ids.len() as u32;
        self.frames.push(IndexedFrame { offset: frame.offset, length: frame.length, first_block });
        let is_preferred = !self.demoted.contains(&frame.pack);
        for id in blocks {
            if self.ids.len() == BLOCKS_MAX {
                return Err(Error::refused(format!("the store has more than {BLOCKS_MAX} blocks: split it")));
            }
            let ordinal = self.ids.len() as u32;
            self.ids.push(id);
            let (hash, ids) = (self.hash, &self.ids);
            let entry = self.table.entry(
                hash.of(&id),
                |other| ids[*other as usize] == id,
                |other| hash.of(&ids[*other as usize]),
            );
            match entry {
                Entry::Vacant(entry) => drop(entry.insert(ordinal)),
                Entry::Occupied(mut entry) => {
                    let known = number_of(&self.frames, *entry.get());
                    if is_preferred && rank(&self.bad, &self.demoted, &self.runs, known) > 0 {
                        *entry.get_mut() = ordinal;
                    }
                }
            }
        }
        Ok(())
    }

    /// Marks frames as bad. Their blocks are then located in sound frames, where such copies exist. Returns how many frames were
    /// newly marked.
    pub fn condemn(&mut self, frames: &[FrameAddress]) -> usize {
        let numbers = frames.iter().filter_map(|address| self.number_at(*address));
        let new: Vec<usize> = numbers.filter(|number| !self.bad.contains(number)).collect();
        self.bad.extend(&new);
        let wanted = new.iter().flat_map(|number| self.ids_of(*number)).copied().collect();
        self.prefer_others(&wanted);
        new.len()
    }

    /// Marks packs as being given up. Their blocks are then located in other packs, where sound copies exist.
    pub fn demote(&mut self, packs: &BTreeSet<u32>) {
        let new: BTreeSet<u32> = packs.difference(&self.demoted).copied().collect();
        self.demoted.extend(&new);
        let frames = self.frames().filter(|(address, _)| new.contains(&address.pack));
        let wanted = frames.flat_map(|(_, ids)| ids).copied().collect();
        self.prefer_others(&wanted);
    }

    /// Marks a pack as staying. Blocks that other packs have as well can still be located there.
    pub fn promote(&mut self, pack: u32) {
        self.demoted.remove(&pack);
    }

    /// Makes the table refer to the best frame of each of these blocks.
    fn prefer_others(&mut self, wanted: &HashSet<BlockId>) {
        if wanted.is_empty() {
            return;
        }
        let (ids, frames) = (&self.ids, &self.frames);
        let rank = |ordinal: u32| rank(&self.bad, &self.demoted, &self.runs, number_of(frames, ordinal));
        for (ordinal, id) in ids.iter().enumerate().filter(|(_, id)| wanted.contains(*id)) {
            let known = self.table.find_mut(self.hash.of(id), |other| ids[*other as usize] == *id);
            if let Some(known) = known
                && rank(ordinal as u32) < rank(*known)
            {
                *known = ordinal as u32;
            }
        }
    }

    /// Returns the frames that were found bad.
    pub fn bad_frames(&self) -> impl Iterator<Item = FrameAddress> {
        self.bad.iter().map(|number| self.address(*number))
    }

    /// Returns the packs of all frames, some of them several times.
    pub fn packs(&self) -> impl Iterator<Item = u32> {
        self.by_pack.iter().map(|run| run.pack)
    }

    /// Removes the frames of other packs than those that `keeps` names. Forgets which frames are bad and which packs are demoted.
    pub fn retain_packs(&mut self, keeps: impl Fn(u32) -> bool) {
        let mut kept = Self::new();
        for (address, ids) in self.frames().filter(|(address, _)| keeps(address.pack)) {
            // It has fewer blocks than before, so it is not full.
            let _ = kept.push_frame(address, ids.iter().copied());
        }
        *self = kept;
    }

    /// Adds all entries of another index. The smaller of the two is copied into the larger, so a block in both gets the place
    /// from the larger one.
    ///
    /// # Errors
    /// `Refused` when the index is full.
    pub fn absorb(&mut self, mut other: Self) -> Result<()> {
        if other.ids.len() > self.ids.len() {
            std::mem::swap(self, &mut other);
        }
        self.reserve(other.ids.len(), other.frames.len());
        for (address, ids) in other.frames() {
            self.push_frame(address, ids.iter().copied())?;
        }
        let bad: Vec<FrameAddress> = other.bad.iter().map(|number| other.address(*number)).collect();
        self.condemn(&bad);
        self.demote(&other.demoted);
        Ok(())
    }

    /// Returns where a block is stored: in a bad frame only if no sound frame has it, and in a demoted pack only if no other has it.
    pub fn locate(&self, id: &BlockId) -> Option<BlockPlace> {
        self.find(id).map(|(number, slot)| BlockPlace { frame: self.address(number), slot })
    }

    /// Returns where a block is stored in a frame that was not found bad.
    pub fn locate_sound(&self, id: &BlockId) -> Option<BlockPlace> {
        let (number, slot) = self.find(id)?;
        (self.bad.is_empty() || !self.bad.contains(&number))
            .then(|| BlockPlace { frame: self.address(number), slot })
    }

    /// Returns the number of the frame that holds a block, and the block's slot there.
    fn find(&self, id: &BlockId) -> Option<(usize, u32)> {
        let ordinal = *self.table.find(self.hash.of(id), |other| self.ids[*other as usize] == *id)?;
        let number = number_of(&self.frames, ordinal);
        Some((number, ordinal - self.frames[number].first_block))
    }

    /// Returns the blocks of the frame at that address, in order.
    pub fn ids_at(&self, address: FrameAddress) -> Option<&[BlockId]> {
        self.number_at(address).map(|number| self.ids_of(number))
    }

    /// Returns the frames that follow the one at that address in the same pack, in order, with their blocks.
    pub fn frames_behind(&self, address: FrameAddress) -> impl Iterator<Item = (FrameAddress, &[BlockId])> {
        let numbers = self.number_at(address).map_or(0..0, |number| number + 1..self.frames.len());
        let frames = numbers.map(|number| (self.address(number), self.ids_of(number)));
        frames.take_while(move |(behind, _)| behind.pack == address.pack && behind.offset > address.offset)
    }

    /// Returns the number of the frame at that address.
    fn number_at(&self, address: FrameAddress) -> Option<usize> {
        let number = self.number_from(address.pack, address.offset)?;
        (self.frames[number].length == address.length).then_some(number)
    }

    /// Returns the address of the frame that begins at that offset of a pack.
    pub fn address_at(&self, pack: u32, offset: u64) -> Option<FrameAddress> {
        self.number_from(pack, offset).map(|number| self.address(number))
    }

    /// Returns the number of the frame that begins at that offset of a pack.
    fn number_from(&self, pack: u32, offset: u64) -> Option<usize> {
        let first = self.by_pack.partition_point(|run| run.pack < pack);
        let runs = self.by_pack[first..].iter().take_while(|run| run.pack == pack);
        runs.map(|run| run.run as usize).find_map(|run| {
            let start = self.runs[run].first_frame;
            let end = self.runs.get(run + 1).map_or(self.frames.len(), |next| next.first_frame);
            let frames = &self.frames[start..end];
            let found = frames.binary_search_by_key(&offset, |frame| frame.offset).ok()?;
            Some(start + found)
        })
    }

    /// Returns the ids of the blocks of a frame, by its number.
    fn ids_of(&self, number: usize) -> &[BlockId] {
        let end = self.frames.get(number + 1).map_or(self.ids.len(), |next| next.first_block as usize);
        &self.ids[self.frames[number].first_block as usize..end]
    }

    /// Returns all frames with their blocks, in the order in which they were added.
    pub fn frames(&self) -> impl Iterator<Item = (FrameAddress, &[BlockId])> {
        (0..self.frames.len()).map(|number| (self.address(number), self.ids_of(number)))
    }

    /// Returns the memory in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.ids.capacity() * BlockId::LEN
            + self.table.allocation_size()
            + self.frames.capacity() * size_of::<IndexedFrame>()
            + self.runs.capacity() * size_of::<Run>()
            + self.by_pack.capacity() * size_of::<RunOfPack>()
    }

    /// Returns the number of distinct blocks.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the index has no blocks.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn address(&self, number: usize) -> FrameAddress {
        let run = self.runs.partition_point(|run| run.first_frame <= number) - 1;
        let frame = self.frames[number];
        FrameAddress { pack: self.runs[run].pack, length: frame.length, offset: frame.offset }
    }
}

/// Returns how little a frame is preferred: 2 if it is bad, plus 1 if its pack is demoted.
fn rank(bad: &BTreeSet<usize>, demoted: &BTreeSet<u32>, runs: &[Run], number: usize) -> u8 {
    let is_bad = !bad.is_empty() && bad.contains(&number);
    let is_demoted =
        || demoted.contains(&runs[runs.partition_point(|run| run.first_frame <= number) - 1].pack);
    2 * u8::from(is_bad) + u8::from(!demoted.is_empty() && is_demoted())
}

/// Returns the number of the frame that holds the block with that ordinal.
fn number_of(frames: &[IndexedFrame], ordinal: u32) -> usize {
    frames.partition_point(|frame| frame.first_block <= ordinal) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn id(number: u16) -> BlockId {
        let mut id = BlockId([0; 32]);
        id.0[..2].copy_from_slice(&number.to_le_bytes());
        id
    }

    proptest! {
        /// An index maps a block to the first place at which it was added. Two merged indexes map it to the first place in
        /// either of them.
        #[test]
        fn behaves_like_a_map(
            frames in prop::collection::vec((0..4_u32, prop::collection::vec(0..200_u16, 1..9)), 0..60),
            split in 0..60_usize,
        ) {
            let mut models: [BTreeMap<u16, BlockPlace>; 2] = Default::default();
            let mut parts = [Index::new(), Index::new()];
            for (number, (pack, blocks)) in frames.iter().enumerate() {
                let frame = FrameAddress { pack: *pack, length: number as u32 + 1, offset: number as u64 * 1000 };
                let part = usize::from(number >= split);
                parts[part].push_frame(frame, blocks.iter().map(|number| id(*number))).unwrap();
                for (slot, block) in blocks.iter().enumerate() {
                    models[part].entry(*block).or_insert(BlockPlace { frame, slot: slot as u32 });
                }
            }
            for (part, model) in parts.iter().zip(&models) {
                prop_assert_eq!(part.len(), model.len());
                prop_assert!((0..256).all(|number| part.locate(&id(number)) == model.get(&number).copied()));
            }
            for (number, (pack, blocks)) in frames.iter().enumerate() {
                let frame = FrameAddress { pack: *pack, length: number as u32 + 1, offset: number as u64 * 1000 };
                let part = &parts[usize::from(number >= split)];
                let ids: Vec<BlockId> = blocks.iter().map(|number| id(*number)).collect();
                prop_assert_eq!(part.ids_at(frame), Some(&ids[..]));
                prop_assert_eq!(part.ids_at(FrameAddress { offset: frame.offset + 1, ..frame }), None);
                let behind: Vec<u64> = part.frames_behind(frame).map(|(address, _)| address.offset).collect();
                let range = if number >= split { number + 1..frames.len() } else { number + 1..split.min(frames.len()) };
                let expected = range.take_while(|other| frames[*other].0 == *pack).map(|other| other as u64 * 1000);
                prop_assert!(behind == expected.collect::<Vec<_>>());
            }
            let [mut index, rest] = parts;
            index.absorb(rest).unwrap();
            for (number, (pack, blocks)) in frames.iter().enumerate() {
                let frame = FrameAddress { pack: *pack, length: number as u32 + 1, offset: number as u64 * 1000 };
                let ids: Vec<BlockId> = blocks.iter().map(|number| id(*number)).collect();
                prop_assert_eq!(index.ids_at(frame), Some(&ids[..]));
                prop_assert_eq!(index.ids_at(FrameAddress { length: frame.length + 1, ..frame }), None);
            }
            let all: BTreeSet<u16> = models.iter().flat_map(BTreeMap::keys).copied().collect();
            prop_assert_eq!(index.len(), all.len());
            for number in 0..256 {
                let place = index.locate(&id(number));
                let known = models.iter().filter_map(|model| model.get(&number)).any(|known| place == Some(*known));
                prop_assert!(known || (place.is_none() && !all.contains(&number)));
            }
        }

        /// Frames may be marked bad before or after others are added or indexes are merged. A block in a sound frame is found
        /// there. A block in bad frames only is found in one of these and is not sound.
        #[test]
        fn bad_frames_are_found_only_without_a_sound_copy(
            frames in prop::collection::vec(
                (0..3_u32, prop::collection::vec(0..40_u16, 1..6), any::<bool>()), 1..50),
            split in 0..50_usize,
            condemn_at in 0..60_usize,
        ) {
            let address = |number: usize| FrameAddress {
                pack: frames[number].0, length: number as u32 + 1, offset: number as u64 * 1000
            };
            let bad = |upto: usize| -> Vec<FrameAddress> {
                (0..upto.min(frames.len())).filter(|number| frames[*number].2).map(address).collect()
            };
            let mut parts = [Index::new(), Index::new()];
            for (number, (_, blocks, _)) in frames.iter().enumerate() {
                let part = usize::from(number >= split);
                parts[part].push_frame(address(number), blocks.iter().map(|number| id(*number))).unwrap();
                if number == condemn_at {
                    for part in &mut parts {
                        part.condemn(&bad(number + 1));
                    }
                }
            }
            let [mut index, rest] = parts;
            index.absorb(rest).unwrap();
            index.condemn(&bad(frames.len()));
            prop_assert_eq!(index.condemn(&bad(frames.len())), 0);
            let has = |block: u16, is_bad: bool| {
                frames.iter().any(|(_, blocks, bad)| *bad == is_bad && blocks.contains(&block))
            };
            for block in 0..40 {
                let place = index.locate(&id(block));
                prop_assert_eq!(place.is_some(), has(block, true) || has(block, false));
                prop_assert_eq!(index.locate_sound(&id(block)).is_some(), has(block, false));
                let is_bad = place.is_some_and(|place| index.bad_frames().any(|bad| bad == place.frame));
                prop_assert_eq!(is_bad, place.is_some() && !has(block, false));
                prop_assert_eq!(place.is_some() && index.locate_sound(&id(block)).is_none(), is_bad);
            }
        }
    }
}
