//! Tests of the MBR reader, with all forms of chains of extended partitions.

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
fn primary_and_logical_partitions_are_read() {
    let mut disk = vec![0; 4000 * 512];
    put(&mut disk, 0, 0, 0x83, 100, 200);
    disk[446] = 0x80;
    put(&mut disk, 0, 1, 0x0f, 1000, 3000);
    put(&mut disk, 1000, 0, 0x07, 10, 100);
    put(&mut disk, 1000, 1, 0x05, 500, 300);
    put(&mut disk, 1500, 0, 0x82, 20, 50);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(table.kind, TableKind::Mbr);
    let expected = [(1, 100, 200, true), (2, 1000, 3000, false), (5, 1010, 100, true), (6, 1520, 50, true)];
    assert_eq!(numbers(&table), expected);
    assert!(table.partitions[0].bootable && table.partitions[1].container);
    assert_eq!(table.structures.total(), 3 * 512);
    assert_eq!(table.notes, Vec::<String>::new());
    assert_eq!(doubted(&table), []);
}

/// Numbers of the partitions of which nothing may be dropped.
fn doubted(table: &PartitionTable) -> Vec<u32> {
    let doubted = table.partitions.iter().filter(|partition| partition.doubt.is_some());
    doubted.map(|partition| partition.number).collect()
}

/// A primary partition, and an extended one from sector 1000 with one logical partition.
fn with_chain() -> Vec<u8> {
    let mut disk = vec![0; 4000 * 512];
    put(&mut disk, 0, 0, 0x83, 100, 200);
    put(&mut disk, 0, 1, 0x05, 1000, 1000);
    put(&mut disk, 1000, 0, 0x83, 10, 100);
    disk
}

#[test]
fn a_type_of_zero_is_a_partition() {
    let mut disk = vec![0; 4000 * 512];
    put(&mut disk, 0, 1, 0x00, 100, 200);
    assert_eq!(numbers(&PartitionTable::read(&disk).unwrap()), [(2, 100, 200, true)]);
    put(&mut disk, 0, 1, 0x83, 100, 0);
    assert_eq!(PartitionTable::read(&disk).unwrap(), PartitionTable::default());
}

/// The link comes first, as DR-DOS writes it, or last; or all four entries are used, as in OS/2.
#[test]
fn chains_of_other_systems_are_doubted() {
    for link in [0, 2, 3] {
        let mut disk = with_chain();
        put(&mut disk, 1000, link, 0x05, 500, 300);
        put(&mut disk, 1500, 0, 0x83, 20, 50);
        let table = PartitionTable::read(&disk).unwrap();
        let last = *numbers(&table).last().unwrap();
        assert_eq!((last.1, last.2), (1520, 50), "a link in entry {link}");
        assert_eq!(doubted(&table)[0], 2);
        assert_eq!(doubted(&table).len(), table.partitions.len() - 1, "all except the primary one");
        assert!(table.notes[0].contains("unusual places"), "{:?}", table.notes);
    }
    let mut disk = with_chain();
    put(&mut disk, 1000, 2, 0x83, 200, 100);
    put(&mut disk, 1000, 3, 0x83, 400, 100);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(numbers(&table)[2..], [(5, 1010, 100, true), (6, 1200, 100, true), (7, 1400, 100, true)]);
    assert_eq!(doubted(&table), [2, 5, 6, 7]);
}

#[test]
fn two_extended_partitions() {
    let mut disk = with_chain();
    put(&mut disk, 0, 2, 0x0f, 2000, 1000);
    put(&mut disk, 2000, 0, 0x83, 10, 100);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(numbers(&table)[3..], [(5, 1010, 100, true), (6, 2010, 100, true)]);
    assert_eq!(doubted(&table), [3, 6], "the first one is plain");
}

#[test]
fn logical_partitions_outside_are_doubted() {
    for (start, sectors) in [(900, 200), (1500, 100)] {
        let mut disk = with_chain();
        put(&mut disk, 1000, 0, 0x83, start, sectors);
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!(doubted(&table), [2, 5]);
    }
    // A record with an invalid status.
    let mut disk = with_chain();
    disk[1000 * 512 + 446] = 0x7f;
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!((table.partitions.len(), doubted(&table)), (2, vec![2]));
}

#[test]
fn container_types_are_doubted() {
    for kind in [0x42, 0x63, 0x81, 0xa5, 0xa6, 0xa9, 0xbf] {
        let mut disk = vec![0; 1000 * 512];
        put(&mut disk, 0, 0, kind, 10, 100);
        assert_eq!(doubted(&PartitionTable::read(&disk).unwrap()), [1], "{kind:#x}");
    }
}

/// Entries with an unknown status: there is no table, but a doubt.
#[test]
fn an_unknown_status_is_a_doubt() {
    for mark in [0x01, 0x40, 0x7f, 0x81, 0xff] {
        let mut disk = vec![0; 1000 * 512];
        put(&mut disk, 0, 0, 0x83, 10, 100);
        disk[446 + 16] = mark;
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!((table.kind, table.partitions.len(), table.doubts.len()), (TableKind::None, 0, 1));
    }
}

#[test]
fn endless_chains_are_cut() {
    let mut disk = vec![0; 4000 * 512];
    put(&mut disk, 0, 0, 0x05, 1000, 3000);
    put(&mut disk, 1000, 0, 0x83, 1, 10);
    put(&mut disk, 1000, 1, 0x05, 500, 300);
    put(&mut disk, 1500, 0, 0x83, 1, 10);
    for (link, word) in [(0, "itself"), (500, "itself"), (5000, "leaves"), (2000, "no extended boot record")]
    {
        put(&mut disk, 1500, 1, 0x05, link, 300);
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!(table.partitions.len(), 3);
        assert!(table.notes[0].contains(word), "{:?}", table.notes);
        assert_eq!(doubted(&table), [1, 5, 6]);
    }
    for record in 0..200 {
        put(&mut disk, 1000 + record * 3, 0, 0x83, 1, 1);
        put(&mut disk, 1000 + record * 3, 1, 0x05, record as u32 * 3 + 3, 3);
    }
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(table.partitions.len(), 1 + 128);
    assert!(table.notes[0].contains("128"), "{:?}", table.notes);
}

#[test]
fn invalid_partitions_are_not_trusted() {
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
fn boot_sectors_of_filesystems_are_not_tables() {
    let mut disk = vec![0; 1000 * 512];
    disk[446..510].fill(0x4e);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(PartitionTable::read(&disk).unwrap().kind, TableKind::None);
    disk[446..510].fill(0);
    assert_eq!(PartitionTable::read(&disk).unwrap(), PartitionTable::default());
}
