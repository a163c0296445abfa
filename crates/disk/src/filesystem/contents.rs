//! What is known of the contents of an extent that may hold a filesystem.

use platter_image::chunking::{FileRun, Region};
use platter_image::{Extent, Extents};

/// What of an extent counts, and whose it is. All offsets are the device's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// What it is: `ext4`, `swap`, `xfs`, …; empty if nothing is known.
    pub filesystem: String,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Bytes of its blocks; 0 if nothing is known.
    pub block_size: u32,
    /// What somebody can still read, whole sectors.
    pub allocated: Extents,
    /// What of that is stored as zeros without being read.
    pub zeroed: Extents,
    /// Where files stand, ascending and inside of `allocated`.
    pub files: Vec<FileRun>,
    /// What is odd about it, in sentences.
    pub notes: Vec<String>,
}

impl Contents {
    /// All of `extent` counts.
    pub fn whole(filesystem: &str, extent: Extent) -> Self {
        Self {
            filesystem: filesystem.to_owned(),
            allocated: [extent].into_iter().collect(),
            ..Self::default()
        }
    }

    /// The same, with a reason.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// As chunking wants it.
    pub fn into_region(self, extent: Extent) -> Region {
        Region { extent, allocated: self.allocated, zeroed: self.zeroed, files: self.files }
    }
}
