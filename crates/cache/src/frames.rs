//! The index of a cache in memory: which frame has which block, which frames are used, pinned and durable, and what is evicted
//! next. It makes all decisions and accesses no files.
//!
//! It takes about 50 bytes per block, like the store's index. If several frames have a block, it counts only in the first one
//! added. A frame in which no block counts is dead, and disappears with its segment.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use platter_image::frame::packed_length;
use platter_image::{BlockId, BlockPlace, FrameAddress, Kind};
use platter_vfs::VfsFile;

use super::changes::{CacheChanges, Changes};
use super::options::CacheCounts;
use super::pins::{PinName, Pins};
use platter_pack::IdHash;

/// A segment is evicted only if at least 1/4 of its bytes are unpinned.
const GAIN_PART: u64 = 4;
/// At most 1/2 of these bytes are kept because they were used. So each eviction frees at least 1/8 of a segment.
const KEPT_PART: u64 = 2;

/// A frame in the cache.
#[derive(Clone, Debug)]
struct CachedFrame {
    offset: u32,
    /// Its length in the segment in bytes, without the ids of its blocks.
    length: u32,
    first_block: u32,
    kind: Kind,
    /// Number of its blocks that count here.
    live: u16,
    used: bool,
    hashed: bool,
    pinned: bool,
    dropped: bool,
}

/// A segment.
#[derive(Debug)]
struct Segment {
    file: Arc<dyn VfsFile>,
    frames: Vec<CachedFrame>,
    ids: Vec<BlockId>,
    length: u64,
    /// Bytes of it that are known to be durable, and whether its name is.
    synced_length: u64,
    name_synced: bool,
    pinned_bytes: u64,
}

/// The place of a block: its segment and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockSpot {
    segment: u32,
    block: u32,
}

/// A frame that stays when its segment is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Survivor {
    pub(super) address: FrameAddress,
    pub(super) pinned: bool,
}

/// The data needed to read a frame.
pub(super) struct ToRead {
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) kind: Kind,
    pub(super) ids: Vec<BlockId>,
    /// Whether its blocks were hashed since the cache was opened.
    pub(super) hashed: bool,
}

/// A segment that must be synced.
pub(super) struct Unsynced {
    pub(super) number: u32,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) length: u64,
}

/// The index of all frames.
#[derive(Debug)]
pub(super) struct Frames {
    hash: IdHash,
    table: HashTable<BlockSpot>,
    segments: BTreeMap<u32, Segment>,
    /// The newest segment, to which frames are appended.
    open: Option<u32>,
    pub(super) pins: Pins,
    changes: Changes,
    /// What is counted while it happens.
    pub(super) counts: CacheCounts,
}

