//! Writes the readable parts of a damaged version as a raw file: unreadable ranges are zeros, and the report lists them
//! and the files in them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use platter_disk::install::{InstallOptions, install_readable};
use platter_disk::partition::TableChanges;
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result};
use serde::Serialize;

use super::files::{LostFile, lost_files};
use super::request::ExportRequest;
use crate::install::{allocated, title};
use crate::{Progress, TargetRequest};

/// Most listed ranges with their reasons; further ones are only counted.
const RANGES_MAX: usize = 10_000;
/// Most ranges kept to find the files in them: about 32 MiB. On a disk with more, only bytes are counted.
const RANGES_KEPT_MAX: usize = 1 << 20;

/// The report of a partial export.
#[derive(Clone, Debug, Serialize)]
pub struct ExportHolesReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score. All written data was verified; it is the complete disk only if nothing was lost.
    pub score: String,
    /// The file.
    pub file: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Unreadable bytes of the disk, which are zeros in the file.
    pub lost_bytes: u64,
    /// The unreadable ranges.
    pub lost: Vec<LostRange>,
    /// Number of unlisted ranges, because there are too many. After the first 1,048,576, adjacent ranges are counted
    /// separately.
    pub lost_omitted: usize,
    /// Files in these ranges.
    pub lost_files: Vec<LostFile>,
    /// Notices, in sentences.
    pub notes: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A range of the disk that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostRange {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The reason.
    pub reason: String,
}

/// Writes the readable parts of this version to a new raw file.
///
/// # Errors
/// `Refused` when the file exists, or the store is an origin's; `Missing` or `Corrupt` when not even the recipe's root can be
/// read; `Io` when the file cannot be written. It is then removed.
pub fn export_holes(
    request: &ExportRequest,
    target: &TargetRequest,
    progress: &dyn Progress,
) -> Result<ExportHolesReport> {
    let (started, file, forbidden) = (Instant::now(), &target.path, request.store.directories());
    // An origin ends a response at the first damaged frame, so intact frames of the same request would count as lost.
    request.store.local("exporting what is readable of a damaged version")?;
    let (store, resolved) = request.open()?;
    let source = store.source(resolved.score, Default::default());
    let recipe = Recipe::open(resolved.score, &*source).map_err(|error| {
        error.within(format!("the recipe of {}: nothing of it can be read", title(&resolved)))
    })?;
    super::raw::refuse_existing(file)?;
    let length = recipe.root().disk_length;
    let lost = Mutex::new(Lost::new(RANGES_MAX, RANGES_KEPT_MAX));
    let on_lost = |extent: Extent, error: &Error| {
        lost.lock().add(extent, error);
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
        .and_then(|counts| {
            opened.finish(false, Some(&TableChanges::default()), &Extents::new()).map(|_| counts)
        })
        .map_err(|error| target.explain(error))?;
    let lost = lost.into_inner();
    let extents = lost.extents();
    let written = File::open(file).context(|| format!("opening {}", file.display()))?;
    let disk = Readable { file: &written, length, sector_size: recipe.root().sector_size, lost: &extents };
    let filesystems = resolved.version.as_ref().map_or(&[][..], |version| &version.record.filesystems);
    let (lost_files, notes) = match lost.not_kept {
        0 => lost_files(&disk, filesystems, &extents),
        _ => (Vec::new(), vec!["too many ranges are lost to list their files".into()]),
    };
    Ok(ExportHolesReport {
        version: title(&resolved),
        score: resolved.score.to_string(),
        file: file.display().to_string(),
        disk_bytes: length,
        written_bytes: counts.data,
        lost_bytes: lost.bytes,
        lost_omitted: lost.omitted(),
        lost: lost.told(),
        lost_files,
        notes,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// The unreadable ranges, in bounded memory, in any order of discovery.
struct Lost {
    /// Start and length of each range. Adjacent ranges are merged.
    ranges: BTreeMap<u64, u64>,
    /// The reasons of the first ranges, by their starts.
    reasons: BTreeMap<u64, String>,
    /// Number of further ranges.
    not_kept: usize,
    /// Bytes of all ranges.
    bytes: u64,
    told_max: usize,
    kept_max: usize,
}

impl Lost {
    fn new(told_max: usize, kept_max: usize) -> Self {
        let (ranges, reasons) = (BTreeMap::new(), BTreeMap::new());
        Self { ranges, reasons, not_kept: 0, bytes: 0, told_max, kept_max }
    }

    /// Adds a range, which does not overlap earlier ones.
    fn add(&mut self, extent: Extent, error: &Error) {
        self.bytes += extent.length;
        let before = self.ranges.range_mut(..extent.offset).next_back();
        let before = before.filter(|(offset, length)| **offset + **length == extent.offset);
        let before = before.map(|(offset, _)| *offset);
        let after = self.ranges.remove(&extent.end());
        if before.is_none() && after.is_none() && self.ranges.len() >= self.kept_max {
            self.not_kept += 1;
            return;
        }
        *self.ranges.entry(before.unwrap_or(extent.offset)).or_default() +=
            extent.length + after.unwrap_or(0);
        if after.is_some() {
            self.reasons.remove(&extent.end());
        }
        if before.is_none() {
            self.reasons.insert(extent.offset, error.to_string());
            if self.reasons.len() > self.told_max {
                self.reasons.pop_last();
            }
        }
    }

    fn extents(&self) -> Extents {
        self.ranges.iter().map(|(offset, length)| Extent::new(*offset, *length)).collect()
    }

    fn told(&self) -> Vec<LostRange> {
        let range = |(offset, length): (&u64, &u64)| LostRange {
            offset: *offset,
            length: *length,
            // Merged ranges may have made room for a range without a stored reason.
            reason: self.reasons.get(offset).map_or("cannot be read", String::as_str).to_owned(),
        };
        self.ranges.iter().take(self.told_max).map(range).collect()
    }

    fn omitted(&self) -> usize {
        self.ranges.len().saturating_sub(self.told_max) + self.not_kept
    }
}

/// The written file, as a disk with unreadable lost ranges: zeros there must not be taken for contents.
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
            return Err(io::Error::other("it is in a damaged frame"));
        }
        self.file.read_exact_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(told_max: usize, kept_max: usize, offsets: impl IntoIterator<Item = u64>) -> Lost {
        let mut lost = Lost::new(told_max, kept_max);
        for offset in offsets {
            lost.add(Extent::new(offset, 512), &Error::missing(format!("{offset}")));
        }
        lost
    }

    #[test]
    fn adjacent_ranges_are_merged_in_any_order() {
        let range = |offset, length, reason: &str| LostRange { offset, length, reason: reason.into() };
        for offsets in [[0, 512, 1024, 4096], [4096, 1024, 512, 0], [0, 1024, 4096, 512]] {
            let lost = lost(9, 9, offsets);
            let reason = Error::missing("0").to_string();
            let other = Error::missing("4096").to_string();
            assert_eq!(lost.told(), [range(0, 1536, &reason), range(4096, 512, &other)], "{offsets:?}");
            assert_eq!((lost.bytes, lost.omitted(), lost.reasons.len()), (2048, 0, 2));
        }
    }

    #[test]
    fn memory_is_bounded_and_every_byte_is_counted() {
        let lost = lost(10, 100, (0..100_000).rev().map(|at| at * 1024));
        assert_eq!((lost.ranges.len(), lost.reasons.len(), lost.told().len()), (100, 10, 10));
        assert_eq!((lost.bytes, lost.not_kept, lost.omitted()), (100_000 * 512, 99_900, 99_990));
        assert!(lost.told().iter().all(|range| range.reason != "cannot be read"));
    }
}
