//! Takes over packs that the catalog does not list: packs of sessions that a crash or an error interrupted.
//!
//! Nothing is copied, except by a rebuild from packs that are broken or cannot keep their name. Such a pack may lack its footer, or have holes where writes did not reach the disk. After a failed
//! sync it may even be readable from memory although it is not on the disk. So it is synced, dropped from the cache and read
//! back. The unbroken chain of frames from its start counts. The pack is truncated after the last of them and gets a footer in
//! place. A crash during these steps leaves a pack in which the same frames are found again.
//!
//! The pack stays unlisted until it is needed: a session that finds a block in it lists it with its own commit. Until then
//! [`Store::discard_interrupted`] can remove it, which helps on a full disk.
//!
//! Why a version record in such a pack is entered in the catalog: a record is written only after everything that it needs
//! is durable (see `session`), so a record in an unbroken chain belongs to a publication that lacked only its commit. The
//! commit is made now, if it is still allowed: the edit lock may have been taken over since. A record that is not
//! entered is cut off together with everything after it; otherwise it would come back when the pack is listed.
//!
//! A pack that was away during a rebuild is not listed either when it returns, and may have the only copy of what versions need.
//! So nothing that is sound is cut off while the store lacks something: such packs stay as they are, and a rebuild takes them over.
//!
//! Why a frame that is found after a hole never yields a name: what looks like a frame there may be the contents of
//! somebody's disk. Blocks are named by their contents, so their origin does not matter. Names have no such proof.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use platter_image::frame::{EncodedFrame, FrameDecoder, Verify};
use platter_image::{BlockId, Error, ErrorKind, FrameStore, IoContext, Kind, Result};
use platter_vfs::{OpenMode, VfsFile};

use crate::assigned::{AssignedNames, may_be_finished};
use crate::catalog::{Change, PackRow, PackState, PackedChanges};
use crate::check::Severity;
use crate::lack::first_lack;
use crate::mend::mend;
use crate::pack_writer::SealedPack;
use crate::place::{StorePlace, is_full};
use crate::rebuild::{add_forgotten, read_changes};
use crate::session::Session;
use crate::store::Store;
use platter_index::Index;
use platter_pack::{PackDirectory, Scanned, read_directory, read_header, read_row, scan};
use platter_records::PackId;
use platter_records::VersionName;
use platter_records::VersionRecord;
use platter_records::{Action, BootSetHead};

/// How to treat packs that the catalog does not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Adopt {
    /// They are from interrupted sessions: nothing refers to them.
    Interrupted,
    /// Versions may need any of them, because the catalog was recreated.
    Needed {
        /// If set, only these may be needed: the previous catalog listed them.
        known: Option<BTreeSet<PackId>>,
        /// Whether the names of versions are known from a source other than version records.
        has_names: bool,
    },
}

impl Adopt {
    pub(crate) fn is_needed(&self, pack: PackId) -> bool {
        match self {
            Self::Interrupted => false,
            Self::Needed { known, .. } => known.as_ref().is_none_or(|known| known.contains(&pack)),
        }
    }

    /// The same for a store in which versions lack something although all known packs are listed: a rebuild then takes over all packs.
    fn for_store(&self, completeness: &Completeness<'_>) -> Result<Self> {
        match self {
            Self::Needed { known: Some(_), has_names } if !completeness.is_whole()? => {
                Ok(Self::Needed { known: None, has_names: *has_names })
            }
            same => Ok(same.clone()),
        }
    }

    /// Returns whether the records in needed packs are believed, because there is no other source.
    fn believes_records(&self) -> bool {
        matches!(self, Self::Needed { has_names: false, .. })
    }
}

/// The result of taking over packs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Number of packs of interrupted sessions. New sessions find their sound frames.
    pub packs: usize,
    /// Versions whose publication lacked only its commit, which was made now.
    pub versions: Vec<VersionName>,
    /// Versions whose publication was refused or is outdated. They count as forgotten, unless a version has their name.
    pub refused: Vec<VersionName>,
    /// Packs whose frames could not stay. The sound ones were copied, and these packs are removed once the new catalog is in use.
    pub(crate) copied: Vec<PackId>,
    /// Those of them whose chain of frames is broken.
    pub(crate) broken: Vec<PackId>,
}

