//! Recreates the catalog and its change log when one of them is missing, damaged or outdated.
//!
//! Names, numbers, edit locks and the hoard come from the first of these sources that is available:
//! 1. the change log, if it is complete: it verifies itself, and the catalog may be older;
//! 2. the old catalog, if all of its checksums match and it is as new as the log;
//! 3. the valid parts of both, the entries of the log that are in packs, and the version records in packs. Only in this case
//!    changes since the last entry in a pack may be lost, and versions that were forgotten or renamed since may reappear. Edit locks are dropped, because somebody may have taken one over since. The numbers of new edit locks continue
//!    after a random step of up to 2^32, so that no earlier holder finds its number assigned to somebody else.
//!
//! In the first two cases a rebuild changes no name, whatever is damaged in packs. But if an earlier one had to use the third, versions that it
//! missed are entered when the pack with their record is there again. Damaged records are written again.
//!
//! Why a crash cannot hurt it: the new catalog and log are made beside the old ones, under names that nobody else reads. All
//! work happens there, including new footers for damaged packs and records that are written again. When the new catalog is
//! complete and durable, it is renamed to the name that is used if there is no other catalog. Then the old one is removed and
//! the new one takes its name. The first writer that opens it puts the log in place. Until the old catalog is removed,
//! it lists all packs that versions need, and a rebuild starts over with it. A rebuild that finds only a new catalog continues
//! with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Domain, Error, ErrorKind, IoContext, Kind, Result};
use platter_index::IndexFolder;
use platter_vfs::{OpenMode, VfsFile};

use crate::catalog::{
    Beginning, Catalog, Change, LOST_NUMBERS, PackRow, PackState, PackedChanges, Sources, State,
    create_new_log, first_name, is_replacement, remove_catalog, remove_journals,
};
use crate::clock::now_unix_ms;
use crate::health::{Condition, Health, Observation};
use crate::lack::lacks;
use crate::pack_writer::SealedPack;
use crate::place::{Format, StorePlace};
use crate::reserve;
use crate::salvage::{
    Adopt, FoundBootSet, add_boot_sets, missing_pack, read_boot_sets, read_records, unlisted_changes,
};
use crate::standing::read_copy;
use crate::store::{Store, other_domain, take_lock};
use platter_pack::{begins_encrypted, read_directory, read_header, read_row, read_row_header};
use platter_records::Version;
use platter_records::VersionName;
use platter_records::VersionRecord;
use platter_records::{Action, Actor, EditLock, ImageName, PackId, StoreId, edit_lock_refusal};

/// Without catalog and log, as many numbers of changes are left out: what is lost, or in a pack that is away, may have them.
const LOST_CHANGES: u64 = 1_000_000;

/// The result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Number of packs with a valid footer.
    pub packs: usize,
    /// Number of packs without a valid footer, whose sound frames were taken over.
    pub packs_taken_over: usize,
    /// All versions in the new catalog.
    pub versions: Vec<VersionName>,
    /// Versions that the old catalog did not have; `None` if it could not be read.
    pub reappeared: Option<Vec<VersionName>>,
    /// Versions that the old catalog had and the new one does not have, not even as forgotten or renamed.
    pub lost: Vec<VersionName>,
    /// Edit locks that were held and are lost; `None` if unknown.
    pub edit_locks_lost: Option<Vec<EditLock>>,
    /// Number of versions with a boot set.
    pub boot_sets: usize,
    /// What is incomplete, in sentences: versions, boot sets, disks in use, and packs whose records may be lost.
    pub damaged: Vec<String>,
    /// Further messages for the user.
    pub notes: Vec<String>,
}

/// The contents of the packs.
#[derive(Default)]
struct PackContents {
    sealed: Vec<SealedPack>,
    records: Vec<(BlockId, VersionRecord)>,
    boot_sets: Vec<FoundBootSet>,
    /// Entries of the change log.
    changes: PackedChanges,
    /// The damaged frames.
    bad: Vec<Observation>,
    notes: Vec<String>,
}

impl PackContents {
    /// Adds a damaged frame.
    fn add_bad(&mut self, pack: PackId, offset: u64) {
        let (condition, time_unix_ms) = (Condition::Damaged, now_unix_ms());
        self.bad.push(Observation { pack, offset, condition, time_unix_ms });
    }
}

