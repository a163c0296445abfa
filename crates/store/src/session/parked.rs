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
use crate::pack_writer::SealedPack;
use crate::place::StorePlace;
use crate::store::Store;
use platter_index::Index;
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

/// Lists the parked packs of all owners.
///
/// # Errors
/// `Io`.
pub(crate) fn list_parked(place: &StorePlace) -> Result<Vec<ParkedPack>> {
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

/// Removes a parked pack. Returns whether it still existed: it may have been resumed.
///
/// # Errors
/// `Io`.
pub(crate) fn discard_parked(place: &StorePlace, pack: &ParkedPack) -> Result<bool> {
    match place.vfs().remove(&pack.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        removed => removed.context(|| format!("removing {}", pack.path.display())).map(|()| true),
    }
}

impl Store {
    /// Lists the parked packs of all owners.
    ///
    /// # Errors
    /// `Io`.
    pub fn parked(&self) -> Result<Vec<ParkedPack>> {
        list_parked(self.place())
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
        discard_parked(self.place(), pack)
    }
}

impl Session {
    /// Ends the session without a version and parks its packs for `owner` (ASCII letters and digits). Packs on which other
    /// sessions rely become part of the store instead. Returns the bytes of the parked ones.
    ///
    /// # Errors
    /// `Refused` when a write has failed before, and `Io`: the session's frames are then lost.
    pub fn park(self, owner: &str, now_unix_ms: i64) -> Result<u64> {
        if owner.is_empty() || !owner.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Error::bug(format!("invalid owner of parked packs: {owner:?}")));
        }
        let writer = self.shared.writer()?;
        let mut state = self.state();
        writer.check()?;
        writer.poison(state.seal())?;
        let lent = std::mem::take(&mut state.lent);
        self.shared.hand_over(writer, &mut state, &lent)?;
        let packs = std::mem::take(&mut state.sealed);
        state.begun.clear();
        state.index = Index::new();
        drop(state);
        let (place, mut bytes) = (&self.shared.place, 0);
        for (_, pack) in packs {
            bytes += pack.length;
            let (from, to) = (place.pack(pack.id), parked_path(place, pack.id, owner, now_unix_ms));
            place.vfs().rename(&from, &to).context(|| format!("renaming {}", from.display()))?;
            place.sync_dir(&place.pack_dir(pack.id))?;
        }
        Ok(bytes)
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
