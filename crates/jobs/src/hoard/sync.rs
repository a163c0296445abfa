//! Updates a node's replica of the hoard to the newest revision of the origin: requests the changes, fetches missing
//! blocks in boot order, and stores the revision once all of it is durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use platter_image::{Error, Result};
use platter_records::{BootSetRecord, HoardMember, HoardSnapshot};
use platter_store::{Added, HoardWriter, StorePlace};
use platter_vdisk::Source;
use serde::Serialize;

use crate::Progress;
use platter_fetch::SourceOptions;
use platter_fetch::{OpenStore, StoreLocation};

/// Returns another source than the store for the blocks of a boot set, if there is one.
type Elsewhere<'a> = dyn Fn(&BootSetRecord, SourceOptions) -> Option<Arc<dyn Source>> + 'a;

/// The request to sync a hoard.
#[derive(Clone, Debug)]
pub struct HoardSyncRequest {
    /// The store that has the hoard.
    pub store: StoreLocation,
    /// The node's directory; the hoard is in a folder of it.
    pub cache: PathBuf,
    /// Request everything, not only changes: finds also boot sets that became readable recently.
    pub whole: bool,
}

/// The report of a sync.
#[derive(Clone, Debug, Serialize)]
pub struct HoardSyncReport {
    /// The complete revision before; 0 if none.
    pub revision_before: u64,
    /// The complete revision now.
    pub revision: u64,
    /// Whether everything was requested, not only changes.
    pub whole: bool,
    /// Boot sets.
    pub members: usize,
    /// Added boot sets.
    pub added: usize,
    /// Removed boot sets.
    pub gone: usize,
    /// Fetched pages and blocks.
    pub fetched_blocks: u64,
    /// Bytes of them.
    pub fetched_raw_bytes: u64,
    /// Bytes of their frames as stored here.
    pub stored_bytes: u64,
    /// Bytes of the hoard on the disk.
    pub disk_bytes: u64,
    /// Memory of its index.
    pub index_bytes: usize,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Returns the place of the hoard in a node's directory.
pub fn hoard_place(cache: &Path) -> StorePlace {
    StorePlace::on_system(cache.join("hoard"))
}

/// Updates the replica to the newest revision.
///
/// # Errors
/// `Transient` when another process is updating it, or the origin is down; `Missing` when a part of a boot set was
/// forgotten meanwhile; errors of the origin and the disk. Fetched data stays for the next attempt.
pub fn hoard_sync(request: &HoardSyncRequest, progress: &dyn Progress) -> Result<HoardSyncReport> {
    hoard_sync_from(request, &|_, _| None, progress)
}

/// As [`hoard_sync`], with blocks from `elsewhere` if it returns a source.
///
/// # Errors
/// As [`hoard_sync`].
pub fn hoard_sync_from(
    request: &HoardSyncRequest,
    elsewhere: &Elsewhere<'_>,
    progress: &dyn Progress,
) -> Result<HoardSyncReport> {
    let started = Instant::now();
    let store = OpenStore::open_reader(&request.store)?;
    let mut writer = HoardWriter::open(&hoard_place(&request.cache))?;
    let before = writer.hoard().snapshot();
    let (epoch, since) = match request.whole {
        true => ("", 0),
        false => (before.epoch.as_str(), before.revision),
    };
    let changes = store.hoard_changes(epoch, since)?;
    let members = changes.applied_to(before.members.clone());
    let left = |from: &[HoardMember], other: &[HoardMember]| {
        let is_there = |member: &&HoardMember| {
            other.iter().any(|it| (&it.version, it.boot_set) == (&member.version, member.boot_set))
        };
        from.iter().filter(|member| !is_there(member)).count()
    };
    let (came, went) = (left(&members, &before.members), left(&before.members, &members));
    let mut added = Added::default();
    for member in &members {
        added += add((&store, elsewhere), &mut writer, member, progress)?;
    }
    let snapshot = HoardSnapshot { epoch: changes.epoch, revision: changes.revision, members };
    let facts = match snapshot == before && added == Added::default() {
        true => writer.hoard().facts(),
        false => writer.finish(&snapshot)?,
    };
    Ok(HoardSyncReport {
        revision_before: before.revision,
        revision: facts.revision,
        whole: changes.whole,
        members: facts.members,
        added: came,
        gone: went,
        fetched_blocks: added.blocks,
        fetched_raw_bytes: added.raw_bytes,
        stored_bytes: added.stored_bytes,
        disk_bytes: facts.disk_bytes,
        index_bytes: facts.index_bytes,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Adds one boot set; blocks that are already here are only looked up.
fn add(
    (store, elsewhere): (&OpenStore, &Elsewhere<'_>),
    writer: &mut HoardWriter,
    member: &HoardMember,
    progress: &dyn Progress,
) -> Result<Added> {
    let within = |error: Error| error.within(format!("the boot set of {}", member.version));
    // A boot set that is damaged here is fetched like a missing one.
    let set = match writer.hoard().boot_set(&member.boot_set) {
        Ok(set) => set,
        Err(_) => store.boot_set(&member.boot_set).map_err(within)?,
    };
    let options = SourceOptions { exact: true, ..SourceOptions::default() };
    let source = elsewhere(&set.record, options);
    let source = source.unwrap_or_else(|| store.source(set.record.score, options));
    progress.begin(&member.version.to_string(), 0);
    let added = writer.add(&set, store.domain()?, &*source).map_err(within)?;
    progress.advance(added.raw_bytes);
    Ok(added)
}