/// The id and head of a boot set that was found in a pack.
pub(crate) type FoundBootSet = (BlockId, BootSetHead);

/// The records in a frame of kind version.
pub(crate) type Records = Vec<(BlockId, VersionRecord)>;

/// The contents of an unlisted pack: its chain of frames from the start.
pub(crate) struct UnlistedPack {
    pub(crate) pack: PackId,
    directory: PackDirectory,
    /// Each with the number of its frame.
    pub(crate) records: Vec<(usize, Records)>,
    boot_sets: Vec<(usize, FoundBootSet)>,
    /// Entries of the change log.
    changes: PackedChanges,
    /// Whether the pack has a footer for `directory` that was written after all frames were proven.
    is_whole: bool,
    /// Whether sound frames follow after a hole, or its footer lists frames that are not sound.
    is_broken: bool,
    /// Whether its frames cannot stay under its name.
    must_move: bool,
}

/// Whether the store has all that must stay, without the packs that the catalog does not list. Found out when it is first asked, because
/// that can take long.
struct Completeness<'a> {
    store: &'a Store,
    found: OnceCell<bool>,
}

impl Completeness<'_> {
    fn is_whole(&self) -> Result<bool> {
        if let Some(found) = self.found.get() {
            return Ok(*found);
        }
        let is_whole = first_lack(self.store)?.is_none();
        Ok(*self.found.get_or_init(|| is_whole))
    }
}

/// Takes over all packs that the catalog does not list. The store was just opened for writing and has no sessions yet.
pub(crate) fn salvage(store: &Store, adopt: &Adopt) -> Result<Salvaged> {
    let completeness = Completeness { store, found: OnceCell::new() };
    let adopt = &adopt.for_store(&completeness)?;
    let (mut found, mut is_complete) = find_unlisted(store, adopt, &completeness)?;
    if found.is_empty() {
        return Ok(Salvaged::default());
    }
    if *adopt == Adopt::Interrupted {
        refuse_if_older(store.catalog()?.head()?.number(), &found)?;
    }
    let packs = found.len();
    if found.iter().any(|found| found.is_broken && !adopt.is_needed(found.pack))
        && !completeness.is_whole()?
    {
        found.retain(|found| !found.is_broken || adopt.is_needed(found.pack));
    }
    // Without the packs that stay as they are, for a rebuild, new versions could be incomplete. A follower gets names only from its
    // origin.
    is_complete &= found.len() == packs;
    let takes_names = is_complete && store.standing()?.refusal().is_none() || adopt.believes_records();
    let mut chosen = choose_records(store, adopt, takes_names, &mut found, &completeness)?;
    let (mut moved, mut boot_sets, mut is_left) = (Vec::new(), Vec::new(), false);
    for mut found in found {
        let is_needed = adopt.is_needed(found.pack);
        if takes_names && (!is_needed || adopt.believes_records()) {
            boot_sets.extend(found.boot_sets.drain(..).map(|(_, boot_set)| boot_set));
        }
        if is_needed && (found.is_broken || found.must_move) {
            moved.push(found);
            continue;
        }
        let sealed = if found.is_whole {
            Some(sealed_of(store.place(), &found)?)
        } else {
            match mend(store.place(), (found.pack, store.id()), &mut found.directory) {
                // Without space for the footer it stays as it is: a collection must be able to open the store.
                Err(error) if is_full(&error) && !is_needed => {
                    is_left = true;
                    continue;
                }
                mended => mended?,
            }
        };
        if let Some(sealed) = sealed {
            store.0.add_interrupted(sealed, &found.directory)?;
        }
    }
    if is_left && !adopt.believes_records() {
        (chosen, boot_sets) = (Chosen::default(), Vec::new());
    }
    let is_rebuilt = *adopt != Adopt::Interrupted;
    if chosen.records.is_empty() && boot_sets.is_empty() && !is_rebuilt {
        return Ok(Salvaged { packs, ..Salvaged::default() });
    }
    let versions = enter(store, adopt, &chosen, &boot_sets, &moved)?;
    let copied = moved.iter().map(|found| found.pack).collect();
    let broken = moved.iter().filter(|found| found.is_broken).map(|found| found.pack).collect();
    let refused = chosen.refused.iter().map(|(_, record)| record.name()).collect();
    Ok(Salvaged { packs, versions, refused, copied, broken })
}