/// Recreates the catalog of a store.
///
/// # Errors
/// `Transient` when another process writes the store; `Missing` when neither `store.json` nor a pack tells the store's id;
/// `Refused` when a newer Platter wrote a part of it; `Io`.
pub fn rebuild(place: &StorePlace) -> Result<RebuildReport> {
    let lock: Arc<dyn VfsFile> = Arc::from(take_lock(place)?);
    let packs = place.list_packs()?;
    let (store, has_format) = store_id(place, &packs)?;
    let domain = domain_of(place, store, &packs, has_format)?;
    let format = Format { id: store, domain };
    if domain.check_open().is_err() && place.read_key_file_alone()?.is_none() {
        return Err(place.no_key_file());
    }
    domain.check_open()?;
    let _space = reserve::lend(place);
    finish_interrupted(place)?;
    finish_replacing_log(place)?;
    // A cache of the footers, which are read again.
    remove_index(place, store)?;
    let mut sources = Sources::read(place, store, &packs_of(place, store, &packs)?)?;
    let newer = newer_changes(place, store, &sources)?;
    if sources.needs_packed() || newer.is_some() {
        let mut changes = read_packs(place, store, &packs)?.changes;
        changes.merge(newer.unwrap_or_default());
        sources.add_packed(&changes);
    }
    // If one is missing, any other may have its blocks: the catalog may be older than a compaction.
    let are_here = |state: &&State| missing_pack(&state.packs(), &packs).is_none();
    // Nor does a list of packs count that lost one.
    let lists_all = |state: &&State| state.contradiction_of_packs().is_none();
    let known = sources.proven.as_ref().filter(are_here).filter(lists_all).map(readable_packs);
    let adopt = Adopt::Needed { known, has_names: sources.proven.is_some() };
    let needed: Vec<PackId> = packs.iter().copied().filter(|pack| adopt.is_needed(*pack)).collect();
    let mut found = read_packs(place, store, &needed)?;
    found.notes.extend(sources.of_others());
    Health::default().add(place, store, &found.bad)?;
    make_catalog(place, format, &sources, &mut found)?;
    if !has_format {
        place.write_format(format)?;
        found.notes.push("store.json was missing or damaged and has been written again".into());
    }
    let opened = Store::open_writer_adopting(&place.unfinished(), Arc::clone(&lock), &adopt)?;
    mend_records(&opened, &mut found.notes)?;
    let copied = opened.salvaged().map_or_else(Vec::new, |salvaged| salvaged.copied.clone());
    let report = report(&opened, &sources, found)?;
    drop(opened);
    put_in_use(place)?;
    // Their sound frames are now in other packs, which the new catalog lists.
    for pack in copied {
        place.remove_if_there(&place.pack(pack))?;
        place.sync_dir(&place.pack_dir(pack))?;
    }
    Ok(report)
}

/// Returns whether a rebuild is running. What an interrupted one left does not count.
pub(crate) fn is_being_rebuilt(place: &StorePlace) -> Result<bool> {
    let exists = |path: &std::path::Path| {
        place.vfs().exists(path).context(|| format!("looking for {}", path.display()))
    };
    if !exists(&place.unfinished().catalog())? && !exists(&place.new_catalog())? {
        return Ok(false);
    }
    // On a read-only file system, nothing is rebuilt.
    Ok(place.vfs().lock(&place.lock_file()).is_ok_and(|lock| lock.is_none()))
}

/// Removes the block index.
fn remove_index(place: &StorePlace, store: StoreId) -> Result<()> {
    IndexFolder::new(place.vfs(), &place.index_dir(), store, 0).remove()
}

/// Replaces the old catalog and log by the new ones. No process has the new catalog open.
fn put_in_use(place: &StorePlace) -> Result<()> {
    let made = place.unfinished().catalog();
    remove_journals(place, &made)?;
    let renamed = place.vfs().rename(&made, &place.new_catalog());
    renamed.context(|| "renaming the finished catalog".into())?;
    // Durable before the old catalog is removed: one of them must always exist.
    place.sync_dir(place.dir())?;
    remove_catalog(place, &place.catalog())?;
    put_new_catalog(place)?;
    Catalog::open_writer(place, |_| Ok(())).map(drop)
}

