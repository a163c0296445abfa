//! Finds blocks.
//!
//! A frame that was found bad stays in the index, so that reading its blocks reports damage and not a missing block. If a sound
//! frame has a copy of the block, that copy is found instead. The packs that collection gives up stay as well, so that whoever
//! planned their frames can read them; blocks are found there only if no other pack has them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use platter_image::{BlockId, BlockPlace, Error, FrameAddress, Result};
use platter_index::{Entry, Index, Snapshot};

use platter_pack::PackDirectory;
use platter_records::PackId;

/// The index on disk could not be read.
#[derive(Debug)]
pub(crate) struct IndexError(pub(super) Error);

/// A map from blocks to the frames that hold them.
#[derive(Debug, Default)]
pub(crate) struct BlockIndex {
    memory: Index,
    disk: Option<DiskIndex>,
    /// Frames that were found bad, by the ordinals of their packs and their offsets.
    bad: BTreeSet<(u32, u64)>,
    /// Packs that are being given up.
    demoted: BTreeSet<u32>,
    /// Packs that stay in memory although the catalog lists them: their files or footers are damaged.
    only_in_memory: BTreeSet<u32>,
}

/// The index on disk, and the packs for which it is used.
#[derive(Debug)]
struct DiskIndex {
    snapshot: Arc<Snapshot>,
    /// The ordinals of packs, by their numbers in the index.
    ordinals: HashMap<u32, u32>,
    /// The reverse.
    numbers: HashMap<u32, u32>,
}

impl BlockIndex {
    /// Returns where a block is stored: in a bad frame only if no sound frame has it, and in a demoted pack only if no other has it.
    pub(crate) fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>, IndexError> {
        Ok(self.best(id)?.map(|(place, _)| place))
    }

    /// Returns where a block is stored in a frame that was not found bad.
    pub(crate) fn locate_sound(&self, id: &BlockId) -> Result<Option<BlockPlace>, IndexError> {
        Ok(self.best(id)?.filter(|(_, rank)| *rank < BAD).map(|(place, _)| place))
    }

    /// Returns where a block is stored, unless the only sound frame with it is in a demoted pack.
    pub(crate) fn locate_kept(&self, id: &BlockId) -> Result<Option<BlockPlace>, IndexError> {
        Ok(self.best(id)?.filter(|(_, rank)| *rank == 0).map(|(place, _)| place))
    }