impl Frames {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            hash: IdHash::new(),
            table: HashTable::new(),
            segments: BTreeMap::new(),
            open: None,
            pins: Pins::default(),
            changes: Changes::default(),
            counts: CacheCounts { limit_bytes, ..CacheCounts::default() },
        }
    }

    fn spot(&self, id: &BlockId) -> Option<BlockSpot> {
        let is_it = |spot: &BlockSpot| block_at(&self.segments, *spot) == Some(id);
        self.table.find(self.hash.of(id), is_it).copied()
    }

    pub(super) fn holds(&self, id: &BlockId) -> bool {
        self.spot(id).is_some()
    }

    /// Returns where a block of that kind is stored.
    pub(super) fn place(&self, kind: Kind, id: &BlockId) -> Option<BlockPlace> {
        let spot = self.spot(id)?;
        let segment = self.segments.get(&spot.segment)?;
        let number = segment.frame_of(spot.block);
        let held = &segment.frames[number];
        (held.kind == kind).then(|| BlockPlace {
            frame: segment.address(spot.segment, number),
            slot: spot.block - held.first_block,
        })
    }

    /// Counts a request and marks the frame that answers it as used. Frames of the newest segment are not marked: the reader for
    /// which they were fetched asks for them many times, which says nothing about later readers.
    pub(super) fn note_asked(&mut self, place: Option<BlockPlace>) {
        let Some(place) = place else {
            self.counts.misses += 1;
            return;
        };
        self.counts.hits += 1;
        if self.open != Some(place.frame.pack)
            && let Some(held) = self.held_mut(place.frame)
        {
            held.used = true;
        }
    }

    /// Returns what is needed to read the frame at an address.
    pub(super) fn to_read(&self, address: FrameAddress) -> Option<ToRead> {
        let segment = self.segments.get(&address.pack)?;
        let number = segment.find(address)?;
        let held = &segment.frames[number];
        let ids = segment.blocks_of(number).to_vec();
        Some(ToRead { file: segment.file.clone(), kind: held.kind, ids, hashed: held.hashed })
    }

    /// Records that all blocks of a frame were hashed.
    pub(super) fn set_hashed(&mut self, address: FrameAddress) {
        if let Some(held) = self.held_mut(address) {
            held.hashed = true;
        }
    }

    fn held_mut(&mut self, address: FrameAddress) -> Option<&mut CachedFrame> {
        let segment = self.segments.get_mut(&address.pack)?;
        let number = segment.find(address)?;
        Some(&mut segment.frames[number])
    }

    /// Adds a segment without frames. With `is_open`, it is the newest one.
    pub(super) fn add_segment(&mut self, number: u32, file: Arc<dyn VfsFile>, length: u64, is_open: bool) {
        let segment = Segment {
            file,
            frames: Vec::new(),
            ids: Vec::new(),
            length,
            synced_length: 0,
            name_synced: false,
            pinned_bytes: 0,
        };
        self.segments.insert(number, segment);
        if is_open {
            self.open = Some(number);
        }
    }

    /// Makes that segment the newest one.
    pub(super) fn set_open(&mut self, number: u32) {
        self.open = Some(number);
    }

    /// Sets the length of a segment's file. With `is_open` false, the segment is no longer the newest one.
    pub(super) fn set_length(&mut self, number: u32, length: u64, is_open: bool) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.length = length;
        }
        if !is_open && self.open == Some(number) {
            self.open = None;
        }
    }

    /// Adds a frame after the others of its segment. Blocks that are already held keep their places.
    pub(super) fn push(&mut self, address: FrameAddress, kind: Kind, ids: &[BlockId], hashed: bool) {
        let Some(segment) = self.segments.get_mut(&address.pack) else { return };
        let first_block = segment.ids.len() as u32;
        segment.ids.extend_from_slice(ids);
        segment.frames.push(CachedFrame {
            offset: address.offset as u32,
            length: packed_length(address.length as usize, ids.len()) as u32,
            first_block,
            kind,
            live: 0,
            used: false,
            hashed,
            pinned: false,
            dropped: false,
        });
        self.revive(address);
    }

    /// Makes the blocks of a frame count there, unless they are held elsewhere.
    pub(super) fn revive(&mut self, address: FrameAddress) {
        let Some(segment) = self.segments.get(&address.pack) else { return };
        let Some(number) = segment.find(address) else { return };
        let blocks = segment.frames[number].first_block..segment.blocks_end(number);
        let ids = segment.blocks_of(number).to_vec();
        let mut live = 0;
        for (block, id) in blocks.zip(&ids) {
            let (hash, segments) = (self.hash, &self.segments);
            let entry = self.table.entry(
                hash.of(id),
                |other| block_at(segments, *other) == Some(id),
                |other| block_at(segments, *other).map_or(0, |id| hash.of(id)),
            );
            if let Entry::Vacant(entry) = entry {
                entry.insert(BlockSpot { segment: address.pack, block });
                self.changes.push(*id, true);
                live += 1;
            }
        }
        let pinned = ids.iter().any(|id| self.pins.has(id));
        if let Some(segment) = self.segments.get_mut(&address.pack) {
            segment.frames[number].live += live;
            segment.set_pinned(number, pinned && segment.frames[number].live > 0);
        }
    }

    /// Drops a frame: its blocks that counted there are no longer held. Returns whether it existed.
    pub(super) fn drop_frame(&mut self, address: FrameAddress) -> bool {
        let Some(segment) = self.segments.get_mut(&address.pack) else { return false };
        let Some(number) = segment.find(address) else { return false };
        let held = &mut segment.frames[number];
        (held.live, held.dropped) = (0, true);
        if std::mem::take(&mut held.pinned) {
            segment.pinned_bytes -= u64::from(held.length);
        }
        let blocks = held.first_block..segment.blocks_end(number);
        let ids = segment.blocks_of(number).to_vec();
        for (block, id) in blocks.zip(&ids) {
            let own = BlockSpot { segment: address.pack, block };
            if let Ok(entry) = self.table.find_entry(self.hash.of(id), |spot| *spot == own) {
                entry.remove();
                self.changes.push(*id, false);
            }
        }
        true
    }

    /// Drops all frames of a segment. Returns how many of them had blocks that counted.
    pub(super) fn remove_segment(&mut self, number: u32) -> u64 {
        let addresses = self.segments.get(&number).map(|segment| segment.addresses(number));
        let mut counted = 0;
        for (address, live) in addresses.unwrap_or_default() {
            counted += u64::from(self.drop_frame(address) && live);
        }
        self.segments.remove(&number);
        if self.open == Some(number) {
            self.open = None;
        }
        counted
    }

    /// Bytes of all files but the segment that grows.
    pub(super) fn sealed_bytes(&self) -> u64 {
        let others = self.segments.iter().filter(|(number, _)| self.open != Some(**number));
        others.map(|(_, segment)| segment.length).sum::<u64>() + self.pins.file_bytes()
    }

    /// Returns the segments that may be evicted, the oldest first: those of which enough is not pinned.
    pub(super) fn victims(&self) -> Vec<(u32, Arc<dyn VfsFile>)> {
        let is_worth_it = |segment: &Segment| {
            segment.length.saturating_sub(segment.pinned_bytes) * GAIN_PART >= segment.length
        };
        let others = self.segments.iter().filter(|(number, _)| self.open != Some(**number));
        let worth = others.filter(|(_, segment)| is_worth_it(segment));
        worth.map(|(number, segment)| (*number, segment.file.clone())).collect()
    }

    /// Returns the frames that stay when a segment is evicted: all pinned ones, and some of the used ones, newest first.
    pub(super) fn survivors(&self, number: u32) -> Vec<Survivor> {
        let Some(segment) = self.segments.get(&number) else { return Vec::new() };
        let mut room = segment.length.saturating_sub(segment.pinned_bytes) / KEPT_PART;
        let mut stay = Vec::new();
        for (at, held) in segment.frames.iter().enumerate().rev().filter(|(_, held)| held.live > 0) {
            let length = u64::from(held.length);
            let kept = held.used && length <= room;
            if !held.pinned && !kept {
                continue;
            }
            room -= if held.pinned { 0 } else { length };
            stay.push(Survivor { address: segment.address(number, at), pinned: held.pinned });
        }
        stay.reverse();
        stay
    }

    /// Sets the ids of a set of pins, or removes it. `old` are its previous ids, if known.
    pub(super) fn set_pins(
        &mut self,
        set: &PinName,
        ids: Option<(&[BlockId], u64)>,
        old: Option<&[BlockId]>,
    ) {
        let was_there = match ids {
            Some((ids, length)) => self.pins.insert(set.clone(), ids, length),
            None => self.pins.remove(set),
        };
        for id in ids.map_or(&[][..], |(ids, _)| ids) {
            self.update_pinned(id);
        }
        match old {
            Some(old) => old.iter().for_each(|id| self.update_pinned(id)),
            None if was_there => self.update_all_pinned(),
            None => {}
        }
    }

    /// Updates whether the frame with that block is pinned.
    fn update_pinned(&mut self, id: &BlockId) {
        let Some(spot) = self.spot(id) else { return };
        let Some(segment) = self.segments.get_mut(&spot.segment) else { return };
        let number = segment.frame_of(spot.block);
        let pinned = segment.blocks_of(number).iter().any(|id| self.pins.has(id));
        segment.set_pinned(number, pinned);
    }

    /// Updates whether frames are pinned, for all frames.
    pub(super) fn update_all_pinned(&mut self) {
        for segment in self.segments.values_mut() {
            for number in 0..segment.frames.len() {
                let pinned = segment.frames[number].live > 0
                    && segment.blocks_of(number).iter().any(|id| self.pins.has(id));
                segment.set_pinned(number, pinned);
            }
        }
    }

    /// Returns the segments whose bytes or name may not be durable.
    pub(super) fn unsynced(&self) -> Vec<Unsynced> {
        let is_unsynced = |segment: &Segment| !segment.name_synced || segment.synced_length < segment.length;
        let unsynced = self.segments.iter().filter(|(_, segment)| is_unsynced(segment));
        unsynced
            .map(|(number, segment)| Unsynced {
                number: *number,
                file: segment.file.clone(),
                length: segment.length,
            })
            .collect()
    }

    /// Records that the first `length` bytes of a segment are durable.
    pub(super) fn set_synced(&mut self, number: u32, length: u64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.synced_length = segment.synced_length.max(length);
        }
    }

    /// Records that the names of these segments are durable.
    pub(super) fn set_names_synced(&mut self, numbers: &[u32]) {
        for number in numbers {
            if let Some(segment) = self.segments.get_mut(number) {
                segment.name_synced = true;
            }
        }
    }

    /// Handles a failed sync of a segment or its name: drops the frames that were not durable before.
    pub(super) fn drop_unsynced(&mut self, number: u32) {
        let Some(segment) = self.segments.get(&number) else { return };
        let durable = if segment.name_synced { segment.synced_length } else { 0 };
        let is_durable = |held: &CachedFrame| u64::from(held.offset) + u64::from(held.length) <= durable;
        let first = segment.frames.partition_point(is_durable);
        let in_doubt: Vec<FrameAddress> =
            (first..segment.frames.len()).map(|at| segment.address(number, at)).collect();
        for address in in_doubt {
            self.drop_frame(address);
        }
    }

    pub(super) fn changes(&self, since: u64) -> CacheChanges {
        self.changes.since(since).unwrap_or_else(|| CacheChanges {
            added: self.table.iter().filter_map(|spot| block_at(&self.segments, *spot).copied()).collect(),
            dropped: Vec::new(),
            whole: true,
            mark: self.changes.mark(),
        })
    }

    pub(super) fn counts(&self) -> CacheCounts {
        let lengths = self.segments.values().map(|segment| segment.length);
        CacheCounts {
            blocks: self.table.len() as u64,
            bytes: lengths.sum::<u64>() + self.pins.file_bytes(),
            pinned_bytes: self.segments.values().map(|segment| segment.pinned_bytes).sum(),
            ..self.counts
        }
    }
}

