//! Tests of the reader of disklabels.

use super::*;

/// Writes a label to a slice: type, first sector and sectors of each partition.
fn put_label(disk: &mut [u8], slice: usize, partitions: &[(u8, u32, u32)]) {
    let sector = &mut disk[(slice + 1) * 512..][..512];
    sector.fill(0);
    for at in [0, 132] {
        sector[at..at + 4].copy_from_slice(&0x8256_4557_u32.to_le_bytes());
    }
    sector[41] = 2;
    sector[138] = partitions.len() as u8;
    for (row, (kind, first, sectors)) in sector[148..].chunks_exact_mut(16).zip(partitions) {
        row[..4].copy_from_slice(&sectors.to_le_bytes());
        row[4..8].copy_from_slice(&first.to_le_bytes());
        row[12] = *kind;
    }
    let sum = sector.chunks_exact(2).fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
    sector[136..138].copy_from_slice(&sum);
}

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

/// Numbers of the partitions of which nothing may be dropped.
fn doubted(table: &PartitionTable) -> Vec<u32> {
    let doubted = table.partitions.iter().filter(|partition| partition.doubt.is_some());
    doubted.map(|partition| partition.number).collect()
}

/// A primary partition, and a slice of that type from sector 1000.
fn with_slice(kind: u8) -> Vec<u8> {
    let mut disk = vec![0; 4000 * 512];
    put(&mut disk, 0, 0, 0x83, 100, 200);
    put(&mut disk, 0, 1, kind, 1000, 1000);
    disk
}

#[test]
fn partitions_of_slices_follow_the_logical_ones() {
    let mut disk = with_slice(0xa5);
    put(&mut disk, 0, 2, 0x05, 2000, 1000);
    put(&mut disk, 2000, 0, 0x83, 10, 100);
    put(&mut disk, 0, 3, 0xa9, 3000, 1000);
    put_label(&mut disk, 1000, &[(7, 0, 600), (1, 600, 400), (0, 0, 1000)]);
    put_label(&mut disk, 3000, &[(7, 3063, 900), (0, 3000, 1000), (0, 3000, 1000), (0, 0, 4000)]);
    let table = PartitionTable::read(&disk).unwrap();
    let expected = [
        (1, 100, 200, true),
        (2, 1000, 1000, false),
        (3, 2000, 1000, false),
        (4, 3000, 1000, false),
        (5, 2010, 100, true),
        (6, 1000, 600, true),
        (7, 1600, 400, true),
        (8, 3063, 900, true),
    ];
    assert_eq!(numbers(&table), expected);
    assert!(table.partitions[1].container && table.partitions[3].container);
    assert_eq!((doubted(&table), &table.doubts, &table.notes), (vec![], &vec![], &vec![]));
    assert_eq!(table.partitions[5].type_name, "BSD UFS");
    // The table, the record of the logical partition, and the area around the second label.
    assert_eq!(table.structures.total(), 2 * 512 + 8192);
    assert!(super::super::last_partition(&table).unwrap_err().contains("disklabel"));
}

/// Slices that cannot be looked through keep the doubt of their type.
#[test]
fn other_slices_are_doubted() {
    let read = |partitions: &[(u8, u32, u32)], change: &dyn Fn(&mut [u8])| {
        let mut disk = with_slice(0xa5);
        put_label(&mut disk, 1000, partitions);
        change(&mut disk[1001 * 512..]);
        PartitionTable::read(&disk).unwrap()
    };
    let good: &[_] = &[(7, 0, 600), (1, 600, 400)];
    assert_eq!(doubted(&read(good, &|_| {})), []);
    for (partitions, change) in [
        (good, &(|label: &mut [u8]| label[150] ^= 1) as &dyn Fn(&mut [u8])),
        (&[(0, 0, 1000)], &|_| {}),
        (&[(7, 0, 1000), (7, 0, 500)], &|_| {}),
    ] {
        let table = read(partitions, change);
        assert_eq!((table.partitions.len(), doubted(&table)), (2, vec![2]), "{partitions:?}");
    }
    // The label names the slice itself.
    let table = read(&[(7, 0, 1000), (0, 0, 1000)], &|_| {});
    assert_eq!((table.partitions[1].container, doubted(&table), table.partitions.len()), (false, vec![], 2));
    assert!(table.partitions[1].trusted);
    // A partition over the label.
    assert_eq!(doubted(&read(&[(7, 1, 600), (7, 601, 300)], &|_| {})), [5]);
    let overlapping = read(&[(7, 0, 600), (7, 500, 400)], &|_| {});
    assert_eq!(numbers(&overlapping)[2..], [(5, 1000, 600, false), (6, 1500, 400, false)]);
}

/// Labels of OpenBSD also name the other partitions of the MBR, and the whole disk as unused. What else is outside is a doubt.
#[test]
fn ranges_outside_of_a_slice() {
    let mut disk = with_slice(0xa6);
    put_label(&mut disk, 1000, &[(7, 1064, 900), (0, 0, 0), (0, 0, 4000), (8, 100, 200)]);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(numbers(&table)[2..], [(5, 1064, 900, true)]);
    assert_eq!(table.doubts, Vec::<String>::new());
    for outside in [(7, 100, 100), (7, 1900, 200), (7, 2000, 10), (7, u32::MAX, u32::MAX)] {
        put_label(&mut disk, 1000, &[(7, 1064, 500), outside]);
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!((table.partitions.len(), table.doubts.len()), (3, 1), "{outside:?}");
    }
}

#[test]
fn labels_of_whole_disks() {
    let mut disk = vec![0; 4000 * 512];
    put_label(&mut disk, 0, &[(7, 0, 3000), (1, 3000, 1000), (0, 0, 4000)]);
    let expected = [(1, 0, 3000, true), (2, 3000, 1000, true)];
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!((table.kind, numbers(&table)), (TableKind::Bsd, expected.to_vec()));
    // Boot code of FreeBSD.
    put(&mut disk, 0, 3, 0xa5, 0, 50000);
    assert_eq!(PartitionTable::read(&disk).unwrap(), table);
    // A real slice: the label at the start of the disk is stale.
    put(&mut disk, 0, 3, 0xa5, 63, 3000);
    assert_eq!(PartitionTable::read(&disk).unwrap().kind, TableKind::Mbr);
    // A filesystem without partitions.
    let mut disk = vec![0; 4000 * 512];
    put_label(&mut disk, 0, &[(7, 0, 4000), (0, 0, 4000)]);
    assert_eq!(PartitionTable::read(&disk).unwrap(), PartitionTable::default());
    // Past the end of the disk.
    put_label(&mut disk, 0, &[(7, 16, 3000), (7, 3016, 1000)]);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(numbers(&table), [(1, 16, 3000, true), (2, 3016, 1000, false)]);
    assert_eq!(table.notes.len(), 1);
}
