//! Keeps bad frames away from deduplication: applies what [`crate::health`] records to the index, at once and durably.
//!
//! What counts as bad: a frame that a reader could not read or decode is read completely once more, and all of its blocks are
//! hashed. If that fails too, the frame is quarantined. If the second read succeeds, the error was transient, in the controller
//! or in memory, and the bytes on the disk are good. Two I/O errors also quarantine a frame: they do not prove that the bytes
//! are lost, but nothing new may depend on them. Readers still try a bad frame if no other frame has the block, so a frame
//! that recovers loses nothing. Errors that say nothing about the bytes (too many open files, no permission) do not
//! quarantine.

use parking_lot::MutexGuard;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use platter_image::frame::{FrameHeader, Verify};
use platter_image::{BlockId, BlockPlace, Error, ErrorKind, FrameAddress, Kind, Result};

use crate::clock::now_unix_ms;
use crate::health::{BadPlace, Condition, Health, Observation};
use crate::place::is_full;
use crate::reserve::lend;
use crate::store::{Shared, Store, take_lock};
use platter_index::Index;
use platter_pack::read_directory;
use platter_records::{PackId, PackState};
use platter_vfs::VfsFile;

/// How long a reader waits for the store's lock.
const BRIEF_WAIT: Duration = Duration::from_millis(500);

/// The result of reading a frame again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Examined {
    /// The frame is sound.
    Sound,
    /// The frame is bad and quarantined.
    Bad,
    /// The read failed for a reason that says nothing about the frame.
    Unknown,
}

impl Store {
    /// Returns the blocks, pages and records that no sound frame has: they cannot be read.
    pub fn quarantined(&self) -> Vec<BlockId> {
        self.0.bad_ids(|id| self.0.locate_sound(id))
    }
}

impl Shared {
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// Reads a frame completely after an error, and quarantines it if that fails too.
    pub(crate) fn examine(&self, address: FrameAddress) -> Examined {
        let Ok(pack) = self.packs.get(address.pack).map(|pack| pack.id) else { return Examined::Unknown };
        if self.is_bad(address) {
            return Examined::Bad;
        }
        let condition = match self.prove(address) {
            Ok(_) => return Examined::Sound,
            Err(error) => condition_of(&error),
        };
        let Some(condition) = condition else { return Examined::Unknown };
        self.quarantine(&[Observation {
            pack,
            offset: address.offset,
            condition,
            time_unix_ms: now_unix_ms(),
        }]);
        Examined::Bad
    }

    /// Returns whether a frame on which a session relies is sound. If a read fails, reads once more before quarantining the
    /// frame.
    pub(crate) fn prove_known(&self, address: FrameAddress) -> bool {
        self.prove(address).is_ok() || self.examine(address) == Examined::Sound
    }

    pub(crate) fn is_bad(&self, address: FrameAddress) -> bool {
        self.index.read().is_bad(address)
    }

    /// Returns whether a sound frame other than `(pack, offset)` has that block.
    pub(crate) fn is_sound_elsewhere(&self, id: &BlockId, (pack, offset): BadPlace) -> bool {
        let place = self.locate_sound(id).ok().flatten();
        place.is_some_and(|place| {
            let is_there = self.packs.get(place.frame.pack).is_ok_and(|found| found.id == pack);
            !(is_there && place.frame.offset == offset)
        })
    }

    /// Returns the blocks, pages and records that no sound frame has, or only one in the trash, which will be deleted. The next capture
    /// that contains one stores it again.
    pub(crate) fn unsound(&self) -> Vec<BlockId> {
        self.bad_ids(|id| self.locate_kept(id))
    }

    /// Returns the ids in bad frames that are not located.
    fn bad_ids(&self, locate: impl Fn(&BlockId) -> Result<Option<BlockPlace>>) -> Vec<BlockId> {
        let bad = self.index.read().bad();
        let listed = bad.into_iter().filter_map(|(pack, offset)| self.ids_from(pack, offset).ok().flatten());
        // In doubt a block is stored again.
        let is_sound = |id: &BlockId| locate(id).is_ok_and(|place| place.is_some());
        let mut unsound: Vec<BlockId> = listed.flatten().filter(|id| !is_sound(id)).collect();
        unsound.sort_unstable();
        unsound.dedup();
        unsound
    }

