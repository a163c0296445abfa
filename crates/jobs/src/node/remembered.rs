//! The disks that a node serves, in a small file in the cache's directory, so that they are served again after it was killed.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use platter_vfs::{OsVfs, read_whole, replace};
use serde::{Deserialize, Serialize};

const FILE: &str = "disks.json";
/// Most bytes of the file.
const FILE_LENGTH_MAX: u64 = 4 << 20;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedDisk {
    /// What exports call it.
    pub(crate) name: String,
    /// What it shows: a client that comes back finds the bytes that it left, not a newer version's.
    pub(crate) score: String,
    /// All of it is to be held.
    pub(crate) fill: bool,
}

/// All of them.
pub(crate) struct RememberedDisks {
    path: PathBuf,
    disks: Mutex<Vec<RememberedDisk>>,
}

impl RememberedDisks {
    /// Those of an earlier process; none when the file is missing or none.
    pub(crate) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let read = read_whole(&OsVfs, &path, FILE_LENGTH_MAX).ok().flatten();
        let disks = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { path, disks: Mutex::new(disks) }
    }

    pub(crate) fn all(&self) -> Vec<RememberedDisk> {
        self.disks.lock().clone()
    }

    /// Notes that a disk is served; durable when this returns.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn add(&self, disk: RememberedDisk) -> Result<()> {
        self.change(|disks| {
            disks.retain(|other| other.name != disk.name);
            disks.push(disk);
        })
    }

    /// Notes that it is served no longer.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.change(|disks| disks.retain(|disk| disk.name != name))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RememberedDisk>)) -> Result<()> {
        let mut disks = self.disks.lock();
        let before = disks.clone();
        change(&mut disks);
        if *disks == before {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&*disks)
            .map_err(|error| Error::bug("disks without a text").with_source(error))?;
        replace(&OsVfs, &self.path, &bytes).context(|| format!("writing {}", self.path.display()))
    }
}
