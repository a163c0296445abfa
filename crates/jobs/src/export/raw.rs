//! Writes a version as a raw file: the way out that needs nothing but `dd`.

use std::path::Path;
use std::time::Instant;

use platter_disk::install::{InstallOptions, install};
use platter_disk::{Target, TargetOptions};
use platter_image::recipe::Recipe;
use platter_image::{Error, Result};

use crate::install::{allocated, title};
use crate::{ExportReport, OpenStore, Progress, StoreLocation};

/// Writes that version to a new raw file; free space becomes holes, which read as zeros.
///
/// # Errors
/// `Refused` when the file exists; `Missing` or `Corrupt` when the store is damaged; `Io`. The file is then removed.
pub fn export(
    store: &StoreLocation,
    version: &str,
    file: &Path,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let started = Instant::now();
    let store = OpenStore::open_reader(store)?;
    let resolved = store.resolve(version)?;
    let source = store.source(resolved.score, Default::default());
    let recipe = Recipe::open(resolved.score, &*source)?;
    refuse_existing(file)?;
    let length = recipe.root().disk_length;
    let result = Target::open(file, &TargetOptions::new(length)).and_then(|target| {
        progress.begin("exporting", allocated(&resolved).unwrap_or(length));
        install(&recipe, &*source, &target, InstallOptions::default(), &|bytes| progress.advance(bytes))
    });
    let counts = result.inspect_err(|_| {
        // Half a disk helps nobody; the error matters more than whether this works.
        let _ = std::fs::remove_file(file);
    })?;
    Ok(ExportReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        file: file.display().to_string(),
        disk_bytes: length,
        written_bytes: counts.data,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Refuses a file that is there.
pub(super) fn refuse_existing(file: &Path) -> Result<()> {
    if file.symlink_metadata().is_ok() {
        return Err(Error::refused(format!(
            "{} exists: export writes new files only; use `install` for a target that is there",
            file.display()
        )));
    }
    Ok(())
}
