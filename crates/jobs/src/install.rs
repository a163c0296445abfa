//! Installs a version on a device or a file.

use std::sync::Arc;
use std::time::Instant;

use platter_disk::Target;
use platter_disk::install::{
    Delta, EdgesLast, Finished, FreeSpace, InstallCounts, InstallOptions, Local, compare, compare_rest,
    install_delta,
};
use platter_disk::refusal::CheckedTarget;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, FrameSource, Result, Score};
use platter_records::Resolved;
use platter_signing::SignaturePolicy;

use crate::kept_pages::KeptPages;
use crate::part::wanted_part;
use crate::target::TargetRequest;
use crate::{Compared, DeltaReport, InstallReport, Progress};
use platter_fetch::{OpenStore, StoreLocation};

/// The request to install a version.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// The store.
    pub store: StoreLocation,
    /// The version.
    pub version: String,
    /// The target.
    pub target: TargetRequest,
    /// The target as it was checked, if the user has agreed already that it is overwritten.
    pub agreed: Option<Arc<CheckedTarget>>,
    /// Which versions may be installed. A score may always.
    pub signatures: SignaturePolicy,
}

/// Installs a version.
///
/// # Errors
/// `Refused` when the target must not be written to (nothing was written); `Missing` or `Corrupt` when the store is
/// damaged (nothing wrong was written); `Io`. Once something was written, the error describes the state of the target.
pub fn install(request: &InstallRequest, progress: &dyn Progress) -> Result<InstallReport> {
    let started = Instant::now();
    let store = OpenStore::open_reader(&request.store)?;
    let resolved = store.resolve(&request.version)?;
    admit(&request.signatures, &request.version, &resolved)?;
    let source = store.source(resolved.score, Default::default());
    let pages = KeptPages::of(&*source);
    let recipe = wanted_part(&request.target, Recipe::open(resolved.score, &pages)?, &source)?;
    let forbidden = request.store.directories();
    let agreed = match &request.agreed {
        Some(agreed) => Arc::clone(agreed),
        None => Arc::new(request.target.agree(Some(recipe.root()), &forbidden)?),
    };
    store.check_presence(&recipe)?;
    // Files too are written around the page cache, because a whole disk would displace everything else.
    let target = request.target.open_unchanged(&agreed, recipe.root(), &forbidden, Some(true))?;
    let whole = Extent::new(0, recipe.root().disk_length);
    let delta = match request.target.wants_delta(&agreed, &recipe, whole, &target)? {
        true => Some(request.target.find_delta(&recipe, whole, (&target, false), progress)?),
        false => None,
    };
    let target = request.target.begin(target, recipe.root())?;
    let length = recipe.root().disk_length;
    let total = allocated(&resolved).map_or(length, |allocated| allocated.min(length));
    let local = delta.as_ref().map(|delta| Local::new(delta, &target));
    let disk = DiskToWrite { recipe: &recipe, source: &*source, local, total };
    let (counts, finished, compared) = write_disk(&disk, &target, &request.target, progress)
        .map_err(|error| request.target.explain(error))?;
    let data = request.target.data_to_keep(&recipe, whole)?;
    let grown = request.target.grown_place(&target, length, finished.grown, &data);
    // The tool of the file system needs the target for itself.
    drop(target);
    let grown = grown.map(|place| place.grow_filesystem(&request.target.path));
    Ok(InstallReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        target: request.target.path.display().to_string(),
        disk_bytes: length,
        written_bytes: counts.data,
        zeroed_bytes: counts.zero,
        fetched_bytes: counts.frame_bytes,
        delta: delta.as_ref().map(delta_report),
        read_back: request.target.read_back,
        compared,
        partition: request.target.part,
        grown,
        new_ids: finished.new_ids,
        backup_gpt_moved: finished.backup_gpt_moved,
        seconds: started.elapsed().as_secs_f64(),
        notes: finished.notes,
    })
}

/// Checks that this machine may use what `version` named. A score names one disk, so it may be anybody's.
pub(crate) fn admit(signatures: &SignaturePolicy, version: &str, resolved: &Resolved) -> Result<()> {
    if Score::from_hex(version).is_none() {
        signatures.admit(resolved.version.as_ref().map(|version| &version.record))?;
    }
    Ok(())
}

/// A disk to be written.
pub(crate) struct DiskToWrite<'a, P, F: ?Sized> {
    pub(crate) recipe: &'a Recipe<P>,
    pub(crate) source: &'a F,
    /// What this machine already has, if that is known.
    pub(crate) local: Option<Local<'a>>,
    /// Expected bytes.
    pub(crate) total: u64,
}

/// Writes the disk of a recipe, its edges last, and before that compares it if requested.
pub(crate) fn write_disk<P: PageSource + Sync>(
    disk: &DiskToWrite<'_, P, impl FrameSource + ?Sized>,
    target: &EdgesLast<Target>,
    request: &TargetRequest,
    progress: &dyn Progress,
) -> Result<(InstallCounts, Finished, Option<Compared>)> {
    let DiskToWrite { recipe, source, local, .. } = disk;
    let options = InstallOptions { free: request.free, ..InstallOptions::default() };
    // Zeroed free space is written, too.
    let whole = if request.free == FreeSpace::Zero { recipe.root().disk_length } else { disk.total };
    let total = whole.saturating_sub(local.map_or(0, |local| local.held_length()));
    request.state.expect(total);
    progress.begin("writing", total);
    let written = |bytes| {
        request.state.advance(bytes);
        progress.advance(bytes);
    };
    let counts = match local {
        Some(local) => install_delta(recipe, *source, target, options, &written, local)?,
        None => platter_disk::install::install(recipe, *source, target, options, &written)?,
    };
    let mut compared = None;
    if request.read_back {
        let length = recipe.root().disk_length;
        let read = |bytes| progress.advance(bytes);
        progress.begin("reading back", disk.total);
        let bytes = match local {
            Some(_) => {
                // Hashes show what is right, so only pieces of blocks are read from the store again.
                let whole = Extent::new(0, length);
                let right = Delta::of_target(recipe, whole, request.free, target, false, &read)?;
                let rest =
                    compare_rest(recipe, *source, target, options, &|_| {}, &Local::new(&right, target))?;
                let (data, zero) = right.held_bytes();
                (data + rest.data, zero + rest.zero)
            }
            None => {
                let counts = compare(recipe, *source, target, options, &read)?;
                (counts.data, counts.zero)
            }
        };
        let bytes = Compared { data_bytes: bytes.0, zero_bytes: bytes.1, free_bytes_left_out: 0 };
        compared = Some(bytes.of_disk(length));
    }
    let data = request.data_to_keep(recipe, Extent::new(0, recipe.root().disk_length))?;
    let finished = target.finish(request.read_back, request.table_changes()?.as_ref(), &data)?;
    Ok((counts, finished, compared))
}

/// What was kept and copied.
pub(crate) fn delta_report(delta: &Delta) -> DeltaReport {
    let (kept_bytes, kept_zero_bytes) = delta.held_bytes();
    DeltaReport { kept_bytes, kept_zero_bytes, copied_bytes: delta.copied_bytes() }
}

/// Its name in reports: that of the version, or the score if no version has it.
pub(crate) fn title(resolved: &Resolved) -> String {
    resolved.version.as_ref().map_or_else(|| resolved.score.to_string(), |version| version.name.to_string())
}

/// The allocated bytes of the disk, if known.
pub(crate) fn allocated(resolved: &Resolved) -> Option<u64> {
    resolved.version.as_ref().map(|version| version.record.allocated_bytes)
}