/// Puts a new change log in place if a crash came after the long one before it was moved away. The log that an interrupted rebuild left
/// is not one: its sources are read again.
fn finish_replacing_log(place: &StorePlace) -> Result<()> {
    let (log, new) = (place.change_log(), place.new_change_log());
    let exists = |path: &std::path::Path| {
        place.vfs().exists(path).context(|| format!("looking for {}", path.display()))
    };
    if exists(&log)? || !exists(&new)? || !is_replacement(place, &new)? {
        return Ok(());
    }
    place.vfs().rename(&new, &log).context(|| format!("renaming {}", new.display()))?;
    place.sync_dir(place.dir())
}

/// Finishes a rebuild that a crash interrupted after it had removed the old catalog.
fn finish_interrupted(place: &StorePlace) -> Result<()> {
    let exists = |path: &std::path::Path| {
        place.vfs().exists(path).context(|| format!("looking for {}", path.display()))
    };
    if !exists(&place.new_catalog())? {
        return Ok(());
    }
    if exists(&place.catalog())? {
        // The sources of the new catalog still exist and may have changed since: start over.
        return remove_catalog(place, &place.new_catalog());
    }
    match Catalog::check_new(place) {
        Ok(()) => {
            remove_catalog(place, &place.catalog())?;
            put_new_catalog(place)
        }
        // The new catalog is incomplete although the old one is gone. A rebuild does not cause this.
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
        Err(error) => Err(error),
    }
}

fn put_new_catalog(place: &StorePlace) -> Result<()> {
    let renamed = place.vfs().rename(&place.new_catalog(), &place.catalog());
    renamed.context(|| "renaming the new catalog".into())?;
    place.sync_dir(place.dir())
}

/// Makes the new catalog and its log, durable, beside the old ones.
fn make_catalog(
    place: &StorePlace,
    format: Format,
    sources: &Sources,
    found: &mut PackContents,
) -> Result<()> {
    let random = place.vfs().random_id().context(|| "choosing the next edit lock's number".into())?;
    let epoch = place.vfs().random_id().context(|| "choosing a random epoch for the hoard".into())?;
    let made = place.unfinished().catalog();
    remove_catalog(place, &place.new_catalog())?;
    remove_catalog(place, &made)?;
    Catalog::create(place, &made, format, |change| {
        match &sources.proven {
            Some(state) => {
                enter_proven(change, state, &found.sealed)?;
                finish_publishing(change, &found.records)?;
            }
            None => {
                let step = u64::from(u32::from_le_bytes([random[0], random[1], random[2], random[3]]));
                let why = match sources.old.is_sound && sources.log.is_whole() {
                    true => "catalog and change log are both older than the packs",
                    false => "the change log and the old catalog are both damaged",
                };
                found.sealed.iter().try_for_each(|pack| change.add_live_pack(pack))?;
                let notes = found.notes.len();
                guess(change, sources, found, step)?;
                found.notes.insert(notes, what_is_lost(change, why, sources.replayed().1)?);
                add_boot_sets(change, epoch, &found.boot_sets)?;
                change.note_loss()?;
            }
        }
        if !sources.old.is_sound && sources.proven.is_some() {
            let (last, _) = sources.last();
            let torn = if sources.log.has_torn_end {
                "ends in an incomplete entry"
            } else {
                "may have been cut off"
            };
            found.notes.push(format!(
                "without the old catalog, nothing confirms that change {last} was the last one: the change log {torn}, so \
                 later changes may be missing (`platter log` shows what is known)"
            ));
        }
        if !sources.old.is_sound {
            restore_standing(change, place, &mut found.notes)?;
        }
        let unknown = if sources.proven.is_none() { LOST_NUMBERS } else { 0 };
        raise_numbers(change, &found.records, unknown)?;
        change.write_set_sums()?;
        let (by, time_unix_ms) = (Actor::clone(place.actor()), change.time_unix_ms());
        let mut last = sources.last();
        if sources.proven.is_none() {
            last.0 = last.0.saturating_add(LOST_CHANGES);
        }
        let beginning = Beginning { last, by, time_unix_ms, action: Action::Rebuild {} };
        create_new_log(place, &change.state()?, &beginning)
    })?;
    place.sync_dir(place.dir())
}

