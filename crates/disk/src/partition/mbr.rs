//! The master boot record (MBR) and the chain of extended boot records: the partition table of old PCs.
//!
//! Sector 0: boot code, a disk signature at 440, four 16-byte entries at 446, 0x55 0xaa at 510. An entry has
//! a status (0x80 active, 0 not), a type at 4, and the first sector and the number of sectors at 8 and 12,
//! both 32 bits. An entry counts if its length is not zero, whatever its type, as all systems agree. Extended
//! partitions: [`super::ebr`].

use platter_image::{DiskRead, Extent, Result};

use super::{Partition, PartitionTable, TableKind, container_doubt, ebr};
use crate::fields::{has, le32};

const TYPE_PROTECTIVE: u8 = 0xee;

/// An entry as stored, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    status: u8,
    pub(super) kind: u8,
    pub(super) start: u32,
    pub(super) sectors: u32,
}

impl Entry {
    pub(super) fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85) && self.is_used()
    }

    pub(super) fn is_used(self) -> bool {
        self.sectors > 0
    }

    fn is_blank(self) -> bool {
        self == Self { status: 0, kind: 0, start: 0, sectors: 0 }
    }
}

/// A sector that ends like a boot record.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) entries: [Entry; 4],
    signature: u32,
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

    /// Adds to a GPT the ranges of this record's entries that are not partitions of the GPT.
    pub(super) fn add_hybrid(&self, table: &mut PartitionTable) {
        let others = self.entries.iter().filter(|entry| entry.is_used() && entry.kind != TYPE_PROTECTIVE);
        let sector_size = table.sector_size.unwrap_or(512);
        let extents: Vec<Extent> =
            others.map(|entry| partition(0, *entry, u64::from(entry.start), sector_size).extent).collect();
        if extents.is_empty() {
            return;
        }
        table.notes.push(format!(
            "the MBR is a hybrid: {} of its entries are ignored in favour of the GPT",
            extents.len()
        ));
        let is_known = |extent: &Extent| table.partitions.iter().any(|known| known.extent == *extent);
        table.announced = extents.into_iter().filter(|extent| !is_known(extent)).collect();
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

pub(super) fn partition(number: u32, entry: Entry, first_sector: u64, sector_size: u32) -> Partition {
    let sector_size = u64::from(sector_size);
    Partition {
        number,
        extent: Extent::new(
            first_sector.saturating_mul(sector_size),
            u64::from(entry.sectors).saturating_mul(sector_size),
        ),
        type_id: format!("0x{:02x}", entry.kind),
        type_name: type_name(entry.kind),
        name: None,
        uuid: None,
        bootable: entry.status == 0x80,
        container: entry.is_extended(),
        trusted: false,
        doubt: container_doubt(is_container(entry.kind), type_name(entry.kind)),
    }
}

/// The partitions of a record and of its chains; a table of kind `None` if there are none.
pub(super) fn read(disk: &dyn DiskRead, record: &Record, sector_size: u32) -> Result<PartitionTable> {
    let mut table = PartitionTable::default();
    if !record.is_used() {
        return Ok(table);
    }
    table.kind = TableKind::Mbr;
    table.sector_size = Some(sector_size);
    table.disk_id = (record.signature != 0).then(|| format!("{:08x}", record.signature));
    table.structures = [Extent::new(0, u64::from(sector_size))].into_iter().collect();
    for (number, entry) in (1..).zip(&record.entries).filter(|(_, entry)| entry.is_used()) {
        table.partitions.push(partition(number, *entry, u64::from(entry.start), sector_size));
    }
    let containers = record.entries.iter().filter(|entry| entry.is_extended());
    ebr::read(disk, &containers.copied().collect::<Vec<_>>(), sector_size, &mut table)?;
    Ok(table)
}

/// Types whose partitions contain volumes, or a table of their own that is not read here.
fn is_container(kind: u8) -> bool {
    matches!(
        kind,
        0x42 | 0x63
            | 0x80
            | 0x81
            | 0x8e
            | 0xa5
            | 0xa6
            | 0xa8
            | 0xa9
            | 0xbf
            | 0xe8
            | TYPE_PROTECTIVE
            | 0xfb
            | 0xfd
    )
}

fn type_name(kind: u8) -> &'static str {
    match kind {
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x05 | 0x0f | 0x85 => "extended",
        0x07 => "NTFS or exFAT",
        0x27 => "Windows recovery",
        0x42 => "Windows dynamic disk",
        0x63 => "UnixWare",
        0x80 | 0x81 => "Minix",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        0xa5 => "FreeBSD",
        0xa6 => "OpenBSD",
        0xa8 => "Darwin",
        0xa9 => "NetBSD",
        0xbf => "Solaris",
        0xe8 => "LUKS",
        0xee => "GPT protective",
        0xef => "EFI system",
        0xfb => "VMware VMFS",
        0xfd => "Linux RAID",
        _ => "unknown",
    }
}

#[cfg(test)]
#[path = "mbr_tests.rs"]
mod tests;
