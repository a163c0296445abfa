//! Boot code at the start of a filesystem: bytes that belong to no file and to no metadata.
//!
//! Mounting a filesystem changes its metadata, but never these bytes, so a difference means that somebody changed them.

use platter_filesystem::fields::le16;
use platter_image::{DiskRead, Extent, Extents, IoContext, Result};

use super::table::Pair;

/// Bytes read at once.
const READ_LENGTH: u64 = 1 << 20;
/// The part of a boot sector that has the parameters of every kind.
const PARAMETERS_LENGTH: u64 = 512;

/// The parameters of FAT end here in a boot sector, without and with those of FAT32. The first bytes are a jump.
const FAT_PARAMETERS: (u64, u64) = (3, 62);
const FAT32_PARAMETERS: (u64, u64) = (3, 90);
/// In the sector of FAT32 that counts free clusters: from its second signature to its end.
const FAT32_COUNTS: (u64, u64) = (484, 512);
/// The parameters of exFAT, with the flags of the volume and the share in use.
const EXFAT_PARAMETERS: (u64, u64) = (3, 120);
/// Sectors with boot code in a boot region of exFAT, and the sector where its copy begins.
const EXFAT_BOOT_SECTORS: u64 = 9;
const EXFAT_COPY: u64 = 12;

/// The ranges of boot code in a filesystem of this kind with this boot sector; those of XFS begin with metadata.
fn ranges(filesystem: &str, boot_sector: &[u8]) -> Extents {
    let between = |(start, end)| Extent::between(start, end);
    match filesystem {
        // Both sectors before the superblock.
        "ext2" | "ext3" | "ext4" => [(0, 1024)].map(between).into_iter().collect(),
        // Jump and name, then what follows the parameters, in the 16 sectors of the file $Boot.
        "ntfs" => [(0, 11), (84, 8192)].map(between).into_iter().collect(),
        "vfat" => ranges_of_fat(boot_sector),
        "exfat" => {
            let sector = 1_u64.checked_shl(boot_sector[108].into()).unwrap_or(0).min(4096);
            let regions = [0, EXFAT_COPY * sector];
            let boot = regions.map(|at| Extent::new(at, EXFAT_BOOT_SECTORS * sector));
            let parameters = regions.map(|at| shifted(EXFAT_PARAMETERS, at));
            difference(boot.to_vec(), parameters.to_vec())
        }
        // Everything before the first superblock.
        "btrfs" => [(0, 64 << 10)].map(between).into_iter().collect(),
        _ => Extents::new(),
    }
}

/// All reserved sectors, without parameters and the counts of free clusters.
fn ranges_of_fat(boot_sector: &[u8]) -> Extents {
    let field = |offset| u64::from(le16(boot_sector, offset));
    let (sector, reserved) = (field(11), field(14));
    let all = vec![Extent::new(0, reserved * sector)];
    let is_fat32 = field(22) == 0;
    if !is_fat32 {
        return difference(all, vec![Extent::between(FAT_PARAMETERS.0, FAT_PARAMETERS.1)]);
    }
    let (counts, copy) = (field(48), field(50));
    // Both numbers are all ones if there is no such sector, which is then beyond the reserved ones.
    let parameters = [0, copy].map(|at| shifted(FAT32_PARAMETERS, at * sector));
    let counts = [counts, copy + counts].map(|at| shifted(FAT32_COUNTS, at * sector));
    difference(all, [parameters, counts].concat())
}

fn shifted((start, end): (u64, u64), by: u64) -> Extent {
    Extent::between(start + by, end + by)
}

fn difference(from: Vec<Extent>, what: Vec<Extent>) -> Extents {
    Extents::from_unsorted(from).subtract(&Extents::from_unsorted(what))
}

/// Whether the boot code of a filesystem of this kind differs. `changed` has the ranges in which the disks differ.
///
/// # Errors
/// Those of reading the disks.
pub(super) fn differs(
    filesystem: &str,
    pair: &Pair,
    disks: [&dyn DiskRead; 2],
    changed: &Extents,
) -> Result<bool> {
    let mut boot_sectors = [(); 2].map(|()| vec![0; PARAMETERS_LENGTH as usize]);
    if matches!(filesystem, "vfat" | "exfat") {
        read((pair, disks), 0, &mut boot_sectors)?;
    }
    let ranges = boot_sectors.map(|sector| ranges(filesystem, &sector));
    if ranges[0] != ranges[1] {
        return Ok(true);
    }
    let end = pair.a.length.min(pair.b.length);
    for range in ranges[0].clip(Extent::new(0, end)) {
        for start in (range.offset..range.end()).step_by(READ_LENGTH as usize) {
            let part = Extent::between(start, range.end().min(start + READ_LENGTH));
            let place = Extent::new(pair.a.offset + part.offset, part.length);
            // The same blocks are equal, also where they cannot be read.
            if pair.is_in_place() && changed.clip(place).next().is_none() {
                continue;
            }
            let mut bytes = [(); 2].map(|()| vec![0; part.length as usize]);
            read((pair, disks), part.offset, &mut bytes)?;
            if bytes[0] != bytes[1] {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Fills a buffer from each of the partitions, at `offset` in them.
fn read((pair, disks): (&Pair, [&dyn DiskRead; 2]), offset: u64, bytes: &mut [Vec<u8>; 2]) -> Result<()> {
    for ((bytes, disk), start) in bytes.iter_mut().zip(disks).zip([pair.a.offset, pair.b.offset]) {
        let place = start + offset;
        disk.read_exact_at(bytes, place).context(|| format!("reading the boot code at offset {place}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(fields: &[(usize, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; PARAMETERS_LENGTH as usize];
        for (offset, value) in fields {
            bytes[*offset..*offset + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn parameters_and_counts_are_no_boot_code() {
        let list = |kind, sector: &[u8]| -> Vec<(u64, u64)> {
            ranges(kind, sector).iter().map(|range| (range.offset, range.end())).collect()
        };
        let fat16 = sector(&[(11, 512), (14, 4), (22, 100)]);
        assert_eq!(list("vfat", &fat16), [(0, 3), (62, 2048)]);
        let fat32 = sector(&[(11, 512), (14, 32), (48, 1), (50, 6)]);
        assert_eq!(list("vfat", &fat32), [(0, 3), (90, 996), (1024, 3075), (3162, 4068), (4096, 16384)]);
        let without_copy = sector(&[(11, 4096), (14, 2), (48, 0xffff), (50, 0xffff)]);
        assert_eq!(list("vfat", &without_copy), [(0, 3), (90, 8192)]);
        let exfat = sector(&[(108, 9)]);
        assert_eq!(list("exfat", &exfat), [(0, 3), (120, 4608), (6144, 6147), (6264, 10752)]);
        for kind in ["vfat", "exfat", "ntfs", "ext4", "btrfs", "xfs"] {
            ranges(kind, &[0; 512]);
            ranges(kind, &[0xff; 512]);
        }
    }
}
