//! The master boot record and the chain of extended boot records: the table of old PCs.
//!
//! Sector 0: boot code, a disk signature at 440, four entries of 16 bytes at 446, 0x55 0xaa at 510. An entry has a
//! status (0x80 active, 0 not), a type at 4, and first sector and number of sectors at 8 and 12, both 32 bits.
//! An extended partition starts with such a record of its own (EBR): its first entry is a logical partition counted
//! from that record, its second the next record counted from the start of the extended partition.

use platter_image::{DiskRead, Extent, Extents, Result};

use super::{Partition, PartitionTable, TableKind, read_sectors};
use crate::fields::{has, le32};

/// Longer chains are cut here: no system numbers so many partitions.
const LOGICAL_PARTITIONS_MAX: usize = 128;

const TYPE_PROTECTIVE: u8 = 0xee;

/// An entry as it stands, in sectors.
#[derive(Clone, Copy, Debug)]
struct Entry {
    status: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85) && self.sectors > 0
    }

    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors > 0
    }
}

/// A sector that ends like a boot record.
#[derive(Clone, Debug)]
pub struct Record {
    entries: [Entry; 4],
    signature: u32,
}

impl Record {
    /// The record in the first 512 bytes of a sector; `None` if its entries cannot be a table (the boot sector of a
    /// filesystem ends in the same two bytes).
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
        let possible = entries.iter().all(|entry| matches!(entry.status, 0 | 0x80));
        possible.then_some(Self { entries, signature: le32(sector, 440) })
    }

    /// Whether it announces a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == TYPE_PROTECTIVE)
    }

    /// What to say if it has partitions of its own beside the announcement.
    pub fn hybrid_note(&self) -> Option<String> {
        let others =
            self.entries.iter().filter(|entry| entry.is_used() && entry.kind != TYPE_PROTECTIVE).count();
        (others > 0)
            .then(|| format!("a hybrid MBR: {others} of its entries stand beside the GPT, which counts"))
    }
}

fn partition(number: u32, entry: Entry, first_sector: u64, sector_size: u32) -> Partition {
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
    }
}

/// The partitions of a record and of the chain behind it; a table of no kind if it has none.
pub(super) fn read(disk: &dyn DiskRead, record: &Record, sector_size: u32) -> Result<PartitionTable> {
    let mut table = PartitionTable::default();
    if !record.entries.iter().any(|entry| entry.is_used()) {
        return Ok(table);
    }
    table.kind = TableKind::Mbr;
    table.sector_size = Some(sector_size);
    table.disk_id = (record.signature != 0).then(|| format!("{:08x}", record.signature));
    let mut structures = vec![Extent::new(0, u64::from(sector_size))];
    for (number, entry) in (1..).zip(&record.entries).filter(|(_, entry)| entry.is_used()) {
        table.partitions.push(partition(number, *entry, u64::from(entry.start), sector_size));
    }
    let mut containers = record.entries.iter().filter(|entry| entry.is_extended());
    if let Some(container) = containers.next() {
        read_chain(disk, *container, sector_size, &mut table, &mut structures)?;
    }
    if containers.next().is_some() {
        table.notes.push("more than one extended partition: only the first is looked into".to_owned());
    }
    table.structures = Extents::from_unsorted(structures);
    Ok(table)
}

fn read_chain(
    disk: &dyn DiskRead,
    container: Entry,
    sector_size: u32,
    table: &mut PartitionTable,
    structures: &mut Vec<Extent>,
) -> Result<()> {
    let base = u64::from(container.start);
    let mut seen: Vec<u32> = Vec::new();
    let mut next = 0_u32;
    let mut number = 5;
    loop {
        if seen.contains(&next) || seen.len() == LOGICAL_PARTITIONS_MAX || next >= container.sectors {
            let reason = if seen.contains(&next) {
                "comes back to itself"
            } else if next >= container.sectors {
                "leaves the extended partition"
            } else {
                "is longer than 128 records"
            };
            table.notes.push(format!("the chain of logical partitions {reason}: it is followed up to there"));
            return Ok(());
        }
        seen.push(next);
        let offset = (base + u64::from(next)).saturating_mul(u64::from(sector_size));
        let sector = read_sectors(disk, offset, 512)?;
        let Some(record) = sector.as_deref().and_then(Record::parse) else {
            table
                .notes
                .push(format!("no extended boot record at {offset}: the chain is followed up to there"));
            return Ok(());
        };
        structures.push(Extent::new(offset, u64::from(sector_size)));
        let [logical, link, ..] = record.entries;
        if logical.is_used() && !logical.is_extended() {
            let first_sector = base + u64::from(next) + u64::from(logical.start);
            table.partitions.push(partition(number, logical, first_sector, sector_size));
            number += 1;
        }
        if !link.is_extended() {
            return Ok(());
        }
        next = link.start;
    }
}

