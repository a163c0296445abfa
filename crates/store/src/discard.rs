//! Removes packs that interrupted sessions and unfinished uploads left. It takes nothing over, so it needs no space.

use platter_image::{Error, IoContext, Result};
use platter_vfs::OpenMode;

use crate::assigned::{AssignedNames, may_be_finished};
use crate::catalog::{Catalog, PackRow};
use crate::lack::first_lack;
use crate::place::{Format, StorePlace};
use crate::salvage::{
    Records, UnlistedPack, deleted_and_listed, examine, is_of_another, missing_pack, refuse_if_older,
    unlisted,
};
use crate::session::{discard_parked, list_parked};
use crate::store::Store;

/// The result of discarding interrupted sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Number of removed packs of interrupted sessions.
    pub packs: usize,
    /// Number of removed packs of unfinished uploads.
    pub parked: usize,
    /// The total length of all removed packs in bytes.
    pub bytes: u64,
    /// Number of packs that stay, because one of them has a version that lacks only its commit: it may need any of them.
    pub kept: usize,
}

impl Store {
    /// Removes the packs that interrupted sessions and unfinished uploads left and no version needs. Needs no space: it does not take the packs over and
    /// does not change the catalog. If one has a version that lacks only its commit, all stay: the next writer commits it.
    ///
    /// # Errors
    /// `Transient` when another process writes the store; `Missing` when there is no store; `Corrupt`, also when the log of
    /// changes shows that the catalog does not list all packs; `Io`.
    pub fn discard_interrupted(place: &StorePlace) -> Result<Discarded> {
        let format = place.read_format()?;
        let Format { id, domain } = format;
        domain.check_open()?;
        let _lock = crate::store::take_lock(place)?;
        let catalog = Catalog::open_reader(place)?;
        catalog.remove_others(place)?;
        crate::store::check_store(&catalog, format)?;
        if let Some(difference) = catalog.differences(place)?.into_iter().next() {
            return Err(Error::corrupt(difference));
        }
        let assigned = AssignedNames::read(&catalog)?;
        let edit_locks = catalog.edit_locks()?;
        let rows = catalog.packs()?;
        refuse_if_missing(place, &rows)?;
        let (_, listed) = deleted_and_listed(rows);
        let mut found = Vec::new();
        for pack in unlisted(place, id, &listed)? {
            found.push(examine(place, id, pack, OpenMode::Write)?);
        }
        refuse_if_older(catalog.head()?.number(), &found)?;
        if !found.is_empty() {
            refuse_if_incomplete(&Store::open_reader(place)?)?;
        }
        let mut discarded = Discarded::default();
        let is_waiting = |records: &Records| {
            may_be_finished(records, &assigned, &edit_locks) || assigned.may_return(records)
        };
        if found.iter().flat_map(|found| &found.records).any(|(_, records)| is_waiting(records)) {
            discarded.kept = found.len();
            found.clear();
        }
        for UnlistedPack { pack, .. } in found {
            let path = place.pack(pack);
            let context = || format!("removing {}", path.display());
            let file = place.vfs().open(&path, OpenMode::Read).context(context)?;
            discarded.bytes += file.length().context(context)?;
            drop(file);
            place.remove_if_there(&path)?;
            place.sync_dir(&place.pack_dir(pack))?;
            discarded.packs += 1;
        }
        for pack in list_parked(place)? {
            if discard_parked(place, &pack)? {
                discarded.parked += 1;
                discarded.bytes += pack.length;
            }
        }
        Ok(discarded)
    }
}

/// Refuses to remove packs while one is missing that the catalog lists: if the catalog is an older copy, a compaction may have moved its
/// blocks to a pack that is not listed.
fn refuse_if_missing(place: &StorePlace, rows: &[PackRow]) -> Result<()> {
    let mut files = Vec::new();
    for pack in place.list_packs()? {
        if !is_of_another(place, pack)? {
            files.push(pack);
        }
    }
    match missing_pack(rows, &files) {
        None => Ok(()),
        Some(pack) => Err(Error::corrupt(format!(
            "pack {pack} is missing, and what is not in the catalog may have its blocks: `platter rebuild` takes it over"
        ))),
    }
}

/// Refuses to remove packs while something that must stay is missing or damaged: a pack that was away during a rebuild is not listed when it
/// returns, and may have the only copy.
fn refuse_if_incomplete(store: &Store) -> Result<()> {
    match first_lack(store)? {
        None => Ok(()),
        Some(what) => Err(Error::corrupt(format!(
            "nothing was removed: the store lacks something that packs which are not in the catalog may have: `platter rebuild`, then \
             `platter heal` take it over ({what})"
        ))),
    }
}
