//! The record of pack health: which frames were found bad, and which packs were read back completely
//! (`docs/formats/health.md`).
//!
//! Why it has files of its own: readers find damage, but they hold no lock and must not write the catalog. An observation is a
//! record in a small file that never changes once written, so any process can add one at any time.
//!
//! What can go wrong, and why it is harmless: an observation that a crash loses is made again when the bytes are read
//! again. An observation that is outdated, because the bytes are good again, costs space: their blocks are stored a second time.
//! So in doubt a frame stays bad. A frame leaves the quarantine only after the holder of the store's lock has read and hashed
//! it, and only regarding observations from before that read.
//!
//! Frames are bad, not blocks: if another frame has a good copy of a block, that copy is used, and the bad frame stays bad.

mod folder;

use std::collections::{BTreeMap, BTreeSet};

use platter_image::Result;

pub use platter_pack::{Condition, Observation, Observations, decode_health};

use crate::place::{StorePlace, is_full};
use platter_records::{PackId, StoreId};

/// Number of files above which a writer merges them.
const FILES_MAX: usize = 16;
/// Maximum number of observations in this process's own file. Each observation rewrites the file.
const OWN_MAX: usize = 256;

/// All known observations.
#[derive(Debug, Default)]
pub(crate) struct Health {
    packs: BTreeMap<PackId, PackHealth>,
    /// Files that were read completely.
    files: BTreeSet<String>,
    /// Files that were read only in part: incomplete after a crash, damaged, or just being written.
    torn: BTreeSet<String>,
    own: Vec<Observation>,
    own_file: Option<String>,
}

/// Observations about one pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackHealth {
    /// Bad frames by their offset.
    pub(crate) bad: BTreeMap<u64, Bad>,
    /// The last time the pack was read completely.
    pub(crate) read_back: Option<ReadBack>,
}

/// A bad frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) condition: Condition,
    pub(crate) time_unix_ms: i64,
}

/// A complete read of a pack: its time and the pack's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadBack {
    pub(crate) time_unix_ms: i64,
    pub(crate) length: u64,
}

/// The address of a bad frame: its pack and its offset.
pub(crate) type BadPlace = (PackId, u64);

impl Health {
    /// Returns what is known about a pack.
    pub(crate) fn pack(&self, pack: PackId) -> Option<&PackHealth> {
        self.packs.get(&pack)
    }

    /// Returns the bad condition of a frame, if known.
    pub(crate) fn bad(&self, pack: PackId, offset: u64) -> Option<Bad> {
        self.packs.get(&pack)?.bad.get(&offset).copied()
    }

    /// Returns the number of files that could be read only in part.
    pub(crate) fn torn(&self) -> usize {
        self.torn.len()
    }

    /// Returns the names of all files that were read.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.files.union(&self.torn).cloned().collect()
    }

    /// Reads the observations that other processes have added. Returns the frames that are newly bad.
    ///
    /// # Errors
    /// `Io`; `Refused` when a newer Platter wrote a file. The files that could be read are taken into account anyway.
    pub(crate) fn learn(&mut self, place: &StorePlace, store: StoreId) -> Result<Vec<BadPlace>> {
        let (mut new, mut failed) = (Vec::new(), Ok(()));
        let listed = folder::list(place)?;
        self.torn.retain(|name| listed.contains(name));
        for name in listed.difference(&self.files.clone()) {
            match folder::read(place, store, name) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    let known = if found.lost == 0 { &mut self.files } else { &mut self.torn };
                    known.insert(name.clone());
                    new.extend(found.good.into_iter().filter_map(|seen| self.note(seen)));
                }
                Err(error) => failed = Err(error),
            }
        }
        self.files.retain(|name| listed.contains(name));
        failed.map(|()| new)
    }

    /// Adds an observation. Returns the frame if it is newly bad.
    fn note(&mut self, seen: Observation) -> Option<BadPlace> {
        let pack = self.packs.entry(seen.pack).or_default();
        let time_unix_ms = seen.time_unix_ms;
        if seen.condition == Condition::ReadBack {
            let read_back = ReadBack { time_unix_ms, length: seen.offset };
            if pack.read_back.is_none_or(|known| known.time_unix_ms < time_unix_ms) {
                pack.read_back = Some(read_back);
            }
            return None;
        }
        let bad = Bad { condition: seen.condition, time_unix_ms };
        pack.bad.insert(seen.offset, bad).is_none().then_some((seen.pack, seen.offset))
    }

    /// Adds observations and makes them durable.
    ///
    /// # Errors
    /// `Io`: this process then still knows them.
    pub(crate) fn add(&mut self, place: &StorePlace, store: StoreId, seen: &[Observation]) -> Result<()> {
        for observation in seen {
            self.note(*observation);
        }
        seen.chunks(OWN_MAX).try_for_each(|part| self.add_own(place, store, part))
    }

    fn add_own(&mut self, place: &StorePlace, store: StoreId, seen: &[Observation]) -> Result<()> {
        if self.own.len() + seen.len() > OWN_MAX {
            (self.own, self.own_file) = (Vec::new(), None);
        }
        self.own.extend_from_slice(seen);
        let name = folder::write(place, store, &self.own)?;
        self.files.insert(name.clone());
        // Removed only now: the new file contains the observations of the old one.
        if let Some(before) = self.own_file.replace(name) {
            self.files.remove(&before);
            folder::remove(place, &before)?;
        }
        Ok(())
    }

    /// Merges the files if there are many, and drops observations about packs that are gone. Only for the holder of the
    /// store's lock.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn merge(
        &mut self,
        place: &StorePlace,
        store: StoreId,
        is_gone: impl Fn(PackId) -> bool,
    ) -> Result<()> {
        if self.files.len() <= FILES_MAX {
            return Ok(());
        }
        self.packs.retain(|pack, _| !is_gone(*pack));
        match folder::replace(place, store, &self.files, &observations(&self.packs)) {
            Ok(files) => self.files = files,
            // On a full disk, the files stay as they are: a collection must be able to open the store.
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lifts the quarantine of frames that were read and are good. Only observations in `files` are lifted; later ones stay. Only
    /// for the holder of the store's lock.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn lift(
        place: &StorePlace,
        store: StoreId,
        files: &BTreeSet<String>,
        good: &BTreeSet<BadPlace>,
    ) -> Result<()> {
        let mut known = Self::default();
        for name in files {
            let found = folder::read(place, store, name)?.unwrap_or_default();
            for seen in found.good {
                known.note(seen);
            }
        }
        for (pack, offset) in good {
            known.packs.entry(*pack).or_default().bad.remove(offset);
        }
        folder::replace(place, store, files, &observations(&known.packs)).map(drop)
    }
}

/// Converts what is known back to observations.
fn observations(packs: &BTreeMap<PackId, PackHealth>) -> Vec<Observation> {
    let mut all = Vec::new();
    for (pack, health) in packs {
        let read_back = health.read_back.map(|read| Observation {
            pack: *pack,
            offset: read.length,
            condition: Condition::ReadBack,
            time_unix_ms: read.time_unix_ms,
        });
        let bad = health.bad.iter().map(|(offset, bad)| Observation {
            pack: *pack,
            offset: *offset,
            condition: bad.condition,
            time_unix_ms: bad.time_unix_ms,
        });
        all.extend(read_back.into_iter().chain(bad));
    }
    all
}
