//! One disk to serve, and how: what a command line says, what the control socket carries, and what is remembered of a disk.
//!
//! Plain facts that can be written down and read again by another process. Owns no open file and no connection.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::address::NbdAddress;

/// One disk to serve, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRequest {
    /// The version: a name, a name with a number, or a score.
    pub version: String,
    /// Take its edit lock and let it be written. `None`: it is only read.
    #[serde(default)]
    pub write: Option<WriteRequest>,
    /// Fetch every block of it, until it is fully local; for an origin's store with a cache.
    #[serde(default)]
    pub fill: bool,
    /// Record what is asked of it, in a new file.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// An NBD address for this disk alone, instead of the one that all disks of the process share.
    #[serde(default)]
    pub nbd: Option<NbdAddress>,
}

/// How a disk is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// Who edits, for the others.
    pub holder: String,
    /// Take the edit lock from whoever has it.
    #[serde(default)]
    pub steal: bool,
    /// What becomes of what was written when the disk is detached.
    #[serde(default)]
    pub on_detach: OnDetach,
    /// Publish it that often, if it was written.
    #[serde(default)]
    pub publish_every: Option<Duration>,
    /// A sentence for the versions that are published.
    #[serde(default)]
    pub notes: String,
}

/// What becomes of what was written when a disk is detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDetach {
    /// It is kept, with the edit lock: the disk can be attached again, published or discarded later.
    #[default]
    Keep,
    /// It becomes the next version.
    Publish,
    /// It is thrown away.
    Discard,
}

impl DiskRequest {
    /// A request to serve a version, read-only, where all disks of the process are served.
    pub fn new(version: impl Into<String>) -> Self {
        Self { version: version.into(), ..Self::default() }
    }
}
