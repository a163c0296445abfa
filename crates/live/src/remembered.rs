//! The disks that a node serves, in a small file in its directory, so that they are served again after the node ended
//! in any way.
//!
//! [`RememberedDisk`] has everything that another process needs to continue with a disk; a successor gets it as well.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use platter_image::{Error, IoContext, Result, Score};
use platter_vfs::{OsVfs, read_whole, replace};
use serde::{Deserialize, Serialize};

use super::disk_request::DiskRequest;

const FILE: &str = "disks.json";
/// Most bytes of the file.
const FILE_LENGTH_MAX: u64 = 4 << 20;

/// A served disk with its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedDisk {
    /// Its name in exports.
    pub(super) name: String,
    /// The score at the bottom when it was attached. A read-only disk keeps this version, not a newer one: a
    /// reconnecting client finds the same bytes. For a writable disk, its overlays contain the version.
    pub(super) base: String,
    /// The number of its edit lock.
    pub(super) edit_lock: Option<u64>,
    /// The request.
    pub(super) request: DiskRequest,
}

impl RememberedDisk {
    /// # Errors
    /// `Corrupt` when it is not a score.
    pub(super) fn base(&self) -> Result<Score> {
        let score = Score::from_hex(&self.base);
        score.ok_or_else(|| Error::corrupt(format!("{}: {} is not a score", self.name, self.base)))
    }
}

/// All remembered disks.
pub(super) struct RememberedDisks {
    path: PathBuf,
    disks: Mutex<Vec<RememberedDisk>>,
}

impl RememberedDisks {
    /// Reads the disks of an earlier process; none when there is no such file.
    ///
    /// # Errors
    /// `Corrupt` when the file is invalid, because a writable disk may be among its disks. `Io`.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let read = read_whole(&OsVfs, &path, FILE_LENGTH_MAX);
        let disks = match read.context(|| format!("reading {}", path.display()))? {
            None => Vec::new(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let what =
                    "the list of this node's disks cannot be read: remove the file to start without them";
                Error::corrupt(format!("{}: {what}", path.display())).with_source(error)
            })?,
        };
        Ok(Self { path, disks: Mutex::new(disks) })
    }

    pub(super) fn all(&self) -> Vec<RememberedDisk> {
        self.disks.lock().clone()
    }

    /// Notes that a disk is served. Durable on return.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn add(&self, disk: RememberedDisk) -> Result<()> {
        self.change(|disks| {
            disks.retain(|other| other.name != disk.name);
            disks.push(disk);
        })
    }

    /// Notes the version at the bottom of a disk, if the disk is still remembered.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn set_base(&self, name: &str, base: Score) -> Result<()> {
        self.change(|disks| {
            let known = disks.iter_mut().filter(|disk| disk.name == name);
            known.for_each(|disk| disk.base = base.to_string());
        })
    }

    /// Notes that a disk is no longer served.
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
            .map_err(|error| Error::bug("cannot serialize disks").with_source(error))?;
        replace(&OsVfs, &self.path, &bytes).context(|| format!("writing {}", self.path.display()))?;
        *disks = changed;
        Ok(())
    }
}
