//! What is known of the contents of an extent that may hold a filesystem.

use platter_image::chunking::{FileRun, Region};
use platter_image::{DiskRead, Extent, Extents, Result};

use super::{Found, Owners, ext, swap};

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

/// Whether what surrounds an extent lets its filesystem drop anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Nothing speaks against it.
    Sole,
    /// Something does; the reason is noted with the extent.
    Doubted(&'a str),
    /// Something does that is noted elsewhere.
    Kept,
}

/// Looks into `extent` of a disk, whose owners were looked for.
///
/// # Errors
/// `Refused` if a filesystem there needs recovery, unless `force` (then all of it counts); and what reading the disk
/// says.
pub fn examine(
    disk: &dyn DiskRead,
    extent: Extent,
    owners: &Owners,
    trust: Trust<'_>,
    force: bool,
) -> Result<Contents> {
    Ok(match (owners.found(), trust) {
        (Found::Nothing, _) => Contents::whole("", extent),
        (Found::Other(name), _) => Contents::whole(name, extent),
        (Found::Ambiguous(names), _) => {
            let contents = Contents::whole("", extent);
            // Of others, nothing would be dropped anyway.
            if !(owners.has("ext") || owners.has("swap")) {
                return Ok(contents);
            }
            contents.with_note(format!(
                "{} left their marks side by side: all of it is kept, since some of them may be alive",
                names.join(" and ")
            ))
        }
        (Found::Ext, Trust::Sole) => ext::examine(disk, extent, force)?,
        (Found::Swap(header), Trust::Sole) => swap::examine(&header, extent),
        (Found::Ext, _) => kept(Contents::whole("ext", extent), trust),
        (Found::Swap(_), _) => kept(Contents::whole("swap", extent), trust),
    })
}

fn kept(contents: Contents, trust: Trust<'_>) -> Contents {
    match trust {
        Trust::Doubted(reason) => contents.with_note(format!("all of it is kept, used or not: {reason}")),
        Trust::Sole | Trust::Kept => contents,
    }
}
