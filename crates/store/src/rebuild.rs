//! Makes the catalog anew from packs alone (DESIGN D8): for when it is gone, damaged, or from another time.
//!
//! The new catalog is made beside the old one and takes its place at once; packs are not touched, except that those
//! without a good footer are taken over as after a crash. Versions that had been forgotten, but whose records had not
//! been collected, come back: the report says which.
//!
//! Edit tokens are not in packs: they are gone, and the report says so. Their numbers go on after the last one of the
//! old catalog. Where that cannot be read, nobody knows which number was given last, only which ones were published
//! under; the numbers then go on a random step of up to 2^32 further on, so that no holder from before finds his own
//! number given to another.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{BlockId, Error, ErrorKind, IoContext, Kind, Result};
use platter_vfs::OpenMode;

use crate::catalog::Catalog;
use crate::health::{Condition, Health, Observation};
use crate::identity::{PackId, StoreId};
use crate::name::{ImageName, VersionName};
use crate::pack::{SealedPack, read_directory, read_header, read_row};
use crate::place::StorePlace;
use crate::quarantine::now_unix_ms;
use crate::record::VersionRecord;
use crate::salvage::{Adopt, FoundBootSet, add_boot_sets, read_boot_sets, read_records};
use crate::store::{Store, WRITER_LOCK_TRIES, describe, remove_catalog, take_lock};
use crate::token::Token;

/// What a rebuild found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Packs with a good footer.
    pub packs: usize,
    /// Packs without one, whose good frames were taken over into new packs.
    pub packs_taken_over: usize,
    /// Every version of the new catalog.
    pub versions: Vec<VersionName>,
    /// Versions that the old catalog did not have; `None` when it could not be read.
    pub reappeared: Option<Vec<VersionName>>,
    /// Versions that the old catalog had and no pack has.
    pub lost: Vec<VersionName>,
    /// Edit tokens that somebody held: nobody does now. `None` when the old catalog could not be read.
    pub tokens_lost: Option<Vec<Token>>,
    /// Versions that have a boot set: the hoard. Those that were taken out of it may be back.
    pub boot_sets: usize,
    /// What else there is to know, in words.
    pub notes: Vec<String>,
}

/// What the packs say.
#[derive(Default)]
struct Found {
    sealed: Vec<SealedPack>,
    records: Vec<(BlockId, VersionRecord)>,
    boot_sets: Vec<FoundBootSet>,
    /// Frames that are damaged.
    bad: Vec<Observation>,
    notes: Vec<String>,
}

impl Found {
    /// Notes a damaged frame.
    fn add_bad(&mut self, pack: PackId, offset: u64) {
        let (condition, time_unix_ms) = (Condition::Damaged, now_unix_ms());
        self.bad.push(Observation { pack, offset, condition, time_unix_ms });
    }
}

/// What the old catalog says.
struct Old {
    packs: BTreeSet<PackId>,
    versions: Vec<VersionName>,
    tokens: Vec<Token>,
    last_token: u64,
    last_numbers: Vec<(ImageName, u64)>,
    followed: Vec<(ImageName, String)>,
}

