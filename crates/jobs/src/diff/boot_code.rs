//! Boot code at the start of a filesystem: bytes that belong to no file and to no metadata.
//!
//! Mounting a filesystem changes its metadata, but never these bytes, so a difference means that somebody changed them.

use platter_image::{DiskRead, IoContext, Result};

use super::table::Pair;

/// The bytes of a boot sector behind the parameters of NTFS and FAT, up to its signature.
const SIGNATURE: u64 = 510;

/// The ranges of boot code in a filesystem of this kind; those of XFS begin with metadata.
fn ranges(filesystem: &str) -> &'static [(u64, u64)] {
    match filesystem {
        // Both sectors before the superblock.
        "ext2" | "ext3" | "ext4" => &[(0, 1024)],
        // Jump and name, then what follows the parameters, in the 16 sectors of the file $Boot.
        "ntfs" => &[(0, 11), (84, 8192)],
        // Behind the parameters of FAT32; those of FAT12 and FAT16 end earlier. The next sector counts free clusters.
        "vfat" => &[(0, 3), (90, SIGNATURE)],
        // Behind the flags of the volume and the share in use.
        "exfat" => &[(0, 3), (120, SIGNATURE)],
        // Everything before the first superblock.
        "btrfs" => &[(0, 64 << 10)],
        _ => &[],
    }
}

/// Whether the boot code of a filesystem of this kind differs.
///
/// # Errors
/// Those of reading the disks.
pub(super) fn differs(filesystem: &str, pair: &Pair, disks: [&dyn DiskRead; 2]) -> Result<bool> {
    for (start, end) in ranges(filesystem) {
        let end = (*end).min(pair.a.length).min(pair.b.length);
        let mut bytes = [(); 2].map(|()| vec![0; end.saturating_sub(*start) as usize]);
        for ((bytes, disk), place) in bytes.iter_mut().zip(disks).zip([pair.a.offset, pair.b.offset]) {
            disk.read_exact_at(bytes, place + start)
                .context(|| format!("reading the boot code at offset {place}"))?;
        }
        if bytes[0] != bytes[1] {
            return Ok(true);
        }
    }
    Ok(false)
}