    /// Returns whether one of these blocks of bad frames is of that kind, as far as the footers of their packs tell. In doubt it is.
    pub(crate) fn is_any_of(&self, kind: Kind, unsound: &[BlockId]) -> bool {
        let mut bad: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (pack, offset) in self.index.read().bad() {
            bad.entry(pack).or_default().insert(offset);
        }
        let is_in = |(pack, offsets): (u32, BTreeSet<u64>)| -> Result<bool> {
            let id = self.packs.get(pack)?.id;
            let directory = read_directory(&*self.packs.file(pack)?, id, self.id)?;
            let is_meant = |ids: &[BlockId]| ids.iter().any(|id| unsound.binary_search(id).is_ok());
            let mut rows = directory.iter().filter(|(row, _)| row.kind == kind);
            Ok(rows.any(|(row, ids)| offsets.contains(&row.offset) && is_meant(ids)))
        };
        !unsound.is_empty() && bad.into_iter().any(|bad| is_in(bad).unwrap_or(true))
    }

    /// Reads all known frames of a pack that could not be opened, and quarantines those that cannot be read. Returns their number.
    pub(crate) fn examine_pack(&self, pack: PackId) -> u64 {
        let ordinal = self.packs.all().iter().position(|known| known.id == pack);
        let Some(ordinal) = ordinal.map(|ordinal| ordinal as u32) else { return 0 };
        // A file that is kept open can be read although its name is gone.
        self.packs.close(ordinal);
        let addresses = self.addresses_of(ordinal).unwrap_or_default();
        let new = addresses.into_iter().filter(|address| !self.is_bad(*address));
        new.filter(|address| self.examine(*address) == Examined::Bad).count() as u64
    }

    /// Reads a frame completely, decodes it and hashes its blocks.
    pub(crate) fn prove(&self, address: FrameAddress) -> Result<FrameHeader> {
        let mut stored = Vec::new();
        let blocks = self.lay_ids(address, address.length as usize, &mut stored)?;
        self.packs.read_frame(address, blocks, &mut stored)?;
        self.decoders.with(|decoder| decoder.decode(&stored, Verify::Hashes).map(|(header, _)| header))
    }

    /// Records observations durably. Even if that fails, this process does not trust the bad frames.
    pub(crate) fn quarantine(&self, seen: &[Observation]) {
        if let Err(error) = self.record(seen) {
            self.note_damage(format!(
                "the health of packs could not be recorded, so other processes do not know of these bad frames: {}",
                error.with_causes()
            ));
        }
    }

    /// As [`Shared::quarantine`], for a caller that says itself why it was not durable. On a full disk, the reserve has the space.
    pub(crate) fn record(&self, seen: &[Observation]) -> Result<()> {
        let bad = seen.iter().filter(|seen| seen.condition != Condition::ReadBack);
        let bad: Vec<BadPlace> = bad.map(|seen| (seen.pack, seen.offset)).collect();
        self.condemn(&bad);
        let full = match self.health().add(&self.place, self.id, seen) {
            Err(error) if is_full(&error) => error,
            added => return added,
        };
        let Ok(_lock) = self.brief_lock() else { return Err(full) };
        let _space = lend(&self.place);
        self.health().add(&self.place, self.id, seen)
    }

    /// Takes the store's lock unless this process holds it. A reader is not held up for long.
    fn brief_lock(&self) -> Result<Option<Box<dyn VfsFile>>> {
        match &self.writer {
            Some(_) => Ok(None),
            None => take_lock(&self.place.clone().with_lock_wait(Some(BRIEF_WAIT))).map(Some),
        }
    }

    /// Applies what other processes have recorded.
    pub(crate) fn learn_health(&self) -> Result<()> {
        let new = self.health().learn(&self.place, self.id)?;
        self.condemn(&new);
        Ok(())
    }

