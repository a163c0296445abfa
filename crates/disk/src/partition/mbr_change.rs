//! Changes to a master boot record: the last partition grows, also if it is a logical one, and the disk gets a new
//! signature.

use platter_filesystem::boot_record::Record;
use platter_image::{DiskRead, Extent, Result};

use super::change::{ALIGNMENT, Grown, TableChange, Write, note_full, random_id};
use super::last::extended_around;
use super::{Partition, PartitionTable, read_sectors};

/// Where the first entry is, and the length of an entry.
const ENTRIES: usize = 446;
const ENTRY_LENGTH: usize = 16;
/// Where the signature of the disk is.
const SIGNATURE: usize = 440;
/// The most records of a chain; longer ones are a doubt already.
const RECORDS_MAX: usize = 128;
/// The most sectors of an entry.
const SECTORS_MAX: u64 = u32::MAX as u64;

/// Adds the requested changes. `last` is the partition to grow, of a table without doubts.
pub(super) fn change(
    disk: &dyn DiskRead,
    table: &PartitionTable,
    last: Option<&Partition>,
    new_ids: Option<[u8; 32]>,
    change: &mut TableChange,
) -> Result<()> {
    let size = table.sector_size.unwrap_or(512);
    let Some(mut first) = read_sectors(disk, 0, size as usize)? else { return Ok(()) };
    let before = first.clone();
    if let Some(last) = last {
        grow(disk, table, last, &mut first, change)?;
    }
    if let Some(seed) = new_ids {
        // Zero means that there is no signature.
        let [byte, id @ ..] = random_id(&seed, 0);
        first[SIGNATURE..SIGNATURE + 4].copy_from_slice(&[byte.max(1), id[0], id[1], id[2]]);
        change.replaces_ids = true;
    }
    if first != before {
        change.writes.push((0, first));
    }
    Ok(())
}

fn grow(
    disk: &dyn DiskRead,
    table: &PartitionTable,
    last: &Partition,
    first: &mut [u8],
    change: &mut TableChange,
) -> Result<()> {
    let size = u64::from(table.sector_size.unwrap_or(512));
    let extended = extended_around(table, last);
    let start = last.extent.offset / size;
    let base = extended.map_or(start, |extended| extended.extent.offset / size);
    // Some systems use 32 bits also for the sum of start and length.
    let end = (disk.length() / ALIGNMENT * ALIGNMENT / size).min(SECTORS_MAX / ALIGNMENT * ALIGNMENT);
    if end <= last.extent.end() / size {
        change.notes.push(note_full(last.number));
        return Ok(());
    }
    match extended {
        None => set_end(first, last.number as usize - 1, start, end),
        Some(extended) => {
            let Some(records) = logical_records(disk, base, start, end, size)? else {
                change
                    .notes
                    .push(format!("partition {} was not grown: its boot record was not found", last.number));
                return Ok(());
            };
            change.writes.extend(records);
            set_end(first, extended.number as usize - 1, base, end);
        }
    }
    let after = Extent::between(last.extent.offset, end * size);
    change.grown = Some(Grown { number: Some(last.number), before: last.extent, after });
    Ok(())
}

/// The changed boot records for a logical partition that starts in sector `start` and now ends at `end`: its own, and
/// the one before, whose link states its length. `base` is the start of the extended partition.
fn logical_records(
    disk: &dyn DiskRead,
    base: u64,
    start: u64,
    end: u64,
    size: u64,
) -> Result<Option<Vec<Write>>> {
    let mut before: Option<Write> = None;
    let mut sector = base;
    for _ in 0..RECORDS_MAX {
        let Some(mut bytes) = read_sectors(disk, sector * size, size as usize)? else { return Ok(None) };
        let Some(record) = Record::parse(&bytes) else { return Ok(None) };
        let [own, link, ..] = record.entries;
        if own.is_used() && sector + u64::from(own.start) == start {
            set_end(&mut bytes, 0, start, end);
            let mut writes = vec![(sector * size, bytes)];
            if let Some((before, mut bytes)) = before {
                set_end(&mut bytes, 1, sector, end);
                writes.push((before * size, bytes));
            }
            return Ok(Some(writes));
        }
        if !link.is_extended() {
            return Ok(None);
        }
        before = Some((sector, bytes));
        sector = base + u64::from(link.start);
    }
    Ok(None)
}

