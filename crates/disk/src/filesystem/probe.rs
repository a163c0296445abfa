//! What kind of filesystem an extent holds, by the magic numbers of superblocks.
//!
//! Only ext and swap are understood; the others are told apart so that a user sees their names, and so that a
//! leftover superblock beside a living one is noticed.

use platter_image::{DiskRead, Extent, IoContext, Result};

use super::swap;
use crate::fields::has;

/// So much from the start of an extent is looked at: the btrfs superblock is the farthest.
const PROBE_LENGTH: u64 = 68 << 10;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// ext2, ext3 or ext4.
    Ext,
    /// A swap area.
    Swap(swap::Header),
    /// A filesystem or container that is known by name only.
    Other(&'static str),
    /// More than one of them: one of the superblocks is a leftover, and nobody can tell which.
    Ambiguous(Vec<&'static str>),
    /// No known superblock.
    Nothing,
}

/// A name, and magics with their offsets: one of the places is enough.
type Magic = (&'static str, &'static [(usize, &'static [u8])]);

const MAGICS: &[Magic] = &[
    ("xfs", &[(0, b"XFSB")]),
    ("btrfs", &[(0x10040, b"_BHRfS_M")]),
    ("ntfs", &[(3, b"NTFS    ")]),
    ("exfat", &[(3, b"EXFAT   ")]),
    ("BitLocker", &[(3, b"-FVE-FS-")]),
    ("vfat", &[(82, b"FAT32   "), (54, b"FAT12   "), (54, b"FAT16   "), (54, b"FAT     ")]),
    ("LVM2_member", &[(24, b"LVM2 001"), (536, b"LVM2 001"), (1048, b"LVM2 001"), (1560, b"LVM2 001")]),
    ("crypto_LUKS", &[(0, b"LUKS\xba\xbe")]),
    ("linux_raid_member", &[(0, b"\xfc\x4e\x2b\xa9"), (4096, b"\xfc\x4e\x2b\xa9")]),
    ("f2fs", &[(1024, b"\x10\x20\xf5\xf2")]),
    ("erofs", &[(1024, b"\xe2\xe1\xf5\xe0")]),
    ("squashfs", &[(0, b"hsqs")]),
    ("iso9660", &[(32769, b"CD001")]),
    ("jfs", &[(32768, b"JFS1")]),
    ("reiserfs", &[(65588, b"ReIsEr")]),
    ("ufs", &[(9564, b"\x54\x19\x01\x00"), (66908, b"\x19\x01\x54\x19")]),
    ("apfs", &[(32, b"NXSB")]),
    ("bcache", &[(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")]),
];

/// What kind of filesystem `extent` of the disk holds.
///
/// # Errors
/// Only what reading the disk says.
pub fn probe(disk: &dyn DiskRead, extent: Extent) -> Result<Found> {
    let mut start = vec![0; extent.length.min(PROBE_LENGTH) as usize];
    disk.read_exact_at(&mut start, extent.offset)
        .context(|| format!("looking for a filesystem at {}", extent.offset))?;
    let is_there = |(_, places): &&Magic| places.iter().any(|(offset, magic)| has(&start, *offset, magic));
    let mut names: Vec<&'static str> = MAGICS.iter().filter(is_there).map(|(name, _)| *name).collect();
    let swap = swap::Header::find(&start);
    let is_ext = has(&start, 1024 + 0x38, &[0x53, 0xef]);
    names.extend(is_ext.then_some("ext"));
    names.extend(swap.is_some().then_some("swap"));
    Ok(match (names.as_slice(), swap) {
        ([], _) => Found::Nothing,
        ([_], Some(header)) => Found::Swap(header),
        (["ext"], None) => Found::Ext,
        ([name], None) => Found::Other(name),
        _ => Found::Ambiguous(names),
    })
}