/// Names what only catalog and log know, when both cannot be used; `why` says so. Changes up to number `last` are known from records in packs.
fn what_is_lost(change: &Change<'_>, why: &str, last: u64) -> Result<String> {
    let lost = "versions whose capture stored no new block, clones, signatures, protections, quotas, and which images' boots are recorded";
    let known = match last {
        0 => format!(
            "versions that were forgotten or renamed may have reappeared, and what packs do not have is lost: all edit locks, {lost}"
        ),
        last => format!(
            "names are as of change {last} and the records in packs: versions that were forgotten or renamed since may have reappeared, \
             and what packs do not have is lost: all edit locks, and since that change {lost}"
        ),
    };
    let (protected, quotas) = (change.protected_count()?, change.quotas()?.len());
    Ok(format!(
        "{why}: {known} (known protections: {protected}, quotas: {quotas}; \
         `platter protect` and `platter quota set` make others again)"
    ))
}

/// Enters the copy of the standing if it is newer than what the log says: the last changes may be missing.
fn restore_standing(change: &mut Change<'_>, place: &StorePlace, notes: &mut Vec<String>) -> Result<()> {
    let Some(standing) = read_copy(place)? else { return Ok(()) };
    if standing.is_after(&change.standing()?) {
        notes.push(format!("from the copy in standing.json, this store is: {}", standing.summary()));
        change.set_standing(&standing)?;
    }
    Ok(())
}

/// Returns the changes of the packs that the proven state does not list, if one of them is later than its last one: then catalog and log are
/// older copies.
fn newer_changes(place: &StorePlace, store: StoreId, sources: &Sources) -> Result<Option<PackedChanges>> {
    let Some(state) = &sources.proven else { return Ok(None) };
    let listed = state.packs().into_iter().map(|row| row.id).collect();
    let changes = unlisted_changes(place, store, &listed)?;
    Ok(Some(changes).filter(|changes| changes.last_number() > sources.last().0))
}

/// Returns the packs of a state that can be read.
fn readable_packs(state: &State) -> BTreeSet<PackId> {
    let packs = state.packs().into_iter().filter(|row| row.state.is_readable());
    packs.map(|row| row.id).collect()
}

/// Enters all rows of a proven state. Of its readable packs, those with a valid footer are entered; the others are taken over
/// later. Packs of interrupted sessions are not in the state, so they are not entered.
fn enter_proven(change: &mut Change<'_>, state: &State, sealed: &[SealedPack]) -> Result<()> {
    let rows: BTreeMap<PackId, PackRow> = state.packs().into_iter().map(|row| (row.id, row)).collect();
    let mut others = state.clone();
    others.drop_packs();
    change.enter(&others)?;
    for row in rows.values().filter(|row| !row.state.is_readable()) {
        change.put_pack(row)?;
    }
    for pack in sealed {
        let SealedPack { id, length, frames, blocks } = *pack;
        let kept = rows.get(&id).map_or((PackState::Live, 0), |row| (row.state, row.epoch));
        let (state, epoch) = kept;
        change.put_pack(&PackRow { id, state, epoch, length, frames, blocks })?;
    }
    Ok(())
}

/// Enters versions whose publication lacked only the commit.
fn finish_publishing(change: &mut Change<'_>, records: &[(BlockId, VersionRecord)]) -> Result<()> {
    let was_lost = change.was_lost()?;
    if change.standing()?.refusal().is_some() {
        return Ok(());
    }
    for (id, record) in records {
        let held = change.edit_lock(&record.image)?;
        let name = record.name();
        let is_known = || -> Result<bool> { Ok(change.has_name(&name)? || change.is_former(&name)?) };
        let is_free = record.number > change.last_number(&record.image)? || was_lost && !is_known()?;
        let may_be_finished = record.renamed_from.is_none()
            && is_free
            && edit_lock_refusal(&record.image, record.edit_lock, held.as_ref()).is_none();
        if may_be_finished {
            change.add_version(*id, record)?;
        }
    }
    Ok(())
}

/// Enters names from the valid parts of log and old catalog, and from packs.
fn guess(change: &mut Change<'_>, sources: &Sources, found: &mut PackContents, step: u64) -> Result<()> {
    let (mut state, _) = sources.replayed();
    state.drop_edit_locks();
    state.drop_hoard();
    state.drop_packs();
    change.enter(&state)?;
    let named = state.names();
    // Versions that it has and the newer state lacks were forgotten or renamed since.
    let known = if sources.old_is_past() { Vec::new() } else { sources.old.state.versions() };
    let known = known.iter().map(|version| (version.record_id, &version.record));
    let records = found.records.iter().map(|(id, record)| (*id, record));
    // The old catalog first: its records have signatures.
    for (id, record) in known.chain(records).filter(|(_, record)| !named.contains(&record.name())) {
        let is_new = change.add_version(id, record)?;
        let is_other = !is_new && !change.has_version(&record.name(), &id)?;
        if is_other {
            found.notes.push(format!("another record also claims to be {}: ignored ({id})", record.name()));
        }
    }
    add_forgotten(change, &found.records)?;
    change.raise_as(&sources.old.state)?;
    let last = change.last_edit_lock()?.saturating_add(step);
    change.raise_last_edit_lock(last.min(i64::MAX as u64))
}