fn type_name(kind: u8) -> &'static str {
    match kind {
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x05 | 0x0f | 0x85 => "extended",
        0x07 => "NTFS or exFAT",
        0x27 => "Windows recovery",
        0x42 => "Windows dynamic disk",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        0xa5 => "FreeBSD",
        0xa6 => "OpenBSD",
        0xa9 => "NetBSD",
        0xee => "GPT protective",
        0xef => "EFI system",
        0xfd => "Linux RAID",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(disk: &mut [u8], sector: usize, slot: usize, kind: u8, start: u32, sectors: u32) {
        let at = sector * 512 + 446 + slot * 16;
        disk[at + 4] = kind;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        disk[sector * 512 + 510..sector * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn numbers(table: &PartitionTable) -> Vec<(u32, u64, u64, bool)> {
        let row = |p: &Partition| (p.number, p.extent.offset / 512, p.extent.length / 512, p.trusted);
        table.partitions.iter().map(row).collect()
    }

    #[test]
    fn primary_and_logical() {
        let mut disk = vec![0; 4000 * 512];
        put(&mut disk, 0, 0, 0x83, 100, 200);
        disk[446] = 0x80;
        put(&mut disk, 0, 1, 0x0f, 1000, 3000);
        put(&mut disk, 1000, 0, 0x07, 10, 100);
        put(&mut disk, 1000, 1, 0x05, 500, 300);
        put(&mut disk, 1500, 0, 0x82, 20, 50);
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!(table.kind, TableKind::Mbr);
        let expected =
            [(1, 100, 200, true), (2, 1000, 3000, false), (5, 1010, 100, true), (6, 1520, 50, true)];
        assert_eq!(numbers(&table), expected);
        assert!(table.partitions[0].bootable && table.partitions[1].container);
        assert_eq!(table.structures.total(), 3 * 512);
        assert_eq!(table.notes, Vec::<String>::new());
    }

    #[test]
    fn chains_that_do_not_end() {
        let mut disk = vec![0; 4000 * 512];
        put(&mut disk, 0, 0, 0x05, 1000, 3000);
        put(&mut disk, 1000, 0, 0x83, 1, 10);
        put(&mut disk, 1000, 1, 0x05, 500, 300);
        put(&mut disk, 1500, 0, 0x83, 1, 10);
        for (link, word) in
            [(0, "itself"), (500, "itself"), (5000, "leaves"), (2000, "no extended boot record")]
        {
            put(&mut disk, 1500, 1, 0x05, link, 300);
            let table = PartitionTable::read(&disk).unwrap();
            assert_eq!(table.partitions.len(), 3);
            assert!(table.notes[0].contains(word), "{:?}", table.notes);
        }
        for record in 0..200 {
            put(&mut disk, 1000 + record * 3, 0, 0x83, 1, 1);
            put(&mut disk, 1000 + record * 3, 1, 0x05, record as u32 * 3 + 3, 3);
        }
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!(table.partitions.len(), 1 + LOGICAL_PARTITIONS_MAX);
        assert!(table.notes[0].contains("128"), "{:?}", table.notes);
    }

    #[test]
    fn what_cannot_be_is_not_looked_into() {
        let mut disk = vec![0; 1000 * 512];
        put(&mut disk, 0, 0, 0x83, 10, 100);
        put(&mut disk, 0, 1, 0x83, 109, 100);
        put(&mut disk, 0, 2, 0x83, 900, 101);
        put(&mut disk, 0, 3, 0x83, 300, 100);
        let table = PartitionTable::read(&disk).unwrap();
        let trusted: Vec<bool> = table.partitions.iter().map(|partition| partition.trusted).collect();
        assert_eq!(trusted, [false, false, false, true]);
        assert_eq!(table.notes.len(), 2, "{:?}", table.notes);
        put(&mut disk, 0, 0, 0x83, 0, 5);
        assert!(!PartitionTable::read(&disk).unwrap().partitions[0].trusted, "it covers the table");
    }

    #[test]
    fn sectors_of_4096_bytes() {
        let mut disk = vec![0; 1000 * 4096];
        put(&mut disk, 0, 0, 0x05, 100, 900);
        put(&mut disk, 800, 0, 0x83, 5, 10);
        let table = PartitionTable::read_with_sectors(&disk, 4096).unwrap();
        assert_eq!(table.partitions[1].extent, Extent::new(105 * 4096, 10 * 4096));
    }

    #[test]
    fn boot_sectors_of_filesystems_are_no_tables() {
        let mut disk = vec![0; 1000 * 512];
        disk[446..510].fill(0x4e);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(PartitionTable::read(&disk).unwrap(), PartitionTable::default());
        disk[446..510].fill(0);
        assert_eq!(PartitionTable::read(&disk).unwrap(), PartitionTable::default());
    }
}