/// Lets an entry whose range starts in sector `start` end at sector `end`.
fn set_end(record: &mut [u8], slot: usize, start: u64, end: u64) {
    let at = ENTRIES + slot * ENTRY_LENGTH;
    let sectors = (end - start).min(SECTORS_MAX) as u32;
    record[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    record[at + 5..at + 8].copy_from_slice(&cylinder_address(end - 1));
}

/// The address of a sector as head, sector and cylinder, with the usual 255 heads and 63 sectors; those past the reach of
/// such addresses have the usual mark.
fn cylinder_address(sector: u64) -> [u8; 3] {
    let (cylinder, head, in_track) = (sector / (255 * 63), sector / 63 % 255, sector % 63 + 1);
    match cylinder {
        0..1024 => [head as u8, in_track as u8 | (cylinder >> 2) as u8 & 0xc0, cylinder as u8],
        _ => [0xfe, 0xff, 0xff],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{TableChanges, TableKind, change_table};

    fn put(disk: &mut [u8], sector: usize, slot: usize, entry: (u8, u32, u32)) {
        let at = sector * 512 + ENTRIES + slot * ENTRY_LENGTH;
        disk[at + 4] = entry.0;
        disk[at + 8..at + 12].copy_from_slice(&entry.1.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&entry.2.to_le_bytes());
        disk[sector * 512 + 510..sector * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn changed(mut disk: Vec<u8>, changes: &TableChanges) -> (Vec<u8>, PartitionTable, TableChange) {
        let change = change_table(&disk, disk.len() as u64, changes, &platter_image::Extents::new()).unwrap();
        for (offset, bytes) in &change.writes {
            disk[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
        }
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!((&table.doubts, &table.notes), (&vec![], &vec![]));
        (disk, table, change)
    }

    #[test]
    fn a_primary_partition_grows_to_the_last_mib() {
        let mut disk = vec![0; (8 << 20) + 5 * 512];
        put(&mut disk, 0, 0, (0x83, 2048, 2048));
        put(&mut disk, 0, 2, (0x07, 4096, 1000));
        let (disk, table, change) = changed(disk, &TableChanges { grow: true, new_ids: None });
        assert_eq!(table.partitions[1].extent, Extent::between(4096 * 512, 8 << 20));
        assert_eq!(table.partitions[0].extent, Extent::new(2048 * 512, 2048 * 512));
        let grown = change.grown.unwrap();
        assert_eq!((grown.number, grown.before.length), (Some(3), 1000 * 512));
        let (_, _, change) = changed(disk, &TableChanges { grow: true, new_ids: None });
        assert_eq!((change.writes.len(), change.grown), (0, None));
        assert!(change.notes[0].contains("already reaches the end"), "{:?}", change.notes);
    }

    #[test]
    fn a_logical_partition_grows_with_its_records() {
        let mut disk = vec![0; 16 << 20];
        put(&mut disk, 0, 0, (0x83, 2048, 2048));
        put(&mut disk, 0, 1, (0x05, 4096, 6000));
        put(&mut disk, 4096, 0, (0x83, 10, 1990));
        put(&mut disk, 4096, 1, (0x05, 2000, 2000));
        put(&mut disk, 6096, 0, (0x82, 10, 1990));
        put(&mut disk, 6096, 1, (0x05, 4000, 2000));
        put(&mut disk, 8096, 0, (0x83, 10, 1990));
        let before = PartitionTable::read(&disk).unwrap();
        assert_eq!(before.doubts.len() + before.notes.len(), 0, "{before:?}");
        let (disk, table, change) = changed(disk, &TableChanges { grow: true, new_ids: None });
        assert_eq!((change.grown.unwrap().number, change.writes.len()), (Some(7), 3));
        let number = |number| table.partitions.iter().find(|it| it.number == number).unwrap().extent;
        assert_eq!(number(7), Extent::between(8106 * 512, 16 << 20));
        assert_eq!(number(2), Extent::between(4096 * 512, 16 << 20));
        assert_eq!(number(6), before.partitions.iter().find(|it| it.number == 6).unwrap().extent);
        assert_eq!(disk[6096 * 512 + ENTRIES + 16 + 12..][..4], (32768_u32 - 8096).to_le_bytes(), "the link");
    }

    #[test]
    fn the_disk_gets_a_new_signature() {
        let mut disk = vec![0; 4 << 20];
        put(&mut disk, 0, 0, (0x83, 2048, 2048));
        let ids: Vec<Option<String>> = [1, 2]
            .map(|seed| changed(disk.clone(), &TableChanges { grow: false, new_ids: Some([seed; 32]) }))
            .map(|(_, table, change)| {
                assert!(change.replaces_ids && table.kind == TableKind::Mbr);
                table.disk_id
            })
            .into();
        assert!(ids[0].is_some() && ids[1].is_some() && ids[0] != ids[1], "{ids:?}");
    }

    #[test]
    fn cylinder_addresses_end_with_a_mark() {
        assert_eq!(cylinder_address(0), [0, 1, 0]);
        assert_eq!(cylinder_address(2048), [32, 33, 0]);
        assert_eq!(cylinder_address(1023 * 255 * 63), [0, 1 | 0xc0, 0xff]);
        assert_eq!(cylinder_address(1024 * 255 * 63), [0xfe, 0xff, 0xff]);
    }
}
