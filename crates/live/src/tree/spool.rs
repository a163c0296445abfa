//! A file that is being written, and becomes the next version of an image when it is closed.
//!
//! Its bytes are in a plain file without a name, in the directory of the [`LivePlace`], which disappears when it is
//! closed everywhere, or with the process. Ranges that are copied from a version (`take_over`) are only remembered as
//! long as possible: if all of that version was copied, a clone is published and no data is copied. Any other access
//! first writes the remembered ranges to the file.
//!
//! If the kernel writes to the plain file directly, changes are not counted here: the file's times tell whether it was
//! written. If it wrote to a page that is partly remembered, it is unknown which of its zeros were written, and closing
//! fails instead of guessing.

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platter_disk::Source;
use platter_image::{Error, Extent, Extents, IoContext, Result, Score};
use platter_records::ImageName;
use platter_store::KnownCheck;
use platter_vdisk::{Allocation, BlockDevice, RecipeDisk};

use super::holes::data;
use super::keep::Keep;
use crate::place::LivePlace;
use platter_fetch::EditLockChoice;
use platter_jobs::{CaptureRequest, CloneRequest, Silent, clone};
use platter_jobs::{Input, capture_as};

const DIRECTORY: &str = "spool";
/// Most separate remembered ranges.
const TAKEN_MAX: usize = 1 << 20;
/// Bytes copied at a time.
const COPY_LENGTH: u64 = 1 << 20;
/// The file, shared by all its openings.
pub(super) struct Spool {
    keep: Arc<Keep>,
    image: ImageName,
    /// Its name in messages: `import/lab/debian12.raw`.
    pub(super) path: String,
    pub(super) file: File,
    /// Whether the kernel may write to the file directly.
    pub(super) is_backing: AtomicBool,
    /// Number of changes through this process.
    changes: AtomicU64,
    /// Only changed while nobody writes: writers hold the read lock and have checked that nothing is remembered.
    pub(super) taken: RwLock<Option<Taken>>,
    /// The file's state when it last became a version. Locked during that.
    published: Mutex<Option<Stamp>>,
}

/// Remembered ranges of one version.
pub(super) struct Taken {
    score: Score,
    disk: RecipeDisk,
    pub(super) ranges: Vec<Extent>,
}

impl Taken {
    pub(super) fn extents(&self) -> Extents {
        Extents::from_unsorted(self.ranges.clone())
    }
}

/// A state of the file, which changes with its contents.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: (i64, i64),
    changes: u64,
}

impl Spool {
    /// Creates an empty file.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn create(keep: Arc<Keep>, image: ImageName, path: String) -> Result<Self> {
        let dir = keep.place.dir().join(DIRECTORY);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.context(|| format!("making {}", dir.display()))?;
        let number = platter_vfs::Vfs::random_id(&platter_vfs::OsVfs).context(|| "choosing a name".into())?;
        let name = dir.join(format!("{:032x}", u128::from_be_bytes(number)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name);
        let file = file.context(|| format!("making {}", name.display()))?;
        // Without a name, it cannot outlive this process.
        std::fs::remove_file(&name).context(|| format!("removing the name of {}", name.display()))?;
        Ok(Self {
            keep,
            image,
            path,
            file,
            is_backing: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            taken: RwLock::default(),
            published: Mutex::default(),
        })
    }

    /// Removes files of processes that ended between creating a file and removing its name.
    pub(super) fn clean(place: &LivePlace) {
        let Ok(left) = std::fs::read_dir(place.dir().join(DIRECTORY)) else { return };
        for entry in left.flatten() {
            // Its process may be removing it as well.
            let _ = std::fs::remove_file(entry.path());
        }
    }

    pub(super) fn image(&self) -> &ImageName {
        &self.image
    }

