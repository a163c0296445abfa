//! Examines an extent with the reader for the filesystem that was found there.

use platter_image::{DiskRead, Extent, Result};

use crate::reader;
use crate::{Contents, Found, Owners, btrfs, ext, swap, xfs};

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

/// Examines an extent with one reader.
type Read = for<'d> fn(&'d dyn DiskRead, Extent, bool) -> Result<Contents>;

/// The readers, by the name of the mark that they belong to.
const READERS: &[(&str, Read)] = &[
    ("ext", |disk, extent, force| reader::read::<ext::Ext<'_>>(disk, extent, force)),
    ("btrfs", |disk, extent, force| reader::read::<btrfs::Btrfs<'_>>(disk, extent, force)),
    ("xfs", |disk, extent, force| reader::read::<xfs::Xfs<'_>>(disk, extent, force)),
];

fn reader(name: &str) -> Option<Read> {
    READERS.iter().find(|(known, _)| *known == name).map(|(_, read)| *read)
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
        (Found::Ambiguous(names), _) => {
            let contents = Contents::whole("", extent);
            // Other filesystems are kept in full anyway.
            if !names.iter().any(|name| *name == "swap" || reader(name).is_some()) {
                return Ok(contents);
            }
            contents.with_note(format!(
                "stored in full: there are marks of {}, and more than one of them may be in use",
                names.join(" and ")
            ))
        }
        (Found::Swap(header), Trust::Sole) => swap::examine(&header, extent),
        (Found::Swap(_), _) => kept("swap", extent, trust),
        (Found::Filesystem(name), trust) => match (reader(name), trust) {
            (None, _) => Contents::whole(name, extent),
            (Some(read), Trust::Sole) => read(disk, extent, force)?,
            (Some(_), _) => kept(name, extent, trust),
        },
    })
}

fn kept(name: &str, extent: Extent, trust: Trust<'_>) -> Contents {
    let contents = Contents::whole(name, extent);
    match trust {
        Trust::Doubted(reason) => {
            contents.with_note(format!("stored in full, including unused blocks: {reason}"))
        }
        Trust::Sole | Trust::Kept => contents,
    }
}