/// Raises the highest assigned numbers so that no version and no record in a pack has a higher one, and `unknown` more of each image are not
/// assigned again.
fn raise_numbers(change: &mut Change<'_>, records: &[(BlockId, VersionRecord)], unknown: u64) -> Result<()> {
    let versions = change.versions_by_time()?;
    let mut last: BTreeMap<&ImageName, u64> = BTreeMap::new();
    for record in
        versions.iter().map(|version| &version.record).chain(records.iter().map(|(_, record)| record))
    {
        let last = last.entry(&record.image).or_default();
        *last = record.number.max(*last);
        record.edit_lock.map_or(Ok(()), |edit_lock| change.raise_last_edit_lock(edit_lock))?;
    }
    let (assigned, _) = change.state()?.last_numbers();
    for (image, number) in &assigned {
        let last = last.entry(image).or_default();
        *last = (*number).max(*last);
    }
    for (image, number) in last {
        let number = number.max(change.last_number(image)?).saturating_add(unknown);
        change.raise_last_number(image, number.min(i64::MAX as u64))?;
    }
    change.edit_locks()?.iter().try_for_each(|edit_lock| change.raise_last_edit_lock(edit_lock.number))
}

/// Records versions as forgotten of which packs have a record but the catalog has none under any name.
pub(crate) fn add_forgotten(change: &mut Change<'_>, records: &[(BlockId, VersionRecord)]) -> Result<()> {
    let present = change.versions_by_time()?.into_iter();
    let forgotten = change.forgotten()?.into_iter();
    let mut names: BTreeSet<VersionName> =
        present.chain(forgotten).map(|version| first_name(&version.record)).collect();
    for (id, record) in records {
        let name = record.name();
        if names.insert(first_name(record)) && !change.is_former(&name)? {
            change.add_forgotten(&Version { name, record_id: *id, record: record.clone() })?;
        }
    }
    Ok(())
}

