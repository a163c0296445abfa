//! Keeps what was found bad away from deduplication, at once and for good: what [`crate::health`] knows, applied to the index.
//!
//! What counts as bad: a frame that a reader could not read or decode is read once more, whole, and every block of it is
//! hashed. If that fails too, its place is quarantined. A second reading that succeeds says that the error was not in the
//! bytes on the disk: a passing error of the controller or of memory. An I/O error, twice, quarantines as well: it does not
//! prove that the bytes are gone, but nothing new may depend on them. Reading goes on trying a place that is bad where no
//! other has the block, so nothing is lost by a place that recovers. Errors that say nothing about the bytes (too many open
//! files, no permission) quarantine nothing.

use parking_lot::MutexGuard;
use std::collections::BTreeSet;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_image::frame::{FrameHeader, Verify};
use platter_image::{BlockId, Error, ErrorKind, FrameAddress, Result};

use crate::health::{BadPlace, Condition, Health, Observation};
use crate::identity::PackId;
use crate::index::Index;
use crate::store::{Shared, Store, WRITER_LOCK_TRIES, describe, take_lock};

/// What reading a frame again has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Examined {
    /// It is what it must be.
    Sound,
    /// It is bad, and in quarantine.
    Bad,
    /// Something else failed.
    Unknown,
}

impl Store {
    /// Blocks, pages and records that no sound frame has: they are stored anew by the next capture that has them.
    pub fn quarantined(&self) -> Vec<BlockId> {
        self.0.unsound()
    }
}

impl Shared {
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// Reads a frame again, whole, after something was wrong with it; quarantines it when something is.
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

    /// Whether a frame that a session relies on is what it must be. What fails is read once more before it is quarantined.
    pub(crate) fn prove_known(&self, address: FrameAddress) -> bool {
        self.prove(address).is_ok() || self.examine(address) == Examined::Sound
    }

    pub(crate) fn is_bad(&self, address: FrameAddress) -> bool {
        self.index.read().is_bad(address)
    }

    /// Whether a frame that was not found bad has that block, another one than that.
    pub(crate) fn is_sound_elsewhere(&self, id: &BlockId, (pack, offset): BadPlace) -> bool {
        let place = self.index.read().locate_sound(id);
        place.is_some_and(|place| {
            let is_there = self.packs.get(place.frame.pack).is_ok_and(|found| found.id == pack);
            !(is_there && place.frame.offset == offset)
        })
    }

    /// As [`Store::quarantined`].
    pub(crate) fn unsound(&self) -> Vec<BlockId> {
        self.index.read().unsound()
    }

    /// Reads a frame whole, decodes it and hashes its blocks.
    pub(crate) fn prove(&self, address: FrameAddress) -> Result<FrameHeader> {
        let mut stored = Vec::new();
        let blocks = self.lay_ids(address, address.length as usize, &mut stored);
        let blocks = blocks.ok_or_else(|| Error::bug("a frame that is not in the index"))?;
        self.packs.read_frame(address, blocks, &mut stored)?;
        self.with_decoder(|decoder| decoder.decode(&stored, Verify::Hashes).map(|(header, _)| header))
    }

    /// Notes bad frames, durably. Whatever fails in that, this process does not trust them.
    pub(crate) fn quarantine(&self, seen: &[Observation]) {
        let bad = seen.iter().filter(|seen| seen.condition != Condition::ReadBack);
        let bad: Vec<BadPlace> = bad.map(|seen| (seen.pack, seen.offset)).collect();
        self.condemn(&bad);
        let added = self.health().add(&self.place, self.id, seen);
        if let Err(error) = added {
            self.note_damage(format!(
                "what was found out about packs could not be written, so other processes do not know of it: {}",
                describe(&error)
            ));
        }
    }

    /// Sees what other processes have found.
    pub(crate) fn learn_health(&self) -> Result<()> {
        let new = self.health().learn(&self.place, self.id)?;
        self.condemn(&new);
        Ok(())
    }

    /// Tidies the folder of observations. The lock is ours.
    pub(crate) fn merge_health(&self) -> Result<()> {
        let listed: BTreeSet<PackId> = self.place.list_packs()?.into_iter().collect();
        self.health().merge(&self.place, self.id, |pack| !listed.contains(&pack))
    }

    /// Marks what is known to be bad of a pack that has just been indexed.
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

    /// Marks bad places in the index.
    pub(crate) fn condemn(&self, places: &[BadPlace]) {
        if places.is_empty() {
            return;
        }
        let packs = self.packs.all();
        let mut index = self.index.write();
        let addresses = places.iter().filter_map(|(pack, offset)| {
            let ordinal = packs.iter().position(|known| known.id == *pack)?;
            index.address_at(ordinal as u32, *offset)
        });
        let addresses: Vec<FrameAddress> = addresses.collect();
        index.condemn(&addresses);
    }

    /// Ends the quarantine of places that were read and hashed and are good, as far as `files` know of it. Others learn that
    /// when they open the store. Says why, if it cannot be done now.
    pub(crate) fn lift(&self, files: &BTreeSet<String>, good: &BTreeSet<BadPlace>) -> Result<()> {
        let _lock = match &self.writer {
            Some(_) => None,
            None => Some(take_lock(&self.place, WRITER_LOCK_TRIES)?),
        };
        Health::lift(&self.place, self.id, files, good)
    }
}

/// What an error says about bytes of a pack; `None` if nothing.
pub(crate) fn condition_of(error: &Error) -> Option<Condition> {
    match error.kind() {
        ErrorKind::Corrupt => Some(Condition::Damaged),
        ErrorKind::Io => says_of_the_medium(error).then_some(Condition::Unreadable),
        _ => None,
    }
}

/// Whether the cause is the medium, or a pack's file that is gone, and not this process or its rights.
fn says_of_the_medium(error: &Error) -> bool {
    const OF_PROCESS: [io::ErrorKind; 3] =
        [io::ErrorKind::PermissionDenied, io::ErrorKind::OutOfMemory, io::ErrorKind::Interrupted];
    /// ENFILE and EMFILE: no more open files.
    const NO_FILES: [i32; 2] = [23, 24];
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            let no_files = io.raw_os_error().is_some_and(|number| NO_FILES.contains(&number));
            return !OF_PROCESS.contains(&io.kind()) && !no_files;
        }
        cause = source.source();
    }
    false
}

/// Now, for people.
pub(crate) fn now_unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::{Domain, FrameStore, Kind};

    use super::*;
    use crate::place::StorePlace;

    /// A pack that no catalog lists, with a frame for each of these blocks of 4096 equal bytes.
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
        // Nothing has been committed: the pack is still nobody's.
        let store = Store::open_writer(&place).unwrap();
        assert!(store.0.lookup_and_pin(&bad).unwrap().is_none(), "nothing new relies on it");
        assert!(store.0.lookup_and_pin(&good).unwrap().is_some());
        assert_eq!(store.quarantined(), [bad]);
    }
}
