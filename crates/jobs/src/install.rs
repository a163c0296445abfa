//! Installs a version on a device or a file.

use std::time::Instant;

use platter_disk::Target;
use platter_disk::install::{EdgesLast, Finished, InstallCounts, InstallOptions, compare};
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{FrameSource, Result, Score};
use platter_records::Resolved;
use platter_signing::SignaturePolicy;

use crate::kept_pages::KeptPages;
use crate::target::TargetRequest;
use crate::{Compared, InstallReport, Progress};
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
    if Score::from_hex(&request.version).is_none() {
        request.signatures.admit(resolved.version.as_ref().map(|version| &version.record))?;
    }
    let source = store.source(resolved.score, Default::default());
    let pages = KeptPages::of(&*source);
    let recipe = Recipe::open(resolved.score, &pages)?;
    let forbidden = request.store.directories();
    let agreed = request.target.agree(Some(recipe.root()), &forbidden)?;
    store.check_presence(&recipe)?;
    // Files too are written around the page cache, because a whole disk would displace everything else.
    let target = request.target.open(&agreed, recipe.root(), &forbidden, Some(true))?;
    let total = allocated(&resolved).unwrap_or(recipe.root().disk_length);
    let (counts, finished, compared) =
        write_disk(&recipe, &*source, &target, &request.target, total, progress)
            .map_err(|error| request.target.explain(error))?;
    Ok(InstallReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        target: request.target.path.display().to_string(),
        disk_bytes: recipe.root().disk_length,
        written_bytes: counts.data,
        zeroed_bytes: counts.zero,
        read_back: request.target.read_back,
        compared,
        backup_gpt_moved: finished.backup_gpt_moved,
        seconds: started.elapsed().as_secs_f64(),
        notes: finished.notes,
    })
}

/// Writes the disk of a recipe, its edges last, and before that compares it if requested.
pub(crate) fn write_disk<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &EdgesLast<Target>,
    request: &TargetRequest,
    total: u64,
    progress: &dyn Progress,
) -> Result<(InstallCounts, Finished, Option<Compared>)> {
    let options = InstallOptions { free: request.free, ..InstallOptions::default() };
    let length = recipe.root().disk_length;
    request.state.expect(total);
    progress.begin("writing", total);
    let written = |bytes| {
        request.state.advance(bytes);
        progress.advance(bytes);
    };
    let counts = platter_disk::install::install(recipe, source, target, options, &written)?;
    let mut compared = None;
    if request.read_back {
        progress.begin("reading back", counts.data + counts.zero);
        let counts = compare(recipe, source, target, options, &|bytes| progress.advance(bytes))?;
        let bytes = Compared { data_bytes: counts.data, zero_bytes: counts.zero, free_bytes_left_out: 0 };
        compared = Some(bytes.of_disk(length));
    }
    let finished = target.finish(request.read_back)?;
    Ok((counts, finished, compared))
}

/// Its name in reports: that of the version, or the score if no version has it.
pub(crate) fn title(resolved: &Resolved) -> String {
    resolved.version.as_ref().map_or_else(|| resolved.score.to_string(), |version| version.name.to_string())
}

/// The allocated bytes of the disk, if known.
pub(crate) fn allocated(resolved: &Resolved) -> Option<u64> {
    resolved.version.as_ref().map(|version| version.record.allocated_bytes)
}