    /// Returns the file's length, its allocated bytes, and the time of its last change.
    pub(super) fn facts(&self) -> Result<(u64, u64, i64)> {
        let metadata = self.file.metadata().context(|| format!("looking at {}", self.path))?;
        let modified =
            metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000);
        Ok((metadata.len(), metadata.blocks().saturating_mul(512), modified))
    }

    fn stamp(&self) -> Result<Stamp> {
        let metadata = self.file.metadata().context(|| format!("looking at {}", self.path))?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Stamp { length: metadata.len(), modified, changes: self.changes.load(Ordering::Relaxed) })
    }

    /// Writes back what the kernel wrote to pages of the file directly: until then, they may count as holes.
    fn write_back(&self) -> Result<()> {
        match self.is_backing.load(Ordering::Relaxed) {
            true => self.file.sync_data().context(|| format!("writing back {}", self.path)),
            false => Ok(()),
        }
    }

    /// Returns where the file has data in a range.
    fn data(&self, range: Extent) -> Result<Extents> {
        self.write_back()?;
        data(&self.file, range)
    }

    pub(super) fn taken_mut(&self) -> RwLockWriteGuard<'_, Option<Taken>> {
        self.taken.write()
    }

    /// Runs an access to the file's bytes, after writing remembered ranges to it.
    pub(super) fn on_file<T>(
        &self,
        act: impl FnOnce(&File) -> io::Result<T>,
        what: impl FnOnce() -> String,
    ) -> Result<T> {
        loop {
            let taken = self.taken.read();
            if taken.is_none() {
                return act(&self.file).context(what);
            }
            drop(taken);
            self.write_down(&mut self.taken_mut())?;
        }
    }

    /// Writes remembered ranges to the file.
    fn write_down(&self, taken: &mut Option<Taken>) -> Result<()> {
        let Some(remembered) = taken.as_mut() else { return Ok(()) };
        let ranges = remembered.extents();
        if self.is_backing.load(Ordering::Relaxed) {
            self.refuse_mixture(&ranges)?;
        }
        // A piece is forgotten once it is copied, and begins at a page: after a failure, the next call goes on there and does
        // not take what was copied for a mixture.
        remembered.ranges = ranges.iter().copied().collect();
        remembered.ranges.reverse();
        while let Some(range) = remembered.ranges.last_mut() {
            let end = range.end().min((range.offset / COPY_LENGTH + 1) * COPY_LENGTH);
            self.copy(&remembered.disk, Extent::between(range.offset, end))?;
            *range = Extent::between(end, range.end());
            if range.length == 0 {
                remembered.ranges.pop();
            }
        }
        *taken = None;
        Ok(())
    }

    fn refuse_mixture(&self, ranges: &Extents) -> Result<()> {
        let written = self.data(Extent::new(0, self.length()))?;
        let torn = written.iter().flat_map(|extent| ranges.clip(*extent)).next();
        torn.map_or(Ok(()), |extent| {
            Err(Error::refused(format!(
                "{}: {} bytes at {} were copied from a version and then overwritten: copy to a plain file first",
                self.path, extent.length, extent.offset
            )))
        })
    }

    fn copy(&self, disk: &RecipeDisk, range: Extent) -> Result<()> {
        let mut runs = Vec::new();
        disk.extents(range, &mut |run, allocation| {
            runs.extend((allocation == Allocation::Data).then_some(run));
            true
        })?;
        let mut buffer = Vec::new();
        for run in runs {
            let mut offset = run.offset;
            while offset < run.end() {
                buffer.resize((run.end() - offset).min(COPY_LENGTH) as usize, 0);
                disk.read(&mut buffer, offset)?;
                self.file.write_all_at(&buffer, offset).context(|| format!("copying to {}", self.path))?;
                offset += buffer.len() as u64;
            }
        }
        Ok(())
    }

    /// Returns the version of which this is a complete, unchanged copy, if it is one.
    fn cloned(&self, taken: &Option<Taken>) -> Result<Option<Score>> {
        let Some(taken) = taken else { return Ok(None) };
        let whole = Extent::new(0, taken.disk.length());
        if self.length() != whole.length || !self.data(whole)?.is_empty() {
            return Ok(None);
        }
        let mut runs = Vec::new();
        taken.disk.extents(whole, &mut |run, allocation| {
            runs.extend((allocation == Allocation::Data).then_some(run));
            true
        })?;
        let missing = Extents::from_unsorted(runs).subtract(&taken.extents());
        Ok(missing.is_empty().then_some(taken.score))
    }

    /// Publishes it as the next version.
    fn publish(&self) -> Result<Stamp> {
        let keep = &self.keep;
        let mut taken = self.taken_mut();
        let tool_version = keep.tool_version.clone();
        // Before the check that it covers, because the kernel may write at any time; writing pages back changes it.
        self.write_back()?;
        let stamp = self.stamp()?;
        if let Some(score) = self.cloned(&taken)? {
            let request = CloneRequest {
                store: keep.place.store().clone(),
                version: score.to_string(),
                name: self.image.clone(),
                next: true,
                edit_lock: EditLockChoice::Free,
                tool_version,
            };
            clone(&request)?;
            keep.catalog.changed();
            return Ok(stamp);
        }
        self.write_down(&mut taken)?;
        drop(taken);
        let stamp = self.stamp()?;
        let request = CaptureRequest {
            store: keep.place.store().clone(),
            source: format!("/proc/self/fd/{}", self.file.as_raw_fd()).into(),
            input: Default::default(),
            name: self.image.clone(),
            survey: Default::default(),
            allow_in_use: false,
            skip_bad: false,
            audit: false,
            sector_size: None,
            options: Default::default(),
            known: KnownCheck::Sample,
            labels: Default::default(),
            notes: String::new(),
            edit_lock: EditLockChoice::Free,
            tool_version,
        };
        let input = Input::of(Source::open(&request.source, None)?);
        capture_as(&request, &input, &self.path, &Silent)?;
        keep.catalog.changed();
        Ok(stamp)
    }

    pub(super) fn close(&self) -> Result<()> {
        let mut published = self.published.lock();
        let stamp = self.stamp()?;
        if stamp.length > 0 && *published != Some(stamp) {
            let what = format!("{} was not imported as a version of {}", self.path, self.image);
            *published = Some(self.publish().map_err(|error| error.within(what))?);
        }
        Ok(())
    }

    pub(super) fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers a range of a version. Returns whether it was possible.
    pub(super) fn take_over(&self, score: Score, range: Extent) -> Result<bool> {
        let mut taken = self.taken_mut();
        if taken.as_ref().is_some_and(|taken| taken.score != score || taken.ranges.len() >= TAKEN_MAX) {
            return Ok(false);
        }
        if !self.data(Extent::new(0, u64::MAX))?.is_empty() {
            return Ok(false);
        }
        let mut now = match taken.take() {
            Some(taken) => taken,
            None => Taken { score, disk: self.keep.sources.disk(score)?, ranges: Vec::new() },
        };
        let is_taken = range.end() <= now.disk.length();
        if is_taken {
            match now.ranges.last_mut() {
                Some(last) if last.end() == range.offset => last.length += range.length,
                _ => now.ranges.push(range),
            }
        }
        *taken = (!now.ranges.is_empty()).then_some(now);
        if is_taken && self.length() < range.end() {
            self.file.set_len(range.end()).context(|| format!("lengthening {}", self.path))?;
        }
        self.changed();
        Ok(is_taken)
    }
}
