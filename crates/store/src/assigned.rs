//! Which names of versions were assigned, so that a record in a pack of an interrupted session cannot get them any more.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{BlockId, Result};
use platter_records::{EditLock, ImageName, VersionName, VersionRecord, edit_lock_refusal};

use crate::catalog::Catalog;

/// The names that records in packs cannot get any more.
pub(crate) struct AssignedNames {
    /// Present versions, and those that were forgotten or renamed.
    known: BTreeSet<VersionName>,
    /// The highest number of each image; empty if catalog and log were once lost, so that versions with lower numbers may be unknown.
    last: BTreeMap<ImageName, u64>,
    /// Whether catalog and log were once lost, and with them edit locks.
    was_lost: bool,
}

impl AssignedNames {
    pub(crate) fn read(catalog: &Catalog) -> Result<Self> {
        let present = catalog.all_versions()?.into_iter();
        let known = present.chain(catalog.former()?).map(|version| version.name).collect();
        let was_lost = catalog.was_lost()?;
        let last = if was_lost { Vec::new() } else { catalog.last_numbers()? };
        Ok(Self { known, last: last.into_iter().collect(), was_lost })
    }

    /// Adds the names of records that are entered.
    pub(crate) fn assign(&mut self, records: &[(BlockId, VersionRecord)]) {
        self.known.extend(records.iter().map(|(_, record)| record.name()));
    }

    pub(crate) fn has_free(&self, records: &[(BlockId, VersionRecord)]) -> bool {
        records.iter().any(|(_, record)| !self.has(&record.name()))
    }

    /// Whether these records may be those of versions that were lost, but cannot be entered now, because somebody holds an edit lock.
    pub(crate) fn may_return(&self, records: &[(BlockId, VersionRecord)]) -> bool {
        self.was_lost && self.has_free(records)
    }

    pub(crate) fn has(&self, name: &VersionName) -> bool {
        self.known.contains(name) || self.last.get(&name.image).is_some_and(|last| name.number <= *last)
    }
}

/// Returns whether these records of an interrupted session lack only the commit, and it may still be made.
pub(crate) fn may_be_finished(
    records: &[(BlockId, VersionRecord)],
    assigned: &AssignedNames,
    edit_locks: &[EditLock],
) -> bool {
    !records.is_empty()
        && records.iter().all(|(_, record)| {
            let held = edit_locks.iter().find(|edit_lock| edit_lock.image == record.image);
            // A rename without its commit has not happened: the version keeps its old name. A record whose number was already
            // assigned belongs to a version that was renamed or forgotten.
            record.renamed_from.is_none()
                && !assigned.has(&record.name())
                && (edit_lock_refusal(&record.image, record.edit_lock, held).is_none()
                    || assigned.was_lost && held.is_none())
        })
}