    /// Merges the files of observations. The caller holds the store's lock.
    pub(crate) fn merge_health(&self) -> Result<()> {
        let rows = self.writer()?.catalog().packs()?.into_iter();
        // A pack whose file is away may return.
        let deleted: BTreeSet<PackId> =
            rows.filter(|row| row.state == PackState::Deleted).map(|row| row.id).collect();
        self.health().merge(&self.place, self.id, |pack| deleted.contains(&pack))
    }

    /// Marks the known bad frames of a pack that was just indexed.
    pub(crate) fn condemn_known_bad(&self, ordinal: u32, index: &mut Index) -> Result<()> {
        let id = self.packs.get(ordinal)?.id;
        let health = self.health();
        let Some(known) = health.pack(id) else { return Ok(()) };
        let offsets = known.bad.keys();
        let bad: Vec<FrameAddress> =
            offsets.filter_map(|offset| index.address_at(ordinal, *offset)).collect();
        index.condemn(&bad);
        Ok(())
    }

    /// Marks bad frames in the index.
    pub(crate) fn condemn(&self, places: &[BadPlace]) {
        if places.is_empty() {
            return;
        }
        let packs = self.packs.all();
        let places = places.iter().filter_map(|(pack, offset)| {
            let ordinal = packs.iter().position(|known| known.id == *pack)?;
            Some((ordinal as u32, *offset))
        });
        let places: Vec<(u32, u64)> = places.collect();
        self.index.write().condemn(&places);
    }

    /// Lifts the quarantine of frames that were read, hashed and found good. Only observations in `files` are lifted. Other
    /// processes learn of it when they open the store. Returns an error if the lock cannot be taken.
    pub(crate) fn lift(&self, files: &BTreeSet<String>, good: &BTreeSet<BadPlace>) -> Result<()> {
        let _lock = self.brief_lock()?;
        Health::lift(&self.place, self.id, files, good)
    }
}

/// Returns what an error implies for the bytes of a pack; `None` if nothing.
pub(crate) fn condition_of(error: &Error) -> Option<Condition> {
    match error.kind() {
        ErrorKind::Corrupt => Some(Condition::Damaged),
        ErrorKind::Io if error.is_unreadable() => Some(Condition::Unreadable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::{Domain, FrameStore};

    use super::*;
    use crate::place::StorePlace;

    /// A store with a pack that no catalog lists. The pack has one frame for each of these blocks of 4096 equal bytes.
    fn interrupted_store(bytes: [u8; 2]) -> (tempfile::TempDir, StorePlace, [BlockId; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        let session = store.session().unwrap();
        let ids = bytes.map(|byte| {
            let contents = [byte; 4096];
            let id = BlockId::of(Kind::Data, &contents);
            let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
            frame.push(id, &contents);
            session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
            id
        });
        session.park("nobody", 1).unwrap();
        for folder in place.vfs().list(&place.packs_dir()).unwrap() {
            let dir = place.packs_dir().join(folder.name);
            for file in place.vfs().list(&dir).unwrap() {
                let pack = dir.join(format!("{}.pack", &file.name[..32]));
                place.vfs().rename(&dir.join(file.name), &pack).unwrap();
            }
        }
        (folder, place, ids)
    }

    #[test]
    fn a_bad_frame_of_an_interrupted_pack_stays_bad() {
        let (_folder, place, [bad, good]) = interrupted_store([1, 2]);
        {
            let store = Store::open_writer(&place).unwrap();
            let (found, _pin) = store.0.lookup_and_pin(&bad).unwrap().unwrap();
            let pack = store.pack_id(found.frame).unwrap();
            let (condition, offset) = (Condition::Damaged, found.frame.offset);
            store.0.quarantine(&[Observation { pack, offset, condition, time_unix_ms: 1 }]);
            assert!(store.0.lookup_and_pin(&bad).unwrap().is_none());
        }
        // Nothing was committed: the catalog still does not list the pack.
        let store = Store::open_writer(&place).unwrap();
        assert!(store.0.lookup_and_pin(&bad).unwrap().is_none(), "nothing new may rely on it");
        assert!(store.0.lookup_and_pin(&good).unwrap().is_some());
        assert_eq!(store.quarantined(), [bad]);
    }
}