    /// Returns a pack that the index on disk lists for a block, whether it is used for that pack or not.
    pub(crate) fn pack_that_had(&self, id: &BlockId) -> Result<Option<PackId>, IndexError> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let mut found: Vec<Entry> = Vec::new();
        disk.snapshot.find(id, &mut found).map_err(IndexError)?;
        let number = found.first().map(|entry| entry.pack);
        Ok(disk.snapshot.packs().iter().find(|pack| Some(pack.number) == number).map(|pack| pack.id))
    }

    /// Returns the most preferred place of a block, with its rank.
    fn best(&self, id: &BlockId) -> Result<Option<(BlockPlace, u8)>, IndexError> {
        let ranked = |place: BlockPlace| (place, self.rank(place.frame));
        let mut best = self.memory.locate(id).map(ranked);
        let Some(disk) = &self.disk else { return Ok(best) };
        if best.is_some_and(|(_, rank)| rank == 0) {
            return Ok(best);
        }
        let mut found: Vec<Entry> = Vec::new();
        disk.snapshot.find(id, &mut found).map_err(IndexError)?;
        for entry in found {
            let Some(pack) = disk.ordinals.get(&entry.pack) else { continue };
            let frame = FrameAddress { pack: *pack, offset: entry.offset, length: entry.length };
            let new = ranked(BlockPlace { frame, slot: u32::from(entry.slot) });
            if best.is_none_or(|(_, rank)| new.1 < rank) {
                best = Some(new);
            }
        }
        Ok(best)
    }

    /// Returns how little a frame is preferred.
    fn rank(&self, frame: FrameAddress) -> u8 {
        let is_bad = !self.bad.is_empty() && self.bad.contains(&(frame.pack, frame.offset));
        let is_demoted = !self.demoted.is_empty() && self.demoted.contains(&frame.pack);
        BAD * u8::from(is_bad) + u8::from(is_demoted)
    }

    /// Returns whether the frame at that address was found bad.
    pub(crate) fn is_bad(&self, address: FrameAddress) -> bool {
        self.bad.contains(&(address.pack, address.offset))
    }

    /// Returns the frames that were found bad: the ordinals of their packs, and their offsets.
    pub(crate) fn bad(&self) -> Vec<(u32, u64)> {
        self.bad.iter().copied().collect()
    }

    /// Marks frames as bad. Their blocks are then located in sound frames, where such copies exist.
    pub(crate) fn condemn(&mut self, places: &[(u32, u64)]) {
        self.bad.extend(places);
        let in_memory = places.iter().filter_map(|(pack, offset)| self.memory.address_at(*pack, *offset));
        let in_memory: Vec<FrameAddress> = in_memory.collect();
        self.memory.condemn(&in_memory);
    }

    /// Marks packs as being given up. Their blocks are then located in other packs, where sound copies exist.
    pub(crate) fn demote(&mut self, packs: &BTreeSet<u32>) {
        self.demoted.extend(packs);
        self.memory.demote(packs);
    }

    /// Marks a pack as staying.
    pub(crate) fn promote(&mut self, pack: u32) {
        self.demoted.remove(&pack);
        self.memory.promote(pack);
    }

    /// Adds all entries of an index of the same packs, in memory.
    pub(crate) fn absorb(&mut self, index: Index) -> Result<()> {
        self.bad.extend(index.bad_frames().map(|address| (address.pack, address.offset)));
        self.memory.absorb(index)
    }

    /// Adds the frames of a pack, in memory.
    pub(crate) fn push_pack(&mut self, ordinal: u32, directory: &PackDirectory) -> Result<()> {
        for (row, ids) in directory.iter() {
            self.memory.push_frame(row.address(ordinal), ids.iter().copied())?;
        }
        self.mark_bad(ordinal);
        Ok(())
    }

    /// Reserves memory for more blocks and frames.
    pub(crate) fn reserve(&mut self, blocks: usize, frames: usize) {
        self.memory.reserve(blocks, frames);
    }

    /// Marks the known bad frames of a pack in memory.
    fn mark_bad(&mut self, ordinal: u32) {
        let known: Vec<(u32, u64)> = self.bad.range((ordinal, 0)..=(ordinal, u64::MAX)).copied().collect();
        self.condemn(&known);
    }

    /// The frames in memory.
    pub(crate) fn in_memory(&self) -> &Index {
        &self.memory
    }

    /// Returns the index on disk.
    pub(crate) fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.disk.as_ref().map(|disk| &disk.snapshot)
    }

    /// Returns the index on disk and a pack's number there, if it is used for that pack.
    pub(super) fn covering(&self, ordinal: u32) -> Option<(&Arc<Snapshot>, u32)> {
        let disk = self.disk.as_ref()?;
        Some((&disk.snapshot, *disk.numbers.get(&ordinal)?))
    }

    /// Returns whether the index on disk is used for a pack.
    pub(crate) fn covers(&self, ordinal: u32) -> bool {
        self.covering(ordinal).is_some()
    }

    /// Returns the packs for which the index on disk is used.
    pub(super) fn covered(&self) -> Vec<u32> {
        let disk = self.disk.iter();
        disk.flat_map(|disk| disk.numbers.keys().copied()).collect()
    }

    /// Uses an index on disk from now on, for the packs with these ordinals, by their numbers in the index. What it covers leaves
    /// the memory.
    pub(super) fn adopt(&mut self, snapshot: Arc<Snapshot>, mut ordinals: HashMap<u32, u32>) {
        ordinals.retain(|_, ordinal| !self.only_in_memory.contains(ordinal));
        let numbers: HashMap<u32, u32> =
            ordinals.iter().map(|(number, ordinal)| (*ordinal, *number)).collect();
        if self.memory.packs().any(|pack| numbers.contains_key(&pack)) {
            self.memory.retain_packs(|pack| !numbers.contains_key(&pack));
            self.memory.demote(&self.demoted);
            let bad = self.bad();
            self.condemn(&bad);
        }
        self.disk = Some(DiskIndex { snapshot, ordinals, numbers });
    }

    /// Stops using the index on disk.
    pub(super) fn forget_disk(&mut self) {
        self.disk = None;
    }

    /// Stops using the index on disk for one pack: its frames are in memory from now on.
    pub(super) fn keep_in_memory(&mut self, ordinal: u32, directory: &PackDirectory) -> Result<()> {
        if let Some(disk) = &mut self.disk
            && let Some(number) = disk.numbers.remove(&ordinal)
        {
            disk.ordinals.remove(&number);
        }
        self.only_in_memory.insert(ordinal);
        self.push_pack(ordinal, directory)
    }

    /// Notes that the index on disk must not cover a pack.
    pub(super) fn never_cover(&mut self, ordinal: u32) {
        self.only_in_memory.insert(ordinal);
    }

    /// Returns whether the index on disk must not cover a pack.
    pub(super) fn is_only_in_memory(&self, ordinal: u32) -> bool {
        self.only_in_memory.contains(&ordinal)
    }

    /// Returns the number of blocks. A block that several packs have may count several times.
    pub(crate) fn len(&self) -> usize {
        let covered = self.disk.as_ref().map_or(0, |disk| disk.snapshot.len());
        self.memory.len() + covered as usize
    }
}

/// The rank of a bad frame. A demoted pack adds 1.
const BAD: u8 = 2;
