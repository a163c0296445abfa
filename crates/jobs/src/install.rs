//! Installs a version on a device or a file.

use std::path::PathBuf;
use std::time::Instant;

use platter_disk::install::{FreeSpace, InstallOptions, compare};
use platter_disk::partition::gpt;
use platter_disk::refusal::{self, ImageGeometry, Reason, TargetCheck};
use platter_disk::{Target, TargetOptions};
use platter_image::recipe::{Recipe, Root};
use platter_image::{DiskRead, DiskWrite, IoContext, Result};
use platter_store::Resolved;

use crate::{InstallReport, OpenStore, Progress, StoreLocation};

/// What to install, where, and how.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// The store.
    pub store: StoreLocation,
    /// Which version.
    pub version: String,
    /// A block device, or a file that is made if it is missing.
    pub target: PathBuf,
    /// What to do with space nobody can read.
    pub free: FreeSpace,
    /// Read everything back and compare.
    pub read_back: bool,
    /// Which refusals the user overrides.
    pub force: Vec<Reason>,
}

/// Installs.
///
/// # Errors
/// `Refused` when the target must not be written to (nothing was); `Missing` or `Corrupt` when the store is damaged
/// (nothing wrong was written); `Io`.
pub fn install(request: &InstallRequest, progress: &dyn Progress) -> Result<InstallReport> {
    let started = Instant::now();
    let store = OpenStore::open_reader(&request.store)?;
    let resolved = store.resolve(&request.version)?;
    let source = store.source(resolved.score, Default::default());
    let recipe = Recipe::open(resolved.score, &*source)?;
    let forbidden = match &request.store {
        StoreLocation::Local(place) => vec![place.dir().to_owned()],
        StoreLocation::Remote(_) => Vec::new(),
    };
    let target = open_target(
        &request.target,
        recipe.root(),
        &forbidden,
        &request.force,
        // Around the cache for a file too: a whole disk would push everything else out of memory.
        Some(true),
    )?;
    let options = InstallOptions { free: request.free, ..InstallOptions::default() };
    let length = recipe.root().disk_length;
    let advance = |bytes| progress.advance(bytes);
    progress.begin("installing", allocated(&resolved).unwrap_or(length));
    let counts = platter_disk::install::install(&recipe, &*source, &target, options, &advance)?;
    if request.read_back {
        progress.begin("reading back", counts.data + counts.zero);
        compare(&recipe, &*source, &target, options, &advance)?;
    }
    let moved = move_backup_gpt(&target, length)?;
    Ok(InstallReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        target: request.target.display().to_string(),
        disk_bytes: length,
        written_bytes: counts.data,
        zeroed_bytes: counts.zero,
        read_back: request.read_back,
        backup_gpt_moved: moved.0,
        seconds: started.elapsed().as_secs_f64(),
        notes: moved.1,
    })
}

/// Opens a target after everything that speaks against it was looked at.
pub(crate) fn open_target(
    path: &std::path::Path,
    root: &Root,
    forbidden: &[PathBuf],
    force: &[Reason],
    direct: Option<bool>,
) -> Result<Target> {
    let image = ImageGeometry { length: root.disk_length, sector_size: root.sector_size };
    let check = TargetCheck { image: Some(image), forbidden, force };
    refusal::check_target(path, &check)?;
    let length = match std::fs::metadata(path) {
        // A file that is longer already keeps its length, as a disk does.
        Ok(metadata) if metadata.is_file() => root.disk_length.max(metadata.len() / 512 * 512),
        _ => root.disk_length,
    };
    let options = TargetOptions {
        direct,
        exclusive: force.is_empty(),
        sector_size: root.sector_size,
        ..TargetOptions::new(length)
    };
    Target::open(path, &options)
}

/// Moves the backup GPT to the end of a target that is longer than the disk; gives whether it did, and what is odd.
pub(crate) fn move_backup_gpt(target: &Target, disk_length: u64) -> Result<(bool, Vec<String>)> {
    if DiskRead::length(target) == disk_length {
        return Ok((false, Vec::new()));
    }
    let relocation = gpt::relocate_backup(target)?;
    for (offset, bytes) in &relocation.writes {
        target.write_all_at(bytes, *offset).context(|| format!("moving the backup GPT to {offset}"))?;
        target.flush().context(|| "making the moved GPT durable".to_owned())?;
    }
    Ok((!relocation.writes.is_empty(), relocation.notes))
}

/// What reports call it: the version's name, or the score if no version has it.
pub(crate) fn title(resolved: &Resolved) -> String {
    resolved.version.as_ref().map_or_else(|| resolved.score.to_string(), |version| version.name.to_string())
}

/// Bytes of the disk that somebody can read, if that is known.
pub(crate) fn allocated(resolved: &Resolved) -> Option<u64> {
    resolved.version.as_ref().map(|version| version.record.allocated_bytes)
}