impl Segment {
    /// Returns the number of the frame that has that block.
    fn frame_of(&self, block: u32) -> usize {
        self.frames.partition_point(|held| held.first_block <= block) - 1
    }

    fn find(&self, address: FrameAddress) -> Option<usize> {
        let number = self.frames.binary_search_by_key(&address.offset, |held| u64::from(held.offset)).ok()?;
        let is_it = self.address(address.pack, number) == address && !self.frames[number].dropped;
        is_it.then_some(number)
    }

    fn blocks_end(&self, number: usize) -> u32 {
        self.frames.get(number + 1).map_or(self.ids.len() as u32, |next| next.first_block)
    }

    fn blocks_of(&self, number: usize) -> &[BlockId] {
        &self.ids[self.frames[number].first_block as usize..self.blocks_end(number) as usize]
    }

    fn set_pinned(&mut self, number: usize, pinned: bool) {
        let held = &mut self.frames[number];
        if held.pinned != pinned {
            held.pinned = pinned;
            let length = u64::from(held.length);
            self.pinned_bytes = if pinned { self.pinned_bytes + length } else { self.pinned_bytes - length };
        }
    }

    /// Returns the addresses of its frames that were not dropped, and whether any of their blocks counts.
    fn addresses(&self, number: u32) -> Vec<(FrameAddress, bool)> {
        let there = self.frames.iter().enumerate().filter(|(_, held)| !held.dropped);
        there.map(|(at, held)| (self.address(number, at), held.live > 0)).collect()
    }

    /// Returns the address of a frame. `segment` is the number of this segment.
    fn address(&self, segment: u32, number: usize) -> FrameAddress {
        let held = &self.frames[number];
        let ids = (self.blocks_end(number) - held.first_block) * BlockId::LEN as u32;
        FrameAddress { pack: segment, offset: u64::from(held.offset), length: held.length + ids }
    }
}

fn block_at(segments: &BTreeMap<u32, Segment>, spot: BlockSpot) -> Option<&BlockId> {
    segments.get(&spot.segment)?.ids.get(spot.block as usize)
}
