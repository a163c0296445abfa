//! The master boot record (MBR) and the chain of extended boot records: the partition table of old PCs.
//!
//! Records are parsed by [`platter_filesystem::boot_record`], because marks of owners include them. Extended
//! partitions: [`super::ebr`]. BSD slices: [`super::bsd`].

use platter_image::{DiskRead, Extent, Result};

use super::{Partition, PartitionTable, TableKind, bsd, container_doubt, ebr};
use platter_filesystem::boot_record::{Entry, Record, TYPE_PROTECTIVE};

/// Adds to a GPT the ranges of a record's entries that are not partitions of the GPT.
pub(super) fn add_hybrid(record: &Record, table: &mut PartitionTable) {
    let others = record.entries.iter().filter(|entry| entry.is_used() && entry.kind != TYPE_PROTECTIVE);
    let sector_size = table.sector_size.unwrap_or(512);
    let extents: Vec<Extent> =
        others.map(|entry| partition(0, *entry, u64::from(entry.start), sector_size).extent).collect();
    if extents.is_empty() {
        return;
    }
    table.is_hybrid = true;
    table.notes.push(format!(
        "the MBR is a hybrid: {} of its entries are ignored in favour of the GPT",
        extents.len()
    ));
    let is_known = |extent: &Extent| table.partitions.iter().any(|known| known.extent == *extent);
    table.announced = extents.into_iter().filter(|extent| !is_known(extent)).collect();
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
    bsd::read_slices(disk, record, &mut table)?;
    Ok(table)
}

/// Types whose partitions contain volumes that are not looked through, or a table of their own: a disklabel
/// that is read removes the doubt.
fn is_container(kind: u8) -> bool {
    matches!(
        kind,
        0x42 | 0x63 | 0x80 | 0x81 | 0xa5 | 0xa6 | 0xa8 | 0xa9 | 0xbf | 0xe8 | TYPE_PROTECTIVE | 0xfb
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