/// Writes version records again that are in damaged frames. Adds a note for each.
fn mend_records(store: &Store, notes: &mut Vec<String>) -> Result<()> {
    let unsound = store.0.unsound();
    let mut versions = store.catalog()?.all_versions()?;
    versions.extend(store.catalog()?.former()?);
    let is_lost = |id: &BlockId| unsound.binary_search(id).is_ok();
    let lost: Vec<&Version> = versions.iter().filter(|version| is_lost(&version.record_id)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    // Each commit writes the damaged ones again.
    store.upkeep_session()?.commit(|_, _, _| Ok(Ok(())))?;
    for version in lost {
        notes.push(format!("the record of {} was damaged and has been written again", version.name));
    }
    Ok(())
}

fn report(opened: &Store, sources: &Sources, mut found: PackContents) -> Result<RebuildReport> {
    let versions: Vec<VersionName> =
        opened.catalog()?.all_versions()?.into_iter().map(|version| version.name).collect();
    let difference = |from: &[VersionName], minus: &[VersionName]| -> Vec<VersionName> {
        let minus: BTreeSet<&VersionName> = minus.iter().collect();
        from.iter().filter(|name| !minus.contains(name)).cloned().collect()
    };
    let old = sources
        .old
        .is_sound
        .then(|| sources.old.state.versions().into_iter().map(|version| version.name).collect::<Vec<_>>());
    // Forgotten or renamed since.
    let former = opened.catalog()?.former()?.into_iter().map(|version| version.name);
    let known: Vec<VersionName> = versions.iter().cloned().chain(former).collect();
    let kept = opened.edit_locks()?;
    let is_kept = |edit_lock: &EditLock| {
        kept.iter().any(|kept| kept.image == edit_lock.image && kept.number == edit_lock.number)
    };
    let edit_locks_lost = match (&sources.proven, sources.old.is_sound) {
        (_, true) => {
            Some(sources.old.edit_locks.iter().filter(|edit_lock| !is_kept(edit_lock)).cloned().collect())
        }
        (Some(_), false) => Some(Vec::new()),
        (None, false) => None,
    };
    let mut damaged = match lacks(opened, usize::MAX) {
        Ok(damaged) => damaged,
        Err(error) => vec![format!("it is not known which versions are complete: {}", error.with_causes())],
    };
    let refused = opened.salvaged().map_or(&[][..], |salvaged| &salvaged.refused);
    found.notes.extend(refused.iter().map(|name| {
        format!("a pack has {name}, which was not published or is outdated: it counts as forgotten (`platter rebuild --resurrect`)")
    }));
    let broken = opened.salvaged().map_or(&[][..], |salvaged| &salvaged.broken);
    if sources.proven.is_none() {
        damaged.extend(broken.iter().map(|pack| {
            format!("pack {pack}: parts of it are damaged, and versions of which only these had the record are lost")
        }));
    }
    Ok(RebuildReport {
        packs: found.sealed.len(),
        packs_taken_over: opened.salvaged().map_or(0, |salvaged| salvaged.packs),
        reappeared: old.as_ref().map(|old| difference(&versions, old)),
        lost: old.as_ref().map_or_else(Vec::new, |old| difference(old, &known)),
        versions,
        edit_locks_lost,
        boot_sets: opened.catalog()?.hoard_members()?.len(),
        damaged,
        notes: found.notes,
    })
}

/// Returns the packs whose header names the store.
fn packs_of(place: &StorePlace, store: StoreId, packs: &[PackId]) -> Result<BTreeSet<PackId>> {
    let mut own = BTreeSet::new();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        match read_header(&*file) {
            Ok((_, owner)) if owner == store => drop(own.insert(*pack)),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(own)
}

/// Returns the store's id, and whether `store.json` is valid. That file may have no checksum. So if no pack has its id, and the
/// catalog has another one or none, the id that most packs name counts.
fn store_id(place: &StorePlace, packs: &[PackId]) -> Result<(StoreId, bool)> {
    let named = match place.read_format() {
        Ok(format) => Some(format.id),
        Err(error) if error.is_damage() => None,
        Err(error) => return Err(error),
    };
    let of_catalog = Catalog::open_reader(place).and_then(|catalog| catalog.store()).ok();
    let mut votes: BTreeMap<StoreId, usize> = BTreeMap::new();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        if let Ok((_, store)) = read_header(&*file) {
            *votes.entry(store).or_default() += 1;
        }
    }
    if let Some(named) = named.filter(|named| votes.contains_key(named) || of_catalog == Some(*named)) {
        return Ok((named, true));
    }
    let winner = votes.into_iter().max_by_key(|(_, count)| *count).map(|(store, _)| store);
    let of_others = winner.or(of_catalog).map(|store| (store, false));
    of_others.or(named.map(|named| (named, true))).ok_or_else(|| {
        Error::missing(format!(
            "{} has neither a valid store.json nor packs: there is nothing to rebuild",
            place.dir().display()
        ))
    })
}

/// Returns the identity domain of a store: that in `store.json`, or without it that of the key slots. The old catalog, or without
/// it the packs, must not contradict.
///
/// # Errors
/// `Corrupt` when they do; also when the store is encrypted and has no key slots; as [`StorePlace::read_key_file_alone`].
fn domain_of(place: &StorePlace, store: StoreId, packs: &[PackId], has_format: bool) -> Result<Domain> {
    let mut has_no_keys = false;
    let named = match has_format {
        true => Some(place.read_format()?.domain),
        false => {
            let keys = place.read_key_file_alone()?;
            has_no_keys = keys.is_none();
            keys.map(|keys| keys.domain())
        }
    };
    let of_catalog =
        Catalog::open_reader(place).and_then(|catalog| Ok((catalog.store()?, catalog.domain()?)));
    let of_catalog = of_catalog.ok().filter(|(owner, _)| *owner == store).map(|(_, domain)| domain);
    let of_packs = domain_of_packs(place, store, packs)?;
    // A catalog from before domains were in it names none.
    let is_old = |domain: &Domain| !domain.is_encrypted() && of_packs.is_some_and(Domain::is_encrypted);
    let proven = match of_catalog.filter(|domain| !is_old(domain)) {
        Some(domain) => Some((domain, "the catalog")),
        None => of_packs.map(|domain| (domain, "a pack")),
    };
    match (named, proven) {
        (Some(named), Some((proven, who))) if named != proven => Err(other_domain(named, who, proven)),
        (Some(named), _) => Ok(named),
        (None, Some((proven, _))) if has_no_keys && proven.is_encrypted() => Err(place.no_key_file()),
        (None, None) if has_no_keys && any_begins_encrypted(place, packs)? => Err(place.no_key_file()),
        (None, ..) => Ok(Domain::SHARED),
    }
}

/// Returns the identity domain in the first data or page frame of the packs with a valid header.
fn domain_of_packs(place: &StorePlace, store: StoreId, packs: &[PackId]) -> Result<Option<Domain>> {
    let mut stored = Vec::new();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        let directory = match read_directory(&*file, *pack, store) {
            Err(error) if error.kind() == ErrorKind::Corrupt => continue,
            read => read?,
        };
        for (row, ids) in directory.iter().filter(|(row, _)| matches!(row.kind, Kind::Data | Kind::Page)) {
            match read_row_header(&*file, row, ids, &mut stored) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                read => {
                    read?;
                    if let Ok(header) = FrameHeader::parse(&stored) {
                        return Ok(Some(header.domain));
                    }
                }
            }
        }
    }
    Ok(None)
}

