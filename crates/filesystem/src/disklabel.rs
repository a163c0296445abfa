//! The disklabel of BSD systems: the partition table inside of a slice of an MBR, or of a whole disk without one.
//!
//! A label is in the second sector of 512 bytes. Numbers are little-endian:
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0, 132 | 4 | magic 0x82564557 |
//! | 40 | 4 | sector size |
//! | 114 | 2 | version, only OpenBSD: from 1 on, partitions have more bits |
//! | 136 | 2 | checksum: all words of 16 bits up to the last partition give zero by exclusive-or |
//! | 138 | 2 | number of partitions |
//! | 148 | 16 each | partitions: sectors 4, first sector 4, more bits of first sector 2 and of sectors 2 (OpenBSD), type 1, 3 others |
//!
//! First sectors count from the start of the disk; in FreeBSD from the start of the slice if that of partition `c` is zero. Labels of
//! other byte orders and in other places are not read. This file only parses labels; what they mean for a disk is decided by the
//! reader of partition tables. Sources: `sys/disklabel.h` of FreeBSD, NetBSD and OpenBSD, `block/partitions/msdos.c` of Linux.

use platter_image::{DiskRead, Extent, IoContext, Result};

use crate::fields::{le16, le32};

/// Where the label is in its slice, in bytes.
pub const LABEL_OFFSET: u64 = 512;
/// Length of the sector that has the label.
pub const LABEL_LENGTH: usize = 512;
const MAGIC: u32 = 0x8256_4557;
/// The most partitions of a label; systems read no more of it.
const PARTITIONS_MAX: usize = 16;
const PARTITIONS_AT: usize = 148;
const PARTITION_LENGTH: usize = 16;
/// Where the first sector of partition `c` is, which says from where the others of FreeBSD count.
const RAW_OFFSET_AT: usize = PARTITIONS_AT + 2 * PARTITION_LENGTH + 4;
const SECTOR: u64 = 512;

/// The types of partitions.
const UNUSED: u8 = 0;
/// A UFS.
pub const TYPE_UFS: u8 = 7;

/// Which system wrote a label, by the type of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelSystem {
    /// FreeBSD, and labels of whole disks.
    FreeBsd,
    /// NetBSD.
    NetBsd,
    /// OpenBSD.
    OpenBsd,
}

impl LabelSystem {
    /// The system of a slice with that type in an MBR; `None` for types of slices that have no label.
    pub fn of_slice(kind: u8) -> Option<Self> {
        match kind {
            0xa5 => Some(Self::FreeBsd),
            0xa6 => Some(Self::OpenBsd),
            0xa9 => Some(Self::NetBsd),
            _ => None,
        }
    }
}

/// A partition in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelEntry {
    /// Its letter.
    pub letter: char,
    /// Its type.
    pub kind: u8,
    /// Its range on the disk, which may lie outside of the slice.
    pub extent: Extent,
}

/// Reads the partitions in use of the label of the slice that begins at `slice`; `None` if there is no valid label.
///
/// # Errors
/// Only errors of reading the disk.
pub fn read_label(disk: &dyn DiskRead, slice: u64, system: LabelSystem) -> Result<Option<Vec<LabelEntry>>> {
    let offset = slice.saturating_add(LABEL_OFFSET);
    if offset.checked_add(LABEL_LENGTH as u64).is_none_or(|end| end > disk.length()) {
        return Ok(None);
    }
    let mut sector = [0; LABEL_LENGTH];
    disk.read_exact_at(&mut sector, offset).context(|| format!("reading a disklabel at offset {offset}"))?;
    Ok(parse(&sector, slice, system))
}

fn parse(sector: &[u8; LABEL_LENGTH], slice: u64, system: LabelSystem) -> Option<Vec<LabelEntry>> {
    let count = usize::from(le16(sector, 138));
    let is_label = le32(sector, 0) == MAGIC && le32(sector, 132) == MAGIC;
    if !is_label || count > PARTITIONS_MAX || u64::from(le32(sector, 40)) != SECTOR {
        return None;
    }
    let (summed, _) = sector.split_at(PARTITIONS_AT + count * PARTITION_LENGTH);
    if summed.chunks_exact(2).fold(0, |sum, word| sum ^ le16(word, 0)) != 0 {
        return None;
    }
    let rows = summed[PARTITIONS_AT..].chunks_exact(PARTITION_LENGTH);
    let has_high = system == LabelSystem::OpenBsd && le16(sector, 114) > 0;
    let high = |row: &[u8], at| if has_high { u64::from(le16(row, at)) << 32 } else { 0 };
    // As Linux, even if the label has fewer partitions.
    let is_relative = system == LabelSystem::FreeBsd && le32(sector, RAW_OFFSET_AT) == 0;
    let base = if is_relative { slice } else { 0 };
    let entries = ('a'..).zip(rows).map(|(letter, row)| {
        let sectors = u64::from(le32(row, 0)) | high(row, 10);
        let first = u64::from(le32(row, 4)) | high(row, 8);
        // 48 bits, so no overflow.
        let extent = Extent::new(base.saturating_add(first * SECTOR), sectors * SECTOR);
        LabelEntry { letter, kind: row[12], extent }
    });
    Some(entries.filter(|entry| entry.kind != UNUSED && entry.extent.length > 0).collect())
}

