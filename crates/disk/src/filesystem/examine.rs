//! Looks into an extent with the reader for the filesystem that was found there.

use platter_image::{DiskRead, Extent, Result};

use super::{Contents, Found, Owners, ext, swap};

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
