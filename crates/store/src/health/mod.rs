//! What is known of the health of packs: which frames were found bad, and which packs were once read whole
//! (`docs/formats/health.md`).
//!
//! Why it has files of its own: whoever reads a store finds the damage, and readers hold no lock and must not write the
//! catalog. An observation is a line in a small file that nobody changes once it is written, so any process may add one at any
//! time.
//!
//! What may go wrong, and why it is harmless: an observation that a crash takes away is made again when the bytes are read
//! again. One that stays although the bytes are good again costs space: their blocks are stored a second time. So in doubt a
//! place stays bad. It is lifted only after the bytes were read and hashed, by the holder of the store's lock, and only as far
//! as was known before that reading began.
//!
//! A place is bad, never a block: of a block with a good copy elsewhere, that copy is used, and the bad place stays bad.

mod folder;
mod format;

use std::collections::{BTreeMap, BTreeSet};

use platter_image::Result;

pub use format::{Condition, Observation, Observations, decode_health};

use crate::identity::{PackId, StoreId};
use crate::place::StorePlace;

/// Files that a writer leaves before it merges them.
const FILES_MAX: usize = 16;
/// Observations that a process collects in one file, which it writes anew with each.
const OWN_MAX: usize = 256;

impl Condition {
    /// What a frame in that condition is, in words.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Damaged => "the frame was found damaged",
            Self::Unreadable => "the frame could not be read",
            Self::ReadBack => "the pack was read back",
        }
    }
}

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct Health {
    packs: BTreeMap<PackId, PackHealth>,
    /// Files whose every observation is known.
    files: BTreeSet<String>,
    /// Files some of which is lost: torn by a crash, damaged, or being written.
    torn: BTreeSet<String>,
    own: Vec<Observation>,
    own_file: Option<String>,
}

/// What is known of one pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackHealth {
    /// Bad frames by their first byte.
    pub(crate) bad: BTreeMap<u64, Bad>,
    /// When all of it was last read, and how long it was.
    pub(crate) read_back: Option<ReadBack>,
}

/// A bad frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) condition: Condition,
    pub(crate) time_unix_ms: i64,
}

/// A pack that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadBack {
    pub(crate) time_unix_ms: i64,
    pub(crate) length: u64,
}

/// A frame that is bad: its pack and its first byte.
pub(crate) type BadPlace = (PackId, u64);

impl Health {
    /// What is known of a pack.
    pub(crate) fn pack(&self, pack: PackId) -> Option<&PackHealth> {
        self.packs.get(&pack)
    }

    /// What is known to be wrong with a frame.
    pub(crate) fn bad(&self, pack: PackId, offset: u64) -> Option<Bad> {
        self.packs.get(&pack)?.bad.get(&offset).copied()
    }

    /// Files some of which cannot be read.
    pub(crate) fn torn(&self) -> usize {
        self.torn.len()
    }

    /// Files that say what is known here.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.files.union(&self.torn).cloned().collect()
    }

    /// Takes in what other processes have written since; gives the places that are newly bad.
    ///
    /// # Errors
    /// `Io`; `Refused` when a newer Platter wrote some. What could be read is taken in all the same.
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

    /// Notes what was seen; gives the place if it is newly bad.
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

    /// Notes observations and makes them durable.
    ///
    /// # Errors
    /// `Io`: this process knows them all the same.
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
        // Only now: what the shorter file says stands in the longer one.
        if let Some(before) = self.own_file.replace(name) {
            self.files.remove(&before);
            folder::remove(place, &before)?;
        }
        Ok(())
    }

    /// Merges files that have become many, and drops what they say of packs that are gone. Only for the holder of the
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
        let files = std::mem::take(&mut self.files);
        self.files = folder::replace(place, store, &files, &observations(&self.packs))?;
        Ok(())
    }

    /// Ends the quarantine of places that were read and are good, as far as `files` say that they are bad: what came later
    /// stays. Only for the holder of the store's lock.
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

/// What says the same as these.
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
