//! The directory of a cache and its layout (`docs/formats/cache.md`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_image::{Error, IoContext, Result};
use platter_vfs::{OpenMode, Vfs, VfsFile, create_dirs, read_whole, remove_if_there, replace};
use serde::{Deserialize, Serialize};

use super::pins::{FILE_LENGTH_MAX, PinName};
use platter_records::{PackId, StoreId};

/// Format version of directory layout and files together.
const FORMAT_VERSION: u32 = 1;
const FORMAT_FILE: &str = "cache.json";
/// Maximum number of bytes of `cache.json` that are read.
const FORMAT_FILE_LENGTH_MAX: u64 = 4 << 10;
const SEGMENT_SUFFIX: &str = ".segment";
const PINS_SUFFIX: &str = ".pins";

/// The contents of `cache.json`.
#[derive(Serialize, Deserialize)]
struct FormatFile {
    platter_cache: u32,
    id: String,
}

/// The directory of a cache.
#[derive(Clone, Debug)]
pub(super) struct CachePlace {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
}

impl CachePlace {
    pub(super) fn new(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>) -> Self {
        Self { vfs, dir: dir.into() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn segments_dir(&self) -> PathBuf {
        self.dir().join("segments")
    }

    fn pins_dir(&self) -> PathBuf {
        self.dir().join("pins")
    }

    pub(super) fn segment(&self, number: u32) -> PathBuf {
        self.segments_dir().join(format!("{number:08x}{SEGMENT_SUFFIX}"))
    }

    fn pins(&self, set: &PinName) -> PathBuf {
        self.pins_dir().join(format!("{set}{PINS_SUFFIX}"))
    }

    /// Creates the directories and takes the lock. Returns it with the cache's id, which is created the first time.
    pub(super) fn open(&self) -> Result<(Box<dyn VfsFile>, StoreId)> {
        self.create_dirs(self.dir())?;
        let path = self.dir().join("lock");
        let lock = self.vfs.lock(&path).context(|| format!("locking {}", path.display()))?;
        let lock = lock.ok_or_else(|| {
            Error::refused(format!("the cache in {} is in use by another process", self.dir().display()))
        })?;
        self.create_dirs(&self.segments_dir())?;
        self.create_dirs(&self.pins_dir())?;
        let path = self.dir().join(FORMAT_FILE);
        let read = read_whole(&*self.vfs, &path, FORMAT_FILE_LENGTH_MAX);
        let id = match read.context(|| format!("reading {}", path.display()))? {
            Some(bytes) => self.parse(&bytes)?,
            None => self.make(&path)?,
        };
        Ok((lock, id))
    }

    fn make(&self, path: &Path) -> Result<StoreId> {
        if !self.list_segments()?.is_empty() {
            return Err(Error::refused(format!(
                "{} has segments of a cache but no {FORMAT_FILE}: remove the directory, or choose another",
                self.dir().display()
            )));
        }
        let id = StoreId(self.vfs.random_id().context(|| "choosing the cache's id".into())?);
        let text = serde_json::to_string(&FormatFile { platter_cache: FORMAT_VERSION, id: id.to_string() })
            .map_err(|error| Error::bug("cannot serialize cache.json").with_source(error))?;
        let written = replace(&*self.vfs, path, format!("{text}\n").as_bytes());
        written.context(|| format!("writing {}", path.display()))?;
        Ok(id)
    }

    fn parse(&self, bytes: &[u8]) -> Result<StoreId> {
        let dir = self.dir().display();
        let corrupt = || Error::corrupt(format!("{dir}/{FORMAT_FILE} is invalid: remove the directory"));
        let format: FormatFile =
            serde_json::from_slice(bytes).map_err(|error| corrupt().with_source(error))?;
        if format.platter_cache != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "the cache in {dir} has format {}, but this Platter supports format {FORMAT_VERSION}: use a newer Platter, or remove the cache",
                format.platter_cache
            )));
        }
        StoreId::from_hex(&format.id).ok_or_else(corrupt)
    }

    /// Returns the numbers of all segments, ascending.
    pub(super) fn list_segments(&self) -> Result<Vec<u32>> {
        let dir = self.segments_dir();
        let listed = self.vfs.list(&dir).context(|| format!("listing {}", dir.display()))?;
        let number = |name: &str| u32::from_str_radix(name.strip_suffix(SEGMENT_SUFFIX)?, 16).ok();
        let mut numbers: Vec<u32> = listed.iter().filter_map(|entry| number(&entry.name)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    pub(super) fn open_segment(&self, number: u32, mode: OpenMode) -> Result<Arc<dyn VfsFile>> {
        let path = self.segment(number);
        let opened = self.vfs.open(&path, mode).context(|| format!("opening {}", path.display()))?;
        Ok(Arc::from(opened))
    }

    pub(super) fn remove_segment(&self, number: u32) -> Result<()> {
        self.remove_if_there(&self.segment(number))
    }

    /// Makes the names of segments durable.
    pub(super) fn sync_segment_names(&self) -> Result<()> {
        self.sync_dir(&self.segments_dir())
    }

    /// Returns the names of all sets of pins.
    pub(super) fn list_pins(&self) -> Result<Vec<PinName>> {
        let dir = self.pins_dir();
        let listed = self.vfs.list(&dir).context(|| format!("listing {}", dir.display()))?;
        Ok(listed.iter().filter_map(|entry| entry.name.strip_suffix(PINS_SUFFIX)?.parse().ok()).collect())
    }

    pub(super) fn read_pins(&self, set: &PinName) -> Result<Option<Vec<u8>>> {
        let path = self.pins(set);
        read_whole(&*self.vfs, &path, FILE_LENGTH_MAX).context(|| format!("reading {}", path.display()))
    }

    pub(super) fn write_pins(&self, set: &PinName, bytes: &[u8]) -> Result<()> {
        let path = self.pins(set);
        replace(&*self.vfs, &path, bytes).context(|| format!("writing {}", path.display()))
    }

    pub(super) fn remove_pins(&self, set: &PinName) -> Result<()> {
        self.remove_if_there(&self.pins(set))?;
        self.sync_dir(&self.pins_dir())
    }

    fn create_dirs(&self, dir: &Path) -> Result<()> {
        create_dirs(&*self.vfs, dir).context(|| format!("making the directory {}", dir.display()))
    }

    fn remove_if_there(&self, path: &Path) -> Result<()> {
        remove_if_there(&*self.vfs, path).context(|| format!("removing {}", path.display()))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.vfs.sync_dir(dir).context(|| format!("syncing the directory {}", dir.display()))
    }
}

/// Returns the pack id in a segment's header. A segment has the format of a pack, with its number as id.
pub(super) fn pack_id(number: u32) -> PackId {
    let mut id = [0; 16];
    id[12..].copy_from_slice(&number.to_be_bytes());
    PackId(id)
}
