//! Parked packs: the unfinished work of a session that ended without a version, kept for its owner. They are sealed packs under
//! other file names and are not part of the store. Nothing refers to their blocks, so discarding one frees its space at once.
//!
//! Why readers do not see them and later writers do not take them over: both only look at files that end in `.pack`. A pack
//! is sealed and synced before it is renamed to its parked name. It is renamed back, durably, before a commit can list it. A
//! crash in between leaves either a parked pack or the pack of an interrupted session.

use std::path::PathBuf;

use platter_image::{BlockId, Error, ErrorKind, IoContext, Result};
use platter_vfs::OpenMode;

use super::Session;
use crate::catalog::PackState;
use crate::index::Index;
use crate::pack_writer::SealedPack;
use crate::place::StorePlace;
use crate::store::Store;
use platter_pack::read_directory;
use platter_records::PackId;

/// Suffix of a parked pack's file name, after pack id, owner and time.
const SUFFIX: &str = ".unfinished";

/// A parked pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedPack {
    /// The owner for whom it is kept.
    pub owner: String,
    /// Time at which it was parked, in milliseconds since 1970 UTC.
    pub since_unix_ms: i64,
    /// Length of the file in bytes.
    pub length: u64,
    id: PackId,
    path: PathBuf,
}

/// The result of resuming a parked pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It is part of the session now, with these blocks.
    Taken(Vec<BlockId>),
    /// It no longer exists.
    Gone,
    /// It was damaged and has been removed.
    Damaged,
}

impl Store {
    /// Lists the parked packs of all owners.
    ///
    /// # Errors
    /// `Io`.
    pub fn parked(&self) -> Result<Vec<ParkedPack>> {
        let place = self.place();
        let list = |dir: &PathBuf| {
            let listed = place.vfs().list(dir);
            listed.context(|| format!("listing {}", dir.display()))
        };
        let mut parked = Vec::new();
        for folder in list(&place.packs_dir())?.iter().filter(|entry| entry.is_dir) {
            let dir = place.packs_dir().join(&folder.name);
            for entry in list(&dir)? {
                let Some((id, owner, since_unix_ms)) = parse_name(&entry.name) else { continue };
                let path = dir.join(&entry.name);
                let file = match place.vfs().open(&path, OpenMode::Read) {
                    // It was removed or resumed meanwhile.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    opened => opened.context(|| format!("opening {}", path.display()))?,
                };
                let length = file.length().context(|| format!("looking at {}", path.display()))?;
                parked.push(ParkedPack { owner: owner.to_owned(), since_unix_ms, length, id, path });
            }
        }
        Ok(parked)
    }

    /// Returns the blocks in a parked pack; none if it is missing or damaged.
    ///
    /// # Errors
    /// `Io`.
    pub fn parked_ids(&self, pack: &ParkedPack) -> Result<Vec<BlockId>> {
        let file = match self.place().vfs().open(&pack.path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.context(|| format!("opening {}", pack.path.display()))?,
        };
        match read_directory(&*file, pack.id, self.id()) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Vec::new()),
            read => Ok(read?.ids),
        }
    }

    /// Removes a parked pack. Returns whether it still existed: it may have been resumed.
    ///
    /// # Errors
    /// `Io`.
    pub fn discard_parked(&self, pack: &ParkedPack) -> Result<bool> {
        match self.place().vfs().remove(&pack.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            removed => removed.context(|| format!("removing {}", pack.path.display())).map(|()| true),
        }
    }
}

impl Session {
    /// Ends the session without a version and parks its packs for `owner` (ASCII letters and digits).
    ///
    /// # Errors
    /// `Refused` when a write has failed before, and `Io`: the session's frames are then lost.
    pub fn park(self, owner: &str, now_unix_ms: i64) -> Result<()> {
        if owner.is_empty() || !owner.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Error::bug(format!("invalid owner of parked packs: {owner:?}")));
        }
        let writer = self.shared.writer()?;
        let mut state = self.state();
        writer.check()?;
        writer.poison(state.seal())?;
        let packs = std::mem::take(&mut state.sealed);
        state.begun.clear();
        state.index = Index::new();
        drop(state);
        let place = &self.shared.place;
        for (_, pack) in packs {
            let (from, to) = (place.pack(pack.id), parked_path(place, pack.id, owner, now_unix_ms));
            place.vfs().rename(&from, &to).context(|| format!("renaming {}", from.display()))?;
            place.sync_dir(&place.pack_dir(pack.id))?;
        }
        Ok(())
    }

    /// Makes a parked pack part of this session.
    ///
    /// # Errors
    /// `Refused` when a write has failed before; `Io`.
    pub fn resume(&self, parked: &ParkedPack) -> Result<Resumed> {
        self.shared.writer()?.check()?;
        let place = &self.shared.place;
        let path = place.pack(parked.id);
        match place.vfs().rename(&parked.path, &path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Resumed::Gone),
            renamed => renamed.context(|| format!("renaming {}", parked.path.display()))?,
        }
        place.sync_dir(&place.pack_dir(parked.id))?;
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        let directory = match read_directory(&*file, parked.id, self.shared.id) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                place.remove_if_there(&path)?;
                return Ok(Resumed::Damaged);
            }
            read => read?,
        };
        let ordinal = self.shared.packs.add(parked.id, PackState::Open);
        let mut state = self.state();
        for (row, ids) in directory.iter() {
            state.index.push_frame(row.address(ordinal), ids.iter().copied())?;
            state.new_raw_bytes += u64::from(row.raw_length);
            state.new_stored_bytes += row.whole_length() as u64;
        }
        let sealed = SealedPack {
            id: parked.id,
            length: parked.length,
            frames: directory.frames() as u64,
            blocks: directory.blocks() as u64,
        };
        self.shared.condemn_known_bad(ordinal, &mut state.index)?;
        state.begun.push(parked.id);
        state.resumed.insert(ordinal);
        state.sealed.push((ordinal, sealed));
        Ok(Resumed::Taken(directory.ids))
    }
}