/// Reads the packs that the catalog does not list, and for a rebuild of a store that lacks something also deleted ones whose files are there
/// again. Returns also whether these are all.
fn find_unlisted(
    store: &Store,
    adopt: &Adopt,
    completeness: &Completeness<'_>,
) -> Result<(Vec<UnlistedPack>, bool)> {
    let (mut found, mut is_complete) = (Vec::new(), true);
    let (deleted, listed): (BTreeSet<PackId>, BTreeSet<PackId>) =
        deleted_and_listed(store.catalog()?.packs()?);
    for pack in unlisted(store.place(), store.id(), &listed)? {
        let is_deleted = deleted.contains(&pack);
        if is_deleted && (*adopt == Adopt::Interrupted || completeness.is_whole()?) {
            continue;
        }
        let is_of_another = is_of_another(store.place(), pack)?;
        if is_of_another && *adopt == Adopt::Interrupted {
            // A footer with its name would hide that.
            is_complete = false;
            continue;
        }
        let examined = examine(store.place(), store.id(), pack, OpenMode::Write);
        let mut examined =
            examined.map_err(|error| error.within(format!("taking over the interrupted pack {pack}")))?;
        // The name of a deleted pack is never used again, and the right file of an exchanged one may return: their frames are copied.
        examined.must_move = is_deleted || is_of_another;
        found.push(examined);
    }
    Ok((found, is_complete))
}

