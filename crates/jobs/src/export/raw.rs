//! Writes a version as a raw file, which other tools can use.

use std::path::Path;
use std::time::Instant;

use platter_image::recipe::Recipe;
use platter_image::{Error, Result};

use super::request::ExportRequest;
use crate::install::{DiskToWrite, allocated, title, write_disk};
use crate::kept_pages::KeptPages;
use crate::target::TargetRequest;
use crate::{ExportReport, Progress};

/// Writes this version to a new raw file; free space becomes holes, which read as zeros.
///
/// # Errors
/// `Refused` when the file exists or must not be made there; `Missing` or `Corrupt` when the store is damaged; `Io`. The
/// file is then removed.
pub fn export(
    request: &ExportRequest,
    target: &TargetRequest,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let started = Instant::now();
    let forbidden = request.store.directories();
    let (store, resolved) = request.open()?;
    let source = store.source(resolved.score, Default::default());
    let pages = KeptPages::of(&*source);
    let recipe = Recipe::open(resolved.score, &pages)?;
    refuse_existing(&target.path)?;
    let agreed = target.agree(Some(recipe.root()), &forbidden)?;
    store.check_presence(&recipe)?;
    // An incomplete file is useless.
    target.state.remove_if_incomplete();
    let opened = target.open(&agreed, recipe.root(), &forbidden, None)?;
    let total = allocated(&resolved).unwrap_or(recipe.root().disk_length);
    let disk = DiskToWrite { recipe: &recipe, source: &*source, local: None, total };
    let (counts, ..) = write_disk(&disk, &opened, target, progress).map_err(|error| target.explain(error))?;
    Ok(ExportReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        file: target.path.display().to_string(),
        disk_bytes: recipe.root().disk_length,
        written_bytes: counts.data,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Refuses an existing file.
pub(super) fn refuse_existing(file: &Path) -> Result<()> {
    if file.symlink_metadata().is_ok() {
        return Err(Error::refused(format!(
            "{} exists: export writes new files only; use `install` for an existing target",
            file.display()
        )));
    }
    Ok(())
}
