//! Reads the valid parts of the catalog that a rebuild replaces.

use std::collections::BTreeSet;

use platter_image::{Error, ErrorKind, IoContext, Result};
use rusqlite::OpenFlags;

use super::log::{Entry, Head, PackedChanges, Proven, State, prove, settle};
use super::{Catalog, Change, ChangeLogContents, connect, read_log, schema};
use crate::place::StorePlace;
use platter_records::{EditLock, PackId, StoreId};

/// The valid parts of the catalog that a rebuild replaces.
#[derive(Debug, Default)]
pub(crate) struct OldCatalog {
    /// Its rows: all of them if it is sound, otherwise those with a correct checksum.
    pub(crate) state: State,
    /// Whether all of its checksums are correct.
    pub(crate) is_sound: bool,
    /// Its edit locks, if it is sound.
    pub(crate) edit_locks: Vec<EditLock>,
    /// The store to which it belongs instead: then it counts as missing.
    of_other: Option<StoreId>,
    head: Option<Head>,
}

/// The sources of a rebuild.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) old: OldCatalog,
    pub(crate) log: ChangeLogContents,
    /// The rows, if either log or catalog proves that they are complete.
    pub(crate) proven: Option<State>,
    /// Otherwise: the newest state that entries in the log and in packs prove.
    base: Option<Proven>,
    /// The log has rows of other packs only.
    log_is_of_other: bool,
}

impl Sources {
    /// Reads catalog and log of a store with these packs. What belongs to another store counts as missing. The caller holds the
    /// writer's lock.
    ///
    /// # Errors
    /// `Io`; `Refused` when a newer Platter wrote one of them.
    pub(crate) fn read(place: &StorePlace, store: StoreId, packs: &BTreeSet<PackId>) -> Result<Self> {
        let old = OldCatalog::read(place, store)?;
        if let Some(head) = &old.head {
            settle(place, head)?;
        }
        let mut log = read_log(place, old.head.as_ref())?;
        let mut replayed = State::replay(&log);
        // A log does not name its store. A catalog that names the log is better proof than packs, all of which may be new.
        let is_confirmed = old.head.as_ref().is_some_and(|head| head.is_of(&log));
        let listed = replayed.packs();
        let knows_packs = listed.is_empty() || listed.iter().any(|row| packs.contains(&row.id));
        let log_is_of_other = !is_confirmed && !packs.is_empty() && !knows_packs;
        if log_is_of_other {
            log = ChangeLogContents { has_holes: true, ..ChangeLogContents::default() };
            replayed = State::default();
        }
        let seals = log.entries.last().is_some_and(|last| last.after == replayed.digest());
        let is_whole = log.is_whole() && seals;
        // Numbers go on when a new log begins. A sound catalog names its log; with the same number as another log, it counts, and so it does
        // if they have no pack in common. A catalog without a head says nothing about the log.
        let known = old.state.packs();
        let is_related = is_confirmed
            || known.is_empty()
            || known.iter().any(|row| listed.iter().any(|other| other.id == row.id));
        let head = old.head.as_ref().filter(|_| is_related);
        let log_is_newer = head.is_some_and(|head| head.number() < log.last);
        let log_is_older =
            old.is_sound && head.is_none_or(|head| head.number() + u64::from(!is_confirmed) > log.last);
        let proven = match (is_whole && !log_is_older, old.is_sound && !log_is_newer) {
            (true, _) => Some(replayed),
            (false, true) => Some(old.state.clone()),
            (false, false) => None,
        };
        Ok(Self { old, log, proven, base: None, log_is_of_other })
    }

    /// Returns what was not used because it belongs to another store.
    pub(crate) fn of_others(&self) -> Vec<String> {
        let catalog = self.old.of_other.map(|store| {
            format!("catalog.sqlite belongs to another store ({store}), so it was replaced, and not used")
        });
        let log =
            "changes.log lists only packs of another store, so it was replaced, and not used".to_owned();
        catalog.into_iter().chain(self.log_is_of_other.then_some(log)).collect()
    }

    /// Returns whether entries in packs may know more: the log is incomplete, or no catalog confirms where it ends.
    pub(crate) fn needs_packed(&self) -> bool {
        self.proven.is_none() || !self.old.is_sound || !self.log.is_whole()
    }