/// Makes the catalog of the store there anew.
///
/// # Errors
/// `Transient` when another process writes the store; `Missing` when there are no packs to tell what store this is;
/// `Refused` when a newer Platter wrote some; `Io`.
pub fn rebuild(place: &StorePlace) -> Result<RebuildReport> {
    let lock = take_lock(place, WRITER_LOCK_TRIES)?;
    let packs = place.list_packs()?;
    let (store, has_format) = store_id(place, &packs)?;
    let old = read_old(place);
    let random = place.vfs().random_id().context(|| "choosing the next token's number".into())?;
    let epoch = place.vfs().random_id().context(|| "choosing a name for the hoard's revisions".into())?;
    // Packs that a good catalog does not know were left by interrupted sessions, and stay that.
    let known = old.as_ref().map(|old| old.packs.clone());
    let adopt = Adopt::Needed(known);
    let needed: Vec<PackId> = packs.iter().copied().filter(|pack| adopt.is_needed(*pack)).collect();
    let found = read_packs(place, store, &needed)?;
    let mut notes = found.notes;
    Health::default().add(place, store, &found.bad)?;
    remove_catalog(place, &place.new_catalog())?;
    Catalog::create(place, &place.new_catalog(), store, |change| {
        for pack in &found.sealed {
            change.add_live_pack(pack)?;
        }
        for (id, record) in &found.records {
            if !change.add_version(*id, record)? {
                notes.push(format!("a second record says it is {}: left out ({id})", record.name()));
            }
        }
        for (image, number) in old.iter().flat_map(|old| &old.last_numbers) {
            change.raise_last_number(image, *number)?;
        }
        let step = u64::from(u32::from_le_bytes([random[0], random[1], random[2], random[3]]));
        let last_token = old.as_ref().map_or(change.last_token()?.saturating_add(step), |old| old.last_token);
        change.raise_last_token(last_token.min(i64::MAX as u64))?;
        add_boot_sets(change, epoch, &found.boot_sets)?;
        for (image, settings) in old.iter().flat_map(|old| &old.followed) {
            change.make_hoard(epoch)?;
            change.follow(image, Some(settings))?;
        }
        Ok(())
    })?;
    // From here to the rename there is no catalog; whoever stops in between rebuilds again.
    remove_catalog(place, &place.catalog())?;
    place
        .vfs()
        .rename(&place.new_catalog(), &place.catalog())
        .context(|| "renaming the new catalog".into())?;
    place.sync_dir(place.dir())?;
    if !has_format {
        place.write_format(store)?;
        notes.push("store.json was gone and has been written anew".into());
    }
    drop(lock);
    let opened = Store::open_writer_adopting(place, &adopt)?;
    let versions: Vec<VersionName> =
        opened.catalog()?.all_versions()?.into_iter().map(|version| version.name).collect();
    let difference = |from: &[VersionName], minus: &[VersionName]| -> Vec<VersionName> {
        let minus: BTreeSet<&VersionName> = minus.iter().collect();
        from.iter().filter(|name| !minus.contains(name)).cloned().collect()
    };
    let reappeared = old.as_ref().map(|old| difference(&versions, &old.versions));
    let lost = old.as_ref().map_or_else(Vec::new, |old| difference(&old.versions, &versions));
    let tokens_lost = old.map(|old| old.tokens);
    let packs_taken_over = opened.salvaged().map_or(0, |salvaged| salvaged.packs);
    let packs = found.sealed.len();
    let boot_sets = opened.catalog()?.hoard_members()?.len();
    Ok(RebuildReport { packs, packs_taken_over, versions, reappeared, lost, tokens_lost, boot_sets, notes })
}

/// The old catalog, if it can still be read.
fn read_old(place: &StorePlace) -> Option<Old> {
    if !place.vfs().exists(&place.catalog()).unwrap_or(false) {
        return None;
    }
    let catalog = Catalog::open_reader(place).ok()?;
    let versions = catalog.all_versions().ok()?.into_iter().map(|version| version.name).collect();
    let packs = catalog.packs().ok()?.into_iter().map(|row| row.id).collect();
    let (last_token, last_numbers) = (catalog.last_token().ok()?, catalog.last_numbers().ok()?);
    let followed = catalog.hoard_followed().unwrap_or_default();
    Some(Old { packs, versions, tokens: catalog.tokens().ok()?, last_token, last_numbers, followed })
}

/// Which store this is: what `store.json` says, or else what most packs say. Also whether `store.json` is good.
fn store_id(place: &StorePlace, packs: &[PackId]) -> Result<(StoreId, bool)> {
    match place.read_format() {
        Ok(id) => return Ok((id, true)),
        Err(error) if matches!(error.kind(), ErrorKind::Missing | ErrorKind::Corrupt) => {}
        Err(error) => return Err(error),
    }
    let mut votes: BTreeMap<StoreId, usize> = BTreeMap::new();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        if let Ok((_, store)) = read_header(&*file) {
            *votes.entry(store).or_default() += 1;
        }
    }
    let winner = votes.into_iter().max_by_key(|(_, count)| *count).map(|(store, _)| (store, false));
    winner.ok_or_else(|| {
        Error::missing(format!(
            "{} has neither a good store.json nor packs: there is nothing to rebuild",
            place.dir().display()
        ))
    })
}

fn read_packs(place: &StorePlace, store: StoreId, packs: &[PackId]) -> Result<Found> {
    let mut found = Found::default();
    for pack in packs {
        let path = place.pack(*pack);
        let file =
            place.vfs().open(&path, OpenMode::Read).context(|| format!("opening {}", path.display()))?;
        let directory = match read_directory(&*file, *pack, store) {
            Ok(directory) => directory,
            // Taken over later, when the rest is known: then nothing is copied that stands elsewhere.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                found.notes.push(format!("pack {pack}: {}", describe(&error)));
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
                found.notes.push(format!("pack {pack}: the version record at {} is damaged", row.offset));
            }
            found.records.extend(records);
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
