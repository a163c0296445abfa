//! Writes what is readable of a damaged version as a raw file: zeros stand where nothing can be read, and the report lists
//! these ranges and the files in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use platter_disk::install::{InstallOptions, install_readable};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result};
use serde::Serialize;

use super::files::{LostFile, lost_files};
use crate::install::{allocated, title};
use crate::{OpenStore, Progress, StoreLocation, TargetRequest};

/// Ranges whose reasons are kept and told; more are only counted.
const RANGES_MAX: usize = 10_000;

/// What could be written of a damaged version, and what not.
#[derive(Clone, Debug, Serialize)]
pub struct ExportHolesReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score. All that was written was verified; it is all of the disk only if nothing was lost.
    pub score: String,
    /// Where to.
    pub file: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Bytes of the disk that could not be read: the file has zeros there.
    pub lost_bytes: u64,
    /// Where these are.
    pub lost: Vec<LostRange>,
    /// Ranges that are not listed, since there are too many.
    pub lost_omitted: usize,
    /// Files that lie in them.
    pub lost_files: Vec<LostFile>,
    /// What else there is to know, in sentences.
    pub notes: Vec<String>,
    /// Wall time.
    pub seconds: f64,
}

/// A range of the disk that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostRange {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Why.
    pub reason: String,
}

/// Writes what is readable of that version to a new raw file.
///
/// # Errors
/// `Refused` when the file exists, or the store is an origin's; `Missing` or `Corrupt` when not even the recipe's root can be
/// read; `Io` when the file cannot be written. It is then removed.
pub fn export_holes(
    store: &StoreLocation,
    version: &str,
    target: &TargetRequest,
    progress: &dyn Progress,
) -> Result<ExportHolesReport> {
    let (started, file, forbidden) = (Instant::now(), &target.path, store.directories());
    // An origin ends an answer at the first damaged frame, so what stands beside it would be called lost as well.
    store.local("exporting what is readable of a damaged version")?;
    let store = OpenStore::open_reader(store)?;
    let resolved = store.resolve(version)?;
    let source = store.source(resolved.score, Default::default());
    let recipe = Recipe::open(resolved.score, &*source).map_err(|error| {
        error.within(format!("the recipe of {}: nothing of it can be read", title(&resolved)))
    })?;
    super::raw::refuse_existing(file)?;
    let length = recipe.root().disk_length;
    let lost: Mutex<BTreeMap<u64, (u64, String)>> = Mutex::default();
    let on_lost = |extent: Extent, error: &Error| {
        let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.insert(extent.offset, (extent.length, error.to_string()));
    };
    let agreed = target.agree(Some(recipe.root()), &forbidden)?;
    target.state.remove_if_incomplete();
    let opened = target.open(&agreed, recipe.root(), &forbidden, None)?;
    let total = allocated(&resolved).unwrap_or(length);
    target.state.expect(total);
    progress.begin("exporting", total);
    let advance = |bytes| {
        target.state.advance(bytes);
        progress.advance(bytes);
    };
    let written = install_readable(&recipe, &*source, &opened, InstallOptions::default(), &advance, &on_lost);
    let counts = written
        .and_then(|counts| opened.finish(false).map(|_| counts))
        .map_err(|error| target.explain(error))?;
    let lost = joined(lost.into_inner().unwrap_or_else(PoisonError::into_inner));
    let extents =
        Extents::from_unsorted(lost.iter().map(|lost| Extent::new(lost.offset, lost.length)).collect());
    let written = File::open(file).context(|| format!("opening {}", file.display()))?;
    let disk = Readable { file: &written, length, sector_size: recipe.root().sector_size, lost: &extents };
    let filesystems = resolved.version.as_ref().map_or(&[][..], |version| &version.record.filesystems);
    let (lost_files, notes) = lost_files(&disk, filesystems, &extents);
    Ok(ExportHolesReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        file: file.display().to_string(),
        disk_bytes: length,
        written_bytes: counts.data,
        lost_bytes: extents.total(),
        lost_omitted: lost.len().saturating_sub(RANGES_MAX),
        lost: lost.into_iter().take(RANGES_MAX).collect(),
        lost_files,
        notes,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Ranges in order, neighbours as one.
fn joined(lost: BTreeMap<u64, (u64, String)>) -> Vec<LostRange> {
    let mut joined: Vec<LostRange> = Vec::new();
    for (offset, (length, reason)) in lost {
        match joined.last_mut().filter(|last| last.offset + last.length == offset) {
            Some(last) => last.length += length,
            None => joined.push(LostRange { offset, length, reason }),
        }
    }
    joined
}

/// The file that was written, as a disk whose lost ranges cannot be read: zeros there must not be taken for what stood there.
struct Readable<'a> {
    file: &'a File,
    length: u64,
    sector_size: u32,
    lost: &'a Extents,
}

impl DiskRead for Readable<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.lost.clip(Extent::new(offset, buffer.len() as u64)).next().is_some() {
            return Err(io::Error::other("it stands in a damaged frame"));
        }
        self.file.read_exact_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let lost = [(0, 512), (512, 512), (4096, 512)];
        let lost = lost.into_iter().map(|(offset, length)| (offset, (length, format!("{offset}")))).collect();
        let range = |offset, length, reason: &str| LostRange { offset, length, reason: reason.into() };
        assert_eq!(joined(lost), [range(0, 1024, "0"), range(4096, 512, "4096")]);
    }
}
