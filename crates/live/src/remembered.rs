//! The disks that a node serves, in a small file in its directory, so that they are served again after it ended, however it ended.
//!
//! [`RememberedDisk`] is all that another process needs to go on with a disk: it is what is handed to a successor, too.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use platter_image::{Error, IoContext, Result, Score};
use platter_vfs::{OsVfs, read_whole, replace};
use serde::{Deserialize, Serialize};

use super::disk_request::DiskRequest;

const FILE: &str = "disks.json";
/// Most bytes of the file.
const FILE_LENGTH_MAX: u64 = 4 << 20;

/// A disk that is served, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedDisk {
    /// What exports call it.
    pub(super) name: String,
    /// The score at the bottom when it was attached. A disk that is only read shows this again, not a newer version: a client that
    /// comes back finds the bytes that it left. What one that is written stands on, its overlays know.
    pub(super) base: String,
    /// The number of the edit lock that it is written under.
    pub(super) edit_lock: Option<u64>,
    /// What was asked for.
    pub(super) request: DiskRequest,
}

impl RememberedDisk {
    /// # Errors
    /// `Corrupt` when it is no score.
    pub(super) fn base(&self) -> Result<Score> {
        let score = Score::from_hex(&self.base);
        score.ok_or_else(|| Error::corrupt(format!("{}: {} is no score", self.name, self.base)))
    }
}

/// All of them.
pub(super) struct RememberedDisks {
    path: PathBuf,
    disks: Mutex<Vec<RememberedDisk>>,
}

impl RememberedDisks {
    /// Those of an earlier process; none when there is no such file.
    ///
    /// # Errors
    /// `Corrupt` when the file cannot be understood: a disk that somebody writes may be among those in it. `Io`.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let read = read_whole(&OsVfs, &path, FILE_LENGTH_MAX);
        let disks = match read.context(|| format!("reading {}", path.display()))? {
            None => Vec::new(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let what = "the disks of this node cannot be read: remove the file to begin without them";
                Error::corrupt(format!("{}: {what}", path.display())).with_source(error)
            })?,
        };
        Ok(Self { path, disks: Mutex::new(disks) })
    }

    pub(super) fn all(&self) -> Vec<RememberedDisk> {
        self.disks.lock().clone()
    }

    /// Notes that a disk is served; durable when this returns.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn add(&self, disk: RememberedDisk) -> Result<()> {
        self.change(|disks| {
            disks.retain(|other| other.name != disk.name);
            disks.push(disk);
        })
    }

    /// Notes that it is served no longer.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        self.change(|disks| disks.retain(|disk| disk.name != name))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RememberedDisk>)) -> Result<()> {
        let mut disks = self.disks.lock();
        let mut changed = disks.clone();
        change(&mut changed);
        if *disks == changed {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&changed)
            .map_err(|error| Error::bug("disks without a text").with_source(error))?;
        replace(&OsVfs, &self.path, &bytes).context(|| format!("writing {}", self.path.display()))?;
        *disks = changed;
        Ok(())
    }
}
