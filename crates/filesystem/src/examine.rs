//! Examines an extent with the reader for the filesystem that was found there.

use platter_image::{DiskRead, Error, Extent, Result};

use crate::reader::{self, ExamineOptions, Reader};
use crate::{Contents, Found, Owners, btrfs, exfat, ext, fat, ntfs, swap, ufs, volumes, xfs};

/// Whether the surroundings of an extent allow its filesystem to drop anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Yes.
    Sole,
    /// No; the reason is noted with the extent.
    Doubted(&'a str),
    /// No; the reason is noted elsewhere.
    Kept,
    /// Yes, if it is the filesystem with this name: the user says so, whatever else is announced there.
    Named(&'a str),
}

/// Names that can be said of a filesystem ([`Trust::Named`]).
pub fn names() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(name, _)| *name).chain(["swap"])
}

/// Examines an extent with one reader. The last number says how many volumes the extent is inside of.
type Read = for<'d> fn(&'d dyn DiskRead, Extent, ExamineOptions, u32) -> Result<Contents>;

/// The readers, by the name of the mark that they belong to.
const READERS: &[(&str, Read)] = &[
    ("ext", |disk, extent, options, _| reader::read::<ext::Ext<'_>>(disk, extent, options)),
    ("btrfs", |disk, extent, options, _| reader::read::<btrfs::Btrfs<'_>>(disk, extent, options)),
    ("xfs", |disk, extent, options, _| reader::read::<xfs::Xfs<'_>>(disk, extent, options)),
    ("vfat", |disk, extent, options, _| reader::read::<fat::Fat<'_>>(disk, extent, options)),
    ("ntfs", |disk, extent, options, _| reader::read::<ntfs::Ntfs<'_>>(disk, extent, options)),
    ("exfat", |disk, extent, options, _| reader::read::<exfat::ExFat<'_>>(disk, extent, options)),
    ("ufs", |disk, extent, options, _| reader::read::<ufs::Ufs<'_>>(disk, extent, options)),
    (volumes::PHYSICAL_VOLUME, volumes::examine_physical),
    (volumes::RAID_MEMBER, volumes::examine_member),
];

/// Bytes that the filesystem of that name spans at the start of `extent`, which may be longer; `None` if it cannot be read, or does not fill
/// the bytes in front of its end, as NTFS, which has a copy of its boot sector behind it.
pub fn filesystem_length(disk: &dyn DiskRead, extent: Extent, name: &str) -> Option<u64> {
    fn length<'d, R: Reader<'d>>(disk: &'d dyn DiskRead, extent: Extent) -> Option<u64> {
        R::open(disk, extent).ok().map(|filesystem| filesystem.identity().length)
    }
    match name {
        "ext" => length::<ext::Ext<'_>>(disk, extent),
        "btrfs" => length::<btrfs::Btrfs<'_>>(disk, extent),
        "xfs" => length::<xfs::Xfs<'_>>(disk, extent),
        _ => None,
    }
}

fn reader(name: &str) -> Option<Read> {
    READERS.iter().find(|(known, _)| *known == name).map(|(_, read)| *read)
}

/// Examines `extent`, whose owners were searched for.
///
/// # Errors
/// `Refused` if its filesystem needs recovery, unless it is forced (then all of it is kept); errors of
/// reading the disk.
pub fn examine(
    disk: &dyn DiskRead,
    extent: Extent,
    owners: &Owners,
    trust: Trust<'_>,
    options: ExamineOptions,
) -> Result<Contents> {
    examine_inside(disk, extent, owners, trust, options, 0)
}

/// Examines `extent`, which is inside of so many volumes.
///
/// # Errors
/// Those of [`examine()`].
pub(crate) fn examine_inside(
    disk: &dyn DiskRead,
    extent: Extent,
    owners: &Owners,
    trust: Trust<'_>,
    options: ExamineOptions,
    depth: u32,
) -> Result<Contents> {
    if let Trust::Named(name) = trust {
        return examine_named(disk, extent, owners, name, options);
    }
    let found = match owners.found() {
        Found::Ambiguous(_) if volumes::is_member_with_contents(disk, extent, owners)? => {
            Found::Filesystem(volumes::RAID_MEMBER)
        }
        found => found,
    };
    Ok(match (found, trust) {
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
            (Some(read), Trust::Sole) => read(disk, extent, options, depth)?,
            (Some(_), _) => kept(name, extent, trust),
        },
    })
}

/// Examines `extent` with the reader that the user named, and with no other.
fn examine_named(
    disk: &dyn DiskRead,
    extent: Extent,
    owners: &Owners,
    name: &str,
    options: ExamineOptions,
) -> Result<Contents> {
    let contents = match (reader(name), owners.swap()) {
        (Some(read), _) if owners.has(name) => read(disk, extent, options, 0)?,
        (None, Some(header)) if name == "swap" => swap::examine(header, extent),
        _ => {
            let found: Vec<&str> = owners.list().iter().map(|owner| owner.name).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            return Err(Error::refused(format!(
                "there is no mark of {name} at its start; marks found: {found}"
            )));
        }
    };
    let others = owners.list().iter().any(|owner| owner.name != name);
    Ok(match others {
        true => contents.with_note(format!("read as {name}, although there are other marks, as requested")),
        false => contents,
    })
}

fn kept(name: &str, extent: Extent, trust: Trust<'_>) -> Contents {
    let contents = Contents::whole(name, extent);
    match trust {
        Trust::Doubted(reason) => {
            contents.with_note(format!("stored in full, including unused blocks: {reason}"))
        }
        Trust::Sole | Trust::Kept | Trust::Named(_) => contents,
    }
}