fn parked_path(place: &StorePlace, pack: PackId, owner: &str, since_unix_ms: i64) -> PathBuf {
    place.pack_dir(pack).join(format!("{pack}.{owner}.{since_unix_ms}{SUFFIX}"))
}

fn parse_name(name: &str) -> Option<(PackId, &str, i64)> {
    let (id, rest) = name.strip_suffix(SUFFIX)?.split_once('.')?;
    let (owner, since) = rest.split_once('.')?;
    Some((PackId::from_hex(id)?, owner, since.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
    use platter_image::{Domain, FrameIndex, FrameStore, Kind};

    use super::*;

    fn frame(byte: u8) -> (BlockId, EncodedFrame) {
        let contents = [byte; 4096];
        let id = BlockId::of(Kind::Data, &contents);
        let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
        frame.push(id, &contents);
        (id, frame.encode(&mut Compressor::new(3).unwrap()).unwrap())
    }

    #[test]
    fn a_parked_pack_is_not_in_the_store_until_its_owner_resumes_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let (id, frame) = frame(7);
        {
            let store = Store::open_writer(&place).unwrap();
            let session = store.session().unwrap();
            session.append(&frame).unwrap();
            session.park("token1", 5).unwrap();
        }
        // Another writer does not take it over.
        let store = Store::open_writer(&place).unwrap();
        assert_eq!((store.blocks(), place.list_packs().unwrap().len()), (0, 0));
        let parked = store.parked().unwrap();
        assert_eq!((parked.len(), &parked[0].owner[..], parked[0].since_unix_ms), (1, "token1", 5));
        assert_eq!(store.parked_ids(&parked[0]).unwrap(), [id]);
        let session = store.session().unwrap();
        assert!(session.locate(&id).unwrap().is_none());
        assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Taken(vec![id]));
        assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Gone);
        assert!(!store.discard_parked(&parked[0]).unwrap(), "it was resumed and cannot be discarded");
        assert!(session.lookup_and_pin(&id).unwrap().is_some());
        session.keep().unwrap();
        assert!(store.read_block(Kind::Data, &id).is_ok());
        assert_eq!(store.parked().unwrap(), []);
        drop(store);
        let report = Store::open_reader(&place).unwrap();
        assert!(report.read_block(Kind::Data, &id).is_ok(), "a reader finds the pack in the catalog");
    }

    #[test]
    fn a_damaged_frame_of_a_parked_pack_is_not_relied_on() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        let session = store.session().unwrap();
        let ((good, first), (bad, second)) = (frame(1), frame(2));
        session.append(&first).unwrap();
        session.append(&second).unwrap();
        let rotten = session.locate(&bad).unwrap().unwrap().frame;
        session.park("token1", 5).unwrap();
        let parked = store.parked().unwrap();
        let file = place.vfs().open(&parked[0].path, OpenMode::Write).unwrap();
        let (at, mut byte) = (rotten.offset + u64::from(rotten.length) - BlockId::LEN as u64 - 1, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let session = store.session().unwrap();
        assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Taken(vec![good, bad]));
        assert!(session.lookup_and_pin(&good).unwrap().is_some());
        assert!(session.lookup_and_pin(&bad).unwrap().is_none(), "it must be sent again");
        session.append(&second).unwrap();
        assert!(session.lookup_and_pin(&bad).unwrap().is_some());
        session.keep().unwrap();
        assert!(store.read_block(Kind::Data, &bad).is_ok());
    }

    #[test]
    fn discarding_a_parked_pack_frees_its_space() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        let session = store.session().unwrap();
        session.append(&frame(1).1).unwrap();
        session.park("a", 1).unwrap();
        store.session().unwrap().park("a", 1).unwrap();
        let parked = store.parked().unwrap();
        assert_eq!(parked.len(), 1, "an empty session parks nothing");
        assert!(store.discard_parked(&parked[0]).unwrap());
        assert_eq!(store.parked().unwrap(), []);
        assert_eq!(store.parked_ids(&parked[0]).unwrap(), []);
    }
}