    /// Uses the entries that were found in packs. If they fill the holes of a log whose end is undamaged, its rows are proven after
    /// all. If they are newer than the log, a part of the log was cut off, and nothing proves its rows to be the last ones.
    pub(crate) fn add_packed(&mut self, packed: &PackedChanges) {
        let packed: Vec<Entry> =
            packed.texts().iter().filter_map(|text| Entry::from_text(text).ok()).collect();
        let newest = packed.iter().map(|entry| entry.change.number).max().unwrap_or_default();
        if self.proven.is_some() && newest <= self.last().0 {
            return;
        }
        self.base = prove(packed.iter().chain(&self.log.entries));
        let ends_with_log = |base: &&Proven| {
            let is_end = !self.log.has_torn_end
                && newest <= self.log.last
                && base.last == (self.log.last, self.log.last_hash.clone());
            is_end && self.log.id.is_some() && !self.old.is_sound
        };
        self.proven = self.base.as_ref().filter(ends_with_log).map(|base| base.state.clone());
    }

    /// Returns number and hash of the last known entry: the next one continues it.
    pub(crate) fn last(&self) -> (u64, String) {
        let old = self.old.head.as_ref().map(|head| (head.number(), head.hash()));
        let log = (self.log.last, self.log.last_hash.clone());
        let base = self.base.as_ref().map(|base| base.last.clone());
        old.into_iter().chain(base).chain([log]).max_by_key(|(number, _)| *number).unwrap_or_default()
    }

    /// Returns whether the catalog is sound and older than what entries in the log and in packs prove.
    pub(crate) fn old_is_past(&self) -> bool {
        let head = self.old.head.as_ref().filter(|_| self.old.is_sound);
        head.zip(self.base.as_ref()).is_some_and(|(head, base)| head.number() <= base.last.0)
    }

    /// Returns the rows that the valid entries in log and packs produce, and the number of the last change up to which no entry is
    /// missing; 0 if that is unknown.
    pub(crate) fn replayed(&self) -> (State, u64) {
        let Some(base) = &self.base else { return (State::replay(&self.log), 0) };
        let mut state = base.state.clone();
        let later = self.log.entries.iter().filter(|entry| entry.change.number > base.last.0);
        later.for_each(|entry| state.apply(entry));
        (state, base.last.0)
    }
}

impl Catalog {
    /// Checks that a rebuild's new catalog is complete and that its log exists.
    ///
    /// # Errors
    /// `Corrupt` if not; `Io`.
    pub(crate) fn check_new(place: &StorePlace) -> Result<()> {
        let catalog = Self::open(place, &place.new_catalog())?;
        let head = catalog.head()?;
        settle(place, &head)?;
        let log = read_log(place, Some(&head))?;
        if head.is_of(&log) { Ok(()) } else { Err(Error::corrupt("the new catalog's log is missing")) }
    }
}

impl Change<'_> {
    /// Raises the highest assigned numbers to at least those of `state`.
    pub(crate) fn raise_as(&mut self, state: &State) -> Result<()> {
        let (images, edit_lock) = state.last_numbers();
        images.iter().try_for_each(|(image, number)| self.raise_last_number(image, *number))?;
        self.raise_last_edit_lock(edit_lock)
    }
}

impl OldCatalog {
    /// Reads the old catalog. A missing or damaged one is replaced by other sources. Any other error ends the rebuild: a catalog
    /// that cannot be read now, or only by a newer Platter, may know more than the other sources.
    fn read(place: &StorePlace, store: StoreId) -> Result<Self> {
        let path = place.catalog();
        if !place.vfs().exists(&path).context(|| format!("looking for {}", path.display()))? {
            return Ok(Self::default());
        }
        let read = Catalog::open_reader(place).and_then(|catalog| {
            let owner = catalog.store()?;
            if owner != store {
                return Ok(Self { of_other: Some(owner), ..Self::default() });
            }
            Ok(Self {
                state: State::read(&catalog.connection)?,
                is_sound: true,
                edit_locks: catalog.edit_locks()?,
                of_other: None,
                head: Some(catalog.head()?),
            })
        });
        read.or_else(|error| match error.kind() {
            ErrorKind::Corrupt => Self::read_damaged(place, store),
            ErrorKind::Refused => {
                let advice = "if no newer Platter ever wrote to this store, the format number in the catalog's header is damaged: \
                              move the catalog away and rebuild again";
                Err(error.within(advice))
            }
            _ => Err(error),
        })
    }

    /// Reads the rows with a correct checksum from a damaged catalog.
    fn read_damaged(place: &StorePlace, store: StoreId) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let read = connect(place, &place.catalog(), flags).and_then(|connection| {
            schema::check(&connection)?;
            Ok((schema::owner(&connection)?, State::read_sound(&connection)?))
        });
        match read {
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
            Ok((Some(owner), _)) if owner != store => Ok(Self { of_other: Some(owner), ..Self::default() }),
            Ok((_, state)) => Ok(Self { state, ..Self::default() }),
            Err(_) => Ok(Self::default()),
        }
    }
}
