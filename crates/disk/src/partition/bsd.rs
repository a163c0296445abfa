//! Disklabels: the partitions in a BSD slice of an MBR, or of a disk without an MBR.
//!
//! Labels are parsed by [`platter_filesystem::disklabel`]. Partitions have numbers as in Linux: those in slices follow the logical
//! ones. A slice is not looked through if its label is not valid, if the label names nothing in use, or if it names the whole slice
//! beside other partitions. The reason is then the partition's doubt. Partitions of a slice may begin where it begins, because UFS
//! leaves room for the label.

use platter_filesystem::boot_record::Record;
use platter_filesystem::disklabel::{LABEL_LENGTH, LABEL_OFFSET, LabelEntry, LabelSystem, read_label};
use platter_image::{DiskRead, Extent, Result};

use super::ebr::FIRST_NUMBER as FIRST_LOGICAL;
use super::{Partition, PartitionTable, TableKind};

/// The area that BSD systems reserve for boot code and label, in bytes.
const BOOT_AREA: u64 = 8 << 10;
/// The only sector size of which labels are read.
const SECTOR_SIZE: u32 = 512;
/// The start of the type of a partition in a label.
const TYPE_PREFIX: &str = "bsd:";

impl Partition {
    /// Whether it is named by a disklabel.
    pub(super) fn is_in_label(&self) -> bool {
        self.type_id.starts_with(TYPE_PREFIX)
    }
}

/// Adds the partitions of all slices to a table with primary and logical partitions.
pub(super) fn read_slices(disk: &dyn DiskRead, record: &Record, table: &mut PartitionTable) -> Result<()> {
    if table.sector_size != Some(SECTOR_SIZE) {
        return Ok(());
    }
    let last = table.partitions.iter().map(|partition| partition.number).max();
    let mut number = last.map_or(FIRST_LOGICAL, |last| FIRST_LOGICAL.max(last + 1));
    for (of_slice, entry) in (1..).zip(&record.entries).filter(|(_, entry)| entry.is_used()) {
        let Some(system) = LabelSystem::of_slice(entry.kind) else { continue };
        let place = table.partitions.iter().position(|partition| partition.number == of_slice);
        let Some(place) = place else { continue };
        let slice = table.partitions[place].extent;
        let entries = read_label(disk, slice.offset, system)?.unwrap_or_default();
        let is_inside = |entry: &&LabelEntry| entry.extent.intersect(&slice) == Some(entry.extent);
        let is_known = |entry: &LabelEntry| {
            table.partitions[..place]
                .iter()
                .chain(&table.partitions[place + 1..])
                .any(|known| known.extent == entry.extent)
        };
        if entries.iter().any(|entry| !is_inside(&entry) && !is_known(entry)) {
            table.doubts.push(format!("the disklabel in partition {of_slice} names ranges outside of it"));
        }
        let inside: Vec<LabelEntry> = entries.iter().filter(is_inside).copied().collect();
        let has_whole = inside.iter().any(|entry| entry.extent == slice);
        if inside.is_empty() || has_whole && inside.len() > 1 {
            continue;
        }
        table.partitions[place].doubt = None;
        if has_whole {
            // Linux gives it no second number.
            continue;
        }
        table.partitions[place].container = true;
        add(table, slice, &inside, number);
        number += inside.len() as u32;
    }
    Ok(())
}

/// Reads the label of a disk whose MBR has no entries, or only the one for all of the disk that boot code of FreeBSD has.
pub(super) fn read_whole(
    disk: &dyn DiskRead,
    record: Option<&Record>,
    sector_size: u32,
) -> Result<Option<PartitionTable>> {
    let is_boot_code = |record: &Record| {
        let mut used = record.entries.iter().filter(|entry| entry.is_used());
        used.all(|entry| entry.start == 0 && LabelSystem::of_slice(entry.kind).is_some())
    };
    if sector_size != SECTOR_SIZE || !record.is_none_or(is_boot_code) {
        return Ok(None);
    }
    let whole = Extent::new(0, disk.length());
    let entries = read_label(disk, 0, LabelSystem::FreeBsd)?.unwrap_or_default();
    if entries.is_empty() || matches!(entries[..], [only] if only.extent == whole) {
        return Ok(None);
    }
    let mut table =
        PartitionTable { kind: TableKind::Bsd, sector_size: Some(sector_size), ..PartitionTable::default() };
    add(&mut table, whole, &entries, 1);
    Ok(Some(table))
}

/// Adds the partitions of a label, and the area around the label unless it belongs to one of them.
fn add(table: &mut PartitionTable, slice: Extent, entries: &[LabelEntry], first_number: u32) {
    let label = Extent::new(slice.offset + LABEL_OFFSET, LABEL_LENGTH as u64);
    for (number, entry) in (first_number..).zip(entries) {
        let is_over_label = entry.extent.offset != slice.offset && entry.extent.intersect(&label).is_some();
        table.partitions.push(Partition {
            number,
            extent: entry.extent,
            type_id: format!("{TYPE_PREFIX}0x{:02x}", entry.kind),
            type_name: type_name(entry.kind),
            name: Some(format!("{}", entry.letter)),
            uuid: None,
            bootable: false,
            container: false,
            trusted: false,
            doubt: is_over_label.then(|| "it begins at the disklabel".to_owned()),
        });
    }
    let area = Extent::new(slice.offset, BOOT_AREA.min(slice.length));
    if entries.iter().all(|entry| entry.extent.intersect(&area).is_none()) {
        table.structures = table.structures.iter().copied().chain([area]).collect();
    }
}

fn type_name(kind: u8) -> &'static str {
    match kind {
        0x01 => "BSD swap",
        0x07 => "BSD UFS",
        0x08 => "FAT",
        0x11 => "Linux ext",
        0x1b => "ZFS",
        _ => "unknown",
    }
}

#[cfg(test)]
#[path = "bsd_tests.rs"]
mod tests;