/// Whether the file of a pack is that of another one: files were exchanged.
pub(crate) fn is_of_another(place: &StorePlace, pack: PackId) -> Result<bool> {
    let path = place.pack(pack);
    let file = place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
    match read_header(&*file) {
        Ok((named, _)) => Ok(named != pack),
        // Of a newer Platter, or the header did not reach the disk.
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Divides packs into those that were deleted, whose files may have returned from a backup, and the others.
pub(crate) fn deleted_and_listed(rows: Vec<PackRow>) -> (BTreeSet<PackId>, BTreeSet<PackId>) {
    let (deleted, listed): (Vec<PackRow>, Vec<PackRow>) =
        rows.into_iter().partition(|row| row.state == PackState::Deleted);
    let ids = |rows: Vec<PackRow>| rows.into_iter().map(|row| row.id).collect();
    (ids(deleted), ids(listed))
}

/// Returns the packs of this store that the catalog does not list. Ignores packs of another store or a newer Platter.
pub(crate) fn unlisted(
    place: &StorePlace,
    store: platter_records::StoreId,
    listed: &BTreeSet<PackId>,
) -> Result<Vec<PackId>> {
    let mut unlisted = Vec::new();
    for pack in place.list_packs()?.into_iter().filter(|pack| !listed.contains(pack)) {
        let path = place.pack(pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        match read_header(&*file) {
            Ok((_, owner)) if owner != store => continue,
            Err(error) if error.kind() == ErrorKind::Refused => continue,
            // The header did not reach the disk. The frames can be proven without it.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        unlisted.push(pack);
    }
    Ok(unlisted)
}

fn sealed_of(place: &StorePlace, found: &UnlistedPack) -> Result<SealedPack> {
    let path = place.pack(found.pack);
    let context = || format!("reading the length of {}", path.display());
    let length = place.vfs().open(&path, OpenMode::Read).and_then(|file| file.length()).context(context)?;
    let (frames, blocks) = (found.directory.frames() as u64, found.directory.blocks() as u64);
    Ok(SealedPack { id: found.pack, length, frames, blocks })
}

/// Returns what a check says of an unlisted pack that has a change which is newer than all that the catalog knows, or a version that it
/// does not know. Writes nothing. What cannot be read says nothing.
///
/// # Errors
/// When this process may not read it, or lacks memory or open files; when the catalog cannot be read.
pub(crate) fn newer_in(store: &Store, pack: PackId) -> Result<Option<(Severity, String)>> {
    let found = match examine(store.place(), store.id(), pack, OpenMode::Read) {
        Err(error) if error.is_of_process() => return Err(error),
        Err(_) => return Ok(None),
        Ok(found) => found,
    };
    // Read afterwards: the catalog has a change before a pack has it.
    let (change, head) = (found.last_change(), store.catalog()?.head()?.number());
    if change > head {
        return Ok(Some((Severity::Damage, older(pack, change, head))));
    }
    let assigned = AssignedNames::read(&*store.catalog()?)?;
    let mut names = found.records.iter().flat_map(|(_, records)| records).map(|(_, record)| record.name());
    Ok(names.find(|name| !assigned.has(name)).map(|version| {
        let what = format!(
            "not in the catalog, but it has {version}: if no command is writing, run one that writes, such as `platter gc`; \
             if {version} is still missing then, and nobody holds its edit lock, catalog and log are older copies, and `platter rebuild` \
             brings it back"
        );
        (Severity::Leak, what)
    }))
}

/// Returns the changes that unlisted packs have.
pub(crate) fn unlisted_changes(
    place: &StorePlace,
    store: platter_records::StoreId,
    listed: &BTreeSet<PackId>,
) -> Result<PackedChanges> {
    let mut changes = PackedChanges::default();
    for pack in unlisted(place, store, listed)? {
        changes.merge(examine(place, store, pack, OpenMode::Read)?.changes);
    }
    Ok(changes)
}

/// Refuses to take over or remove packs if one has a change that the catalog does not know. A session writes only committed changes to a
/// pack, so catalog and log are then older copies, and what looks like the pack of an interrupted session may have the only copy of what a
/// version needs.
pub(crate) fn refuse_if_older(last: u64, found: &[UnlistedPack]) -> Result<()> {
    match found.iter().find(|found| found.last_change() > last) {
        None => Ok(()),
        Some(found) => Err(Error::corrupt(older(found.pack, found.last_change(), last))),
    }
}

/// Refuses a change if an unlisted pack has a later one than the catalog: its number would hide that the catalog is an older copy. The
/// caller holds the writer's lock. What cannot be read says nothing.
///
/// # Errors
/// `Corrupt` when the catalog is older; as [`examine`], when this process lacks what it needs.
pub(crate) fn refuse_older_catalog(
    place: &StorePlace,
    store: platter_records::StoreId,
    last: u64,
    listed: &BTreeSet<PackId>,
) -> Result<()> {
    for pack in unlisted(place, store, listed)? {
        match examine(place, store, pack, OpenMode::Read) {
            Err(error) if error.is_of_process() => return Err(error),
            Err(_) => {}
            Ok(found) => refuse_if_older(last, &[found])?,
        }
    }
    Ok(())
}

/// Says that the catalog ends with the change `last`, but an unlisted pack has a later one.
fn older(pack: PackId, change: u64, last: u64) -> String {
    format!(
        "catalog and log are older than the packs: they end with change {last}, but pack {pack} has change {change}: `platter rebuild` restores what was changed since"
    )
}

/// Reads an unlisted pack: by its footer if that was written after all frames were proven, otherwise frame by frame.
pub(crate) fn examine(
    place: &StorePlace,
    store: platter_records::StoreId,
    pack: PackId,
    mode: OpenMode,
) -> Result<UnlistedPack> {
    let path = place.pack(pack);
    let file = place.vfs().open(&path, mode);
    let file = file.context(|| format!("opening {}", path.display()))?;
    let (records, boot_sets) = (Vec::new(), Vec::new());
    let directory = PackDirectory::default();
    let changes = PackedChanges::default();
    let (is_whole, is_broken, must_move) = (false, false, false);
    let mut found =
        UnlistedPack { pack, directory, records, boot_sets, changes, is_whole, is_broken, must_move };
    let listed = match read_directory(&*file, pack, store) {
        Ok(directory) if directory.is_proven => {
            by_footer(&*file, &directory, &mut found)?;
            (found.directory, found.is_whole) = (directory, true);
            return Ok(found);
        }
        Ok(directory) => directory.frames(),
        Err(error) if error.kind() == ErrorKind::Corrupt => 0,
        Err(error) => return Err(error),
    };
    // This makes sure that the following reads come from the disk and not from memory, before anybody relies on the pack.
    let uncached =
        || if mode == OpenMode::Read { Ok(()) } else { file.sync().and_then(|()| file.drop_cache()) };
    uncached().context(|| format!("syncing {}", path.display()))?;
    scan(&*file, &mut |frame| {
        if frame.after_hole {
            found.is_broken = true;
            return Ok(());
        }
        let number = found.directory.frames();
        found.take(number, frame.row.kind, frame.stored)?;
        found.directory.push(frame.row, frame.blocks.iter().map(|block| block.id));
        Ok(())
    })?;
    found.is_broken |= found.directory.frames() < listed;
    Ok(found)
}

fn by_footer(file: &dyn VfsFile, directory: &PackDirectory, found: &mut UnlistedPack) -> Result<()> {
    let mut stored = Vec::new();
    for (number, (row, ids)) in directory.iter().enumerate() {
        if matches!(row.kind, Kind::Version | Kind::BootSet | Kind::Change) {
            match read_row(file, row, ids, &mut stored) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                read => read.and_then(|()| found.take(number, row.kind, &stored))?,
            }
        }
    }
    Ok(())
}

impl UnlistedPack {
    fn take(&mut self, number: usize, kind: Kind, stored: &[u8]) -> Result<()> {
        match kind {
            Kind::Version => self.records.push((number, read_records(stored)?)),
            Kind::BootSet => {
                self.boot_sets.extend(read_boot_sets(stored)?.into_iter().map(|set| (number, set)));
            }
            Kind::Change => read_changes(stored, &mut self.changes)?,
            Kind::Data | Kind::Page => {}
        }
        Ok(())
    }

    /// Returns the number of the last change that this pack has; 0 if it has none.
    fn last_change(&self) -> u64 {
        self.changes.last_number()
    }

    /// Drops all frames after the first `frames`.
    fn cut(&mut self, frames: usize) {
        self.directory.truncate(frames);
        self.records.retain(|(number, _)| *number < frames);
        self.boot_sets.retain(|(number, _)| *number < frames);
        self.is_whole = false;
    }
}

/// The records in unlisted packs, the oldest of each image first.
#[derive(Default)]
struct Chosen {
    /// New versions.
    records: Records,
    /// Those that do not count although their packs will be listed.
    refused: Records,
}

/// Chooses the records of new versions. If there is none, truncates packs of interrupted sessions before a record that does not count, or,
/// while the store lacks something, leaves out packs whose names would come back once they are listed. With new versions, which may
/// need any block, nothing is truncated.
fn choose_records(
    store: &Store,
    adopt: &Adopt,
    takes_names: bool,
    found: &mut Vec<UnlistedPack>,
    completeness: &Completeness<'_>,
) -> Result<Chosen> {
    let (mut assigned, edit_locks, known) = {
        let catalog = store.catalog()?;
        let known: BTreeMap<BlockId, VersionName> =
            catalog.all_versions()?.into_iter().map(|version| (version.record_id, version.name)).collect();
        (AssignedNames::read(&catalog)?, catalog.edit_locks()?, known)
    };
    let mut in_order: Vec<(usize, usize)> = Vec::new();
    for (pack, found) in found.iter().enumerate() {
        in_order.extend((0..found.records.len()).map(|record| (pack, record)));
    }
    // Sorted by time, so that of two records with the same number the older one wins.
    in_order.sort_by_cached_key(|(pack, record)| {
        let first = found[*pack].records[*record].1.first();
        first.map(|(_, record)| (record.image.clone(), record.number, record.time_unix_ms))
    });
    let (mut chosen, mut entered, mut others) = (Chosen::default(), BTreeSet::new(), Vec::new());
    for (pack, record) in in_order {
        let (frame, records) = &found[pack].records[record];
        let is_there = |id: &BlockId| known.contains_key(id) || entered.contains(id);
        if !records.is_empty() && records.iter().all(|(id, _)| is_there(id)) {
            continue;
        }
        let is_believed = adopt.is_needed(found[pack].pack) && adopt.believes_records();
        if is_believed || takes_names && may_be_finished(records, &assigned, &edit_locks) {
            assigned.assign(records);
            entered.extend(records.iter().map(|(id, _)| *id));
            // A renamed version does not come back under its first name.
            let is_renamed = |id: &BlockId, record: &VersionRecord| {
                known.get(id).is_some_and(|name| *name != record.name())
            };
            chosen.records.extend(records.iter().filter(|(id, record)| !is_renamed(id, record)).cloned());
        } else {
            others.push((pack, *frame, records.clone()));
        }
    }
    let is_listed =
        |pack: usize, chosen: &Chosen| !chosen.records.is_empty() || adopt.is_needed(found[pack].pack);
    let (listed, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|(pack, ..)| is_listed(*pack, &chosen));
    if takes_names {
        chosen.refused = listed.into_iter().flat_map(|(_, _, records)| records).collect();
    }
    if others.is_empty() {
        return Ok(chosen);
    }
    let is_whole = completeness.is_whole()?;
    let stays = |records: &Records| assigned.may_return(records) || !is_whole && assigned.has_free(records);
    let left: BTreeSet<usize> =
        others.iter().filter(|(_, _, records)| stays(records)).map(|(pack, ..)| *pack).collect();
    let mut cuts = BTreeMap::<usize, usize>::new();
    for (pack, frame, _) in others.into_iter().filter(|(pack, ..)| is_whole && !left.contains(pack)) {
        let cut = cuts.entry(pack).or_insert(frame);
        *cut = frame.min(*cut);
    }
    cuts.into_iter().for_each(|(pack, frames)| found[pack].cut(frames));
    let mut number = 0..;
    found.retain(|_| number.next().is_none_or(|number| !left.contains(&number)));
    Ok(chosen)
}

/// Enters records, boot sets and all their packs in the catalog. Sound frames of packs that cannot stay are copied first.
fn enter(
    store: &Store,
    adopt: &Adopt,
    chosen: &Chosen,
    boot_sets: &[FoundBootSet],
    moved: &[UnlistedPack],
) -> Result<Vec<VersionName>> {
    let Chosen { records, refused } = chosen;
    store
        .0
        .refer_to_interrupted(|pack| adopt.is_needed(pack) || !records.is_empty() || !boot_sets.is_empty())?;
    let session = store.upkeep_session()?;
    for found in moved {
        let path = store.place().pack(found.pack);
        let file = store.place().vfs().open(&path, OpenMode::Read);
        let file = file.context(|| format!("opening {}", path.display()))?;
        scan(&*file, &mut |frame| {
            let is_name = matches!(frame.row.kind, Kind::Version | Kind::BootSet | Kind::Change);
            if frame.after_hole && is_name { Ok(()) } else { keep_frame(store, &session, &frame) }
        })?;
    }
    let epoch = random_epoch(store)?;
    let versions = session.commit(|change, _, _| {
        let mut adopted = Vec::new();
        for (id, record) in records {
            if change.add_version(*id, record)? {
                adopted.push(record.name());
            }
        }
        // Their packs are listed now, so their names must not come back.
        for (_, record) in refused {
            change.raise_last_number(&record.image, record.number)?;
        }
        add_forgotten(change, refused)?;
        add_boot_sets(change, epoch, boot_sets)?;
        if !adopted.is_empty() {
            change.does(Action::Salvage { versions: adopted.clone() });
        }
        Ok(Ok(adopted))
    })?;
    Ok(versions)
}

/// Copies a frame, unless the store has all of its blocks in sound frames.
fn keep_frame(store: &Store, session: &Session, frame: &Scanned<'_>) -> Result<()> {
    for block in frame.blocks {
        let is_sound = store.0.locate_kept(&block.id)?.is_some_and(|place| store.0.prove_known(place.frame));
        if !is_sound && !session.has_stored(&block.id) {
            return session.append(&copy(frame)).map(|_| ());
        }
    }
    Ok(())
}

fn copy(frame: &Scanned<'_>) -> EncodedFrame {
    EncodedFrame {
        kind: frame.row.kind,
        stored: frame.stored.to_vec(),
        blocks: frame.blocks.to_vec(),
        raw_length: frame.row.raw_length,
    }
}

/// A pack that no session needs yet: its ordinal number and its blocks.
pub(crate) type Waiting = (u32, SealedPack, Index);

/// Packs of interrupted sessions: those that no session needs yet, and those that the next commit lists.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    waiting: Vec<Waiting>,
    /// Packs that the next commit lists.
    referred: Vec<(u32, SealedPack)>,
}

impl crate::store::Shared {
    fn add_interrupted(&self, sealed: SealedPack, directory: &PackDirectory) -> Result<()> {
        let ordinal = self.packs.add(sealed.id, PackState::Open);
        let mut index = Index::new();
        // Records of the log are copies: nobody looks for them here, and they make no pack worth keeping.
        let mut frames = directory.iter().filter(|(row, _)| row.kind != Kind::Change);
        frames.try_for_each(|(row, ids)| index.push_frame(row.address(ordinal), ids.iter().copied()))?;
        self.writer()?.interrupted().waiting.push((ordinal, sealed, index));
        Ok(())
    }

    /// Makes packs of interrupted sessions part of this store: the next commit lists them.
    fn refer_to_interrupted(&self, wanted: impl Fn(PackId) -> bool) -> Result<()> {
        let mut interrupted = self.writer()?.interrupted();
        let waiting = std::mem::take(&mut interrupted.waiting);
        for (ordinal, sealed, index) in waiting {
            if wanted(sealed.id) {
                self.absorb_interrupted(ordinal, index)?;
                interrupted.referred.push((ordinal, sealed));
            } else {
                interrupted.waiting.push((ordinal, sealed, index));
            }
        }
        Ok(())
    }

    /// Adds the index of such a pack. Quarantined frames in it are marked as bad.
    fn absorb_interrupted(&self, ordinal: u32, mut index: Index) -> Result<()> {
        self.condemn_known_bad(ordinal, &mut index)?;
        self.absorb(index)
    }

    /// If a pack of an interrupted session has that block, makes it part of this store. Returns whether it did.
    pub(crate) fn refer_to_interrupted_with(&self, id: &BlockId) -> bool {
        let Some(writer) = &self.writer else { return false };
        let mut interrupted = writer.interrupted();
        let Some(at) = interrupted.waiting.iter().position(|(_, _, index)| index.locate(id).is_some()) else {
            return false;
        };
        let (ordinal, sealed, index) = interrupted.waiting.swap_remove(at);
        // If the index is full, the block counts as missing and is stored again.
        let is_indexed = self.absorb_interrupted(ordinal, index).is_ok();
        if is_indexed {
            interrupted.referred.push((ordinal, sealed));
        }
        is_indexed
    }
}

impl Interrupted {
    /// Returns the packs that the next commit lists.
    pub(crate) fn referred(&self) -> Vec<(u32, SealedPack)> {
        self.referred.clone()
    }

    /// Removes and returns the packs that no session needs yet.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns packs that [`Interrupted::take_waiting`] removed.
    pub(crate) fn put_back(&mut self, packs: Vec<Waiting>) {
        self.waiting.extend(packs);
    }

    /// Adds a sealed pack that the next commit lists; its blocks are in the store's index.
    pub(crate) fn refer(&mut self, ordinal: u32, pack: SealedPack) {
        self.referred.push((ordinal, pack));
    }

    /// Removes packs from the list after a commit has listed them.
    pub(crate) fn listed(&mut self, packs: &[(u32, SealedPack)]) {
        self.referred.retain(|pack| !packs.contains(pack));
    }
}

/// Returns a pack that versions may need and that has no file. The file of a dead pack is deleted before the catalog says so.
pub(crate) fn missing_pack(rows: &[PackRow], files: &[PackId]) -> Option<PackId> {
    let files: BTreeSet<&PackId> = files.iter().collect();
    let needed = |row: &&PackRow| matches!(row.state, PackState::Live | PackState::Condemned);
    rows.iter().filter(needed).map(|row| row.id).find(|pack| !files.contains(pack))
}

/// Returns a random epoch for the hoard.
fn random_epoch(store: &Store) -> Result<[u8; 16]> {
    store.place().vfs().random_id().context(|| "choosing a random epoch for the hoard".into())
}

/// Enters boot sets that were found in packs, in one revision: each for all versions of its score that have none. A newer
/// boot set takes precedence over an older one with the same score.
pub(crate) fn add_boot_sets(
    change: &mut Change<'_>,
    epoch: [u8; 16],
    found: &[FoundBootSet],
) -> Result<usize> {
    let mut newest_first = Vec::new();
    for boot_set in found {
        // One that was removed from the hoard stays removed: a compaction may have been interrupted.
        if !change.knows_boot_set(&boot_set.0)? {
            newest_first.push(boot_set);
        }
    }
    newest_first.sort_by_key(|(id, head)| (std::cmp::Reverse(head.record.time_unix_ms), *id));
    let mut known: BTreeSet<VersionName> =
        change.hoard_members()?.into_iter().map(|member| member.version).collect();
    let (mut revision, before) = (None, known.len());
    let mut versions: BTreeMap<_, Vec<VersionName>> = BTreeMap::new();
    for version in change.versions_by_time()? {
        versions.entry(version.record.score).or_default().push(version.name);
    }
    for (id, head) in newest_first {
        for name in versions.get(&head.record.score).into_iter().flatten() {
            if !known.insert(name.clone()) {
                continue;
            }
            let revision = match revision {
                Some(revision) => revision,
                None => {
                    change.make_hoard(epoch)?;
                    *revision.insert(change.next_hoard_revision(head.record.time_unix_ms)?)
                }
            };
            change.add_member(name, *id, &head.record, revision)?;
        }
    }
    Ok(known.len() - before)
}

/// Returns the valid heads in a frame of kind boot set. Skips parts and damaged heads; a head from a newer Platter is an error.
pub(crate) fn read_boot_sets(stored: &[u8]) -> Result<Vec<FoundBootSet>> {
    let mut decoder = FrameDecoder::new()?;
    let (header, contents) = match decoder.decode(stored, Verify::Hashes) {
        Ok(decoded) => decoded,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut found, mut rest) = (Vec::new(), contents);
    for block in &header.blocks {
        let (bytes, after) = rest.split_at(block.length as usize);
        rest = after;
        match BootSetHead::decode(bytes) {
            _ if !BootSetHead::is_one(bytes) => {}
            Ok(head) => found.push((block.id, head)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the valid records in a frame of kind version. Skips damaged ones; a record from a newer Platter is an error.
pub(crate) fn read_records(stored: &[u8]) -> Result<Vec<(BlockId, VersionRecord)>> {
    let mut decoder = FrameDecoder::new()?;
    let (header, contents) = match decoder.decode(stored, Verify::Hashes) {
        Ok(decoded) => decoded,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut records, mut rest) = (Vec::new(), contents);
    for block in &header.blocks {
        let (bytes, after) = rest.split_at(block.length as usize);
        rest = after;
        match VersionRecord::decode(bytes) {
            Ok(record) => records.push((block.id, record)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}