/// Whether the label at the start of `extent` says that this very extent is a partition with a UFS: then it is in the area that UFS
/// leaves to it, and is no other owner.
///
/// # Errors
/// Only errors of reading the disk.
pub(crate) fn is_of_ufs(disk: &dyn DiskRead, extent: Extent) -> Result<bool> {
    for system in [LabelSystem::FreeBsd, LabelSystem::NetBsd, LabelSystem::OpenBsd] {
        let entries = read_label(disk, extent.offset, system)?.unwrap_or_default();
        if entries.iter().any(|entry| entry.kind == TYPE_UFS && entry.extent == extent) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A label with these partitions: type, first sector, sectors.
    pub(crate) fn label(partitions: &[(u8, u32, u32)]) -> [u8; LABEL_LENGTH] {
        let mut sector = [0; LABEL_LENGTH];
        for at in [0, 132] {
            sector[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
        }
        sector[40..44].copy_from_slice(&512_u32.to_le_bytes());
        sector[138] = partitions.len() as u8;
        for (row, (kind, first, sectors)) in
            sector[PARTITIONS_AT..].chunks_exact_mut(PARTITION_LENGTH).zip(partitions)
        {
            row[..4].copy_from_slice(&sectors.to_le_bytes());
            row[4..8].copy_from_slice(&first.to_le_bytes());
            row[12] = *kind;
        }
        summed(sector)
    }

    fn summed(mut sector: [u8; LABEL_LENGTH]) -> [u8; LABEL_LENGTH] {
        sector[136..138].fill(0);
        let sum = sector.chunks_exact(2).fold(0, |sum, word| sum ^ le16(word, 0));
        sector[136..138].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    fn rows(sector: &[u8; LABEL_LENGTH], system: LabelSystem) -> Option<Vec<(char, u64, u64)>> {
        let row = |entry: LabelEntry| (entry.letter, entry.extent.offset / 512, entry.extent.length / 512);
        Some(parse(sector, 1000 * 512, system)?.into_iter().map(row).collect())
    }

    #[test]
    fn offsets_count_from_the_slice_or_the_disk() {
        let relative = label(&[(7, 0, 50), (1, 50, 30), (0, 0, 80), (7, 60, 0)]);
        assert_eq!(rows(&relative, LabelSystem::FreeBsd).unwrap(), [('a', 1000, 50), ('b', 1050, 30)]);
        assert_eq!(rows(&relative, LabelSystem::OpenBsd).unwrap(), [('a', 0, 50), ('b', 50, 30)]);
        let absolute = label(&[(7, 1000, 50), (1, 1050, 30), (0, 1000, 80)]);
        for system in [LabelSystem::FreeBsd, LabelSystem::NetBsd, LabelSystem::OpenBsd] {
            assert_eq!(rows(&absolute, system).unwrap(), [('a', 1000, 50), ('b', 1050, 30)]);
        }
    }

    #[test]
    fn only_openbsd_has_more_bits() {
        let mut sector = label(&[(7, 1000, 50)]);
        sector[PARTITIONS_AT + 8..PARTITIONS_AT + 12].copy_from_slice(&[1, 0, 2, 0]);
        for (version, system, expected) in [
            (1, LabelSystem::OpenBsd, (1000 + (1 << 32), 50 + (2 << 32))),
            (0, LabelSystem::OpenBsd, (1000, 50)),
            (1, LabelSystem::NetBsd, (1000, 50)),
        ] {
            sector[114] = version;
            assert_eq!(rows(&summed(sector), system).unwrap(), [('a', expected.0, expected.1)]);
        }
    }

    #[test]
    fn no_byte_may_change() {
        let sector = label(&[(7, 0, 50), (1, 50, 30), (0, 0, 80)]);
        for at in 0..PARTITIONS_AT + 3 * PARTITION_LENGTH {
            let mut changed = sector;
            changed[at] ^= 4;
            assert_eq!(parse(&changed, 0, LabelSystem::FreeBsd), None, "byte {at}");
        }
        let mut many = sector;
        many[138] = 17;
        assert_eq!(parse(&summed(many), 0, LabelSystem::FreeBsd), None);
        let mut large = sector;
        large[41] = 16;
        assert_eq!(parse(&summed(large), 0, LabelSystem::FreeBsd), None, "sectors of 4096 bytes");
    }
}
