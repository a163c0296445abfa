//! Boot records: the sector that begins old PC disks, and the chains of extended partitions.
//!
//! A record has boot code, a disk signature at 440, four 16-byte entries at 446, and 0x55 0xaa at 510. An entry has
//! a status (0x80 active, 0 not), a type at 4, and the first sector and the number of sectors at 8 and 12, both 32
//! bits. An entry counts if its length is not zero, whatever its type, as all systems agree. This file only parses
//! records; what they mean for a disk is decided by the reader of partition tables.

use crate::fields::{has, le32};

/// The type of an entry that announces a GPT.
pub const TYPE_PROTECTIVE: u8 = 0xee;

/// An entry as stored, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 0x80 if it is active, 0 if not.
    pub status: u8,
    /// The type of the partition.
    pub kind: u8,
    /// The first sector.
    pub start: u32,
    /// The number of sectors.
    pub sectors: u32,
}

impl Entry {
    /// Whether it is an extended partition.
    pub fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85) && self.is_used()
    }

    /// Whether it has a length.
    pub fn is_used(self) -> bool {
        self.sectors > 0
    }

    fn is_blank(self) -> bool {
        self == Self { status: 0, kind: 0, start: 0, sectors: 0 }
    }
}

/// A sector that ends like a boot record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its four entries.
    pub entries: [Entry; 4],
    /// The number that identifies the disk.
    pub signature: u32,
}

impl Record {
    /// The record in the first 512 bytes of a sector, if it ends in 0x55 0xaa. A filesystem's boot sector
    /// does, too; see [`Self::is_table`].
    pub fn parse(sector: &[u8]) -> Option<Self> {
        if !has(sector, 510, &[0x55, 0xaa]) {
            return None;
        }
        let entries = [446, 462, 478, 494].map(|offset| Entry {
            status: sector[offset],
            kind: sector[offset + 4],
            start: le32(sector, offset + 8),
            sectors: le32(sector, offset + 12),
        });
        Some(Self { entries, signature: le32(sector, 440) })
    }

    /// Whether its entries may be a table: each is marked either active or not.
    pub fn is_table(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.status, 0 | 0x80))
    }

    /// Whether any entry has a length.
    pub fn is_used(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_used())
    }

    /// Whether it announces a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == TYPE_PROTECTIVE)
    }
}

/// Whether a sector may contain a partition table inside a partition: every entry is blank, or lies on a disk
/// of `disk_sectors` sectors. The status of entries is not checked.
pub fn could_be_table(sector: &[u8], disk_sectors: u64) -> bool {
    let Some(record) = Record::parse(sector) else { return false };
    let lies_on_disk = |entry: &Entry| {
        entry.kind != 0
            && entry.start > 0
            && entry.is_used()
            && u64::from(entry.start) + u64::from(entry.sectors) <= disk_sectors
    };
    record.is_used() && record.entries.iter().all(|entry| entry.is_blank() || lies_on_disk(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_inside_partitions_are_recognized() {
        let mut disk = vec![0; 512];
        assert!(!could_be_table(&disk, 1000));
        disk[446 + 4] = 0x81;
        disk[446 + 8] = 10;
        disk[446 + 12] = 100;
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(could_be_table(&disk, 1000));
        assert!(!could_be_table(&disk, 100), "it does not lie on the disk");
        disk[446 + 48 + 4] = 0x33;
        assert!(!could_be_table(&disk, 1000), "boot code");
    }
}