fn any_begins_encrypted(place: &StorePlace, packs: &[PackId]) -> Result<bool> {
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        if begins_encrypted(&*file) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_packs(place: &StorePlace, store: StoreId, packs: &[PackId]) -> Result<PackContents> {
    let mut found = PackContents::default();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        let directory = match read_directory(&*file, *pack, store) {
            Ok(directory) => directory,
            // Taken over later, when the rest is known: then nothing is copied that another pack has.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                found.notes.push(format!("pack {pack}: {}", error.with_causes()));
                continue;
            }
            Err(error) => return Err(error.within(format!("reading pack {pack}"))),
        };
        let length = file.length().context(|| format!("reading {}", path.display()))?;
        let (frames, blocks) = (directory.frames() as u64, directory.blocks() as u64);
        found.sealed.push(SealedPack { id: *pack, length, frames, blocks });
        let mut stored = Vec::new();
        for (row, ids) in directory.iter().filter(|(row, _)| row.kind == Kind::Version) {
            let records = match read_row(&*file, row, ids, &mut stored) {
                Err(error) if error.kind() == ErrorKind::Corrupt => Vec::new(),
                read => read.and_then(|()| read_records(&stored))?,
            };
            if records.is_empty() {
                found.add_bad(*pack, row.offset);
                found
                    .notes
                    .push(format!("pack {pack}: the version record at offset {} is damaged", row.offset));
            }
            found.records.extend(records);
        }
        for (row, ids) in directory.iter().filter(|(row, _)| row.kind == Kind::Change) {
            match read_row(&*file, row, ids, &mut stored) {
                Err(error) if error.kind() == ErrorKind::Corrupt => found.add_bad(*pack, row.offset),
                read => read.and_then(|()| read_changes(&stored, &mut found.changes))?,
            }
        }
        for (row, ids) in directory.iter().filter(|(row, _)| row.kind == Kind::BootSet) {
            match read_row(&*file, row, ids, &mut stored) {
                Err(error) if error.kind() == ErrorKind::Corrupt => found.add_bad(*pack, row.offset),
                read => found.boot_sets.extend(read.and_then(|()| read_boot_sets(&stored))?),
            }
        }
    }
    found.records.sort_by(|(_, a), (_, b)| {
        (&a.image, a.number, a.time_unix_ms).cmp(&(&b.image, b.number, b.time_unix_ms))
    });
    Ok(found)
}

/// Adds the parts of log entries in a frame of kind change.
pub(crate) fn read_changes(stored: &[u8], changes: &mut PackedChanges) -> Result<()> {
    let mut decoder = FrameDecoder::new()?;
    let (header, mut contents) = match decoder.decode(stored, Verify::Hashes) {
        Ok(decoded) => decoded,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
        Err(error) => return Err(error),
    };
    for block in &header.blocks {
        let (bytes, after) = contents.split_at(block.length as usize);
        contents = after;
        changes.add(bytes)?;
    }
    Ok(())
}
