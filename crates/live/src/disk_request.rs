//! The request to serve one disk: from a command line, over the control socket, and in the memory of a node.
//!
//! Plain data that another process can read. Owns no open file and no connection.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::address::NbdAddress;

/// The request to serve one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRequest {
    /// The version: a name, a name with a number, or a score.
    pub version: String,
    /// Take its edit lock and make it writable. `None`: read-only.
    #[serde(default)]
    pub write: Option<WriteRequest>,
    /// Fetch every block of it, until it is fully local; only for an origin's store with a cache.
    #[serde(default)]
    pub fill: bool,
    /// Record its requests in a new file.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// An NBD address for this disk alone, instead of the shared one.
    #[serde(default)]
    pub nbd: Option<NbdAddress>,
}

/// Options of a writable disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// Name of the holder of the edit lock.
    pub holder: String,
    /// Take over the edit lock from its holder.
    #[serde(default)]
    pub steal: bool,
    /// How a detach treats unpublished changes.
    #[serde(default)]
    pub on_detach: OnDetach,
    /// Publish it at this interval, if it was written.
    #[serde(default)]
    pub publish_every: Option<Duration>,
    /// A note for the published versions.
    #[serde(default)]
    pub notes: String,
}

/// How a detach treats unpublished changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDetach {
    /// They are kept, with the edit lock: the disk can be attached again, published or discarded later.
    #[default]
    Keep,
    /// They become the next version.
    Publish,
    /// They are discarded.
    Discard,
}

impl DiskRequest {
    /// Creates a request to serve a version read-only, at the shared addresses.
    pub fn new(version: impl Into<String>) -> Self {
        Self { version: version.into(), ..Self::default() }
    }
}
