//! Opens the files of a filesystem of any kind that is understood.

use platter_image::{DiskRead, Extent, Result};

use crate::files::FileTree;
use crate::probe::Found;
use crate::{btrfs, exfat, ext, fat, ntfs, xfs};

/// The filesystems whose files can be read, for messages.
pub const READABLE: &str = "ext2, ext3, ext4, XFS, btrfs, NTFS, FAT and exFAT";

type Open = for<'d> fn(&'d dyn DiskRead, Extent) -> Result<Box<dyn FileTree + 'd>>;

/// How to open each, by its name as in [`Found`].
const KINDS: [(&str, Open); 6] = [
    ("ext", |disk, extent| Ok(Box::new(ext::Files::open(disk, extent)?))),
    ("xfs", |disk, extent| Ok(Box::new(xfs::Files::open(disk, extent)?))),
    ("btrfs", |disk, extent| Ok(Box::new(btrfs::Files::open(disk, extent)?))),
    ("ntfs", |disk, extent| Ok(Box::new(ntfs::Files::open(disk, extent)?))),
    ("vfat", |disk, extent| Ok(Box::new(fat::Files::open(disk, extent)?))),
    ("exfat", |disk, extent| Ok(Box::new(exfat::Files::open(disk, extent)?))),
];

/// Whether the files of what was found at the start of an extent can be read, if it is intact.
pub fn is_readable(found: &Found) -> bool {
    matches!(found, Found::Filesystem(name) if KINDS.iter().any(|(kind, _)| kind == name))
}

/// The name of what was found in an extent, for people: the kind of ext if its files are open. Empty if nothing is known.
pub fn filesystem_name(found: &Found, files: Option<&dyn FileTree>) -> String {
    match (files, found) {
        (Some(files), _) => files.filesystem().to_owned(),
        (None, Found::Swap(_)) => "swap".to_owned(),
        (None, Found::Filesystem(name)) => (*name).to_owned(),
        (None, Found::Ambiguous(names)) => names.join(" or "),
        (None, Found::Nothing) => String::new(),
    }
}

/// Opens the files of the filesystem that was found at the start of `extent`; `None` if files of this kind cannot be read.
///
/// # Errors
/// `Corrupt` if it cannot be trusted; `Refused` if it must be recovered first, because its newest files are then only in its log;
/// errors of reading the disk.
pub fn open_files<'d>(
    found: &Found,
    disk: &'d dyn DiskRead,
    extent: Extent,
) -> Option<Result<Box<dyn FileTree + 'd>>> {
    let Found::Filesystem(name) = found else { return None };
    let (_, open) = KINDS.iter().find(|(kind, _)| kind == name)?;
    Some(open(disk, extent))
}
