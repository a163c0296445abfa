//! What is known about the contents of an extent that may hold a filesystem.

use platter_image::chunking::{FileRun, Region};
use platter_image::{Extent, Extents};

/// Which bytes of an extent are kept, and where files lie. All offsets are those of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The filesystem: `ext4`, `swap`, `xfs`, …; empty if unknown.
    pub filesystem: String,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Its block size in bytes; 0 if unknown.
    pub block_size: u32,
    /// What can still be read, in whole sectors.
    pub allocated: Extents,
    /// The part of `allocated` that is stored as zeros without being read.
    pub zeroed: Extents,
    /// Where files lie, ascending and inside `allocated`.
    pub files: Vec<FileRun>,
    /// Peculiarities, in sentences.
    pub notes: Vec<String>,
    /// Whether the filesystem states more bytes than its place has.
    pub is_cut_off: bool,
}

impl Contents {
    /// All of `extent` is kept.
    pub fn whole(filesystem: &str, extent: Extent) -> Self {
        Self {
            filesystem: filesystem.to_owned(),
            allocated: [extent].into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Converts it to a region for chunking.
    pub fn into_region(self, extent: Extent) -> Region {
        Region { extent, allocated: self.allocated, zeroed: self.zeroed, files: self.files }
    }
}
