//! Examines an extent with the reader for the filesystem that was found there.

use platter_image::{DiskRead, Extent, Result};

use super::{Contents, Found, Owners, ext, swap};

/// Whether the surroundings of an extent allow its filesystem to drop anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Yes.
    Sole,
    /// No; the reason is noted with the extent.
    Doubted(&'a str),
    /// No; the reason is noted elsewhere.
    Kept,
}

/// Examines `extent`, whose owners were searched for.
///
/// # Errors
/// `Refused` if its filesystem needs recovery, unless `force` is set (then all of it is kept); errors of
/// reading the disk.
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
            // Other filesystems are kept in full anyway.
            if !(owners.has("ext") || owners.has("swap")) {
                return Ok(contents);
            }
            contents.with_note(format!(
                "stored in full: there are marks of {}, and more than one of them may be in use",
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
        Trust::Doubted(reason) => {
            contents.with_note(format!("stored in full, including unused blocks: {reason}"))
        }
        Trust::Sole | Trust::Kept => contents,
    }
}
