//! Tests of the GPT reader and of moving backups. Tables are made by hand, so that they can be wrong.

use super::*;
use crate::partition::{PartitionTable, TableChanges, change_table};

const LINUX: &[u8; 16] = b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4";

struct Maker {
    sector: usize,
    sectors: usize,
    entries: u32,
    entry_length: u32,
}

impl Maker {
    fn new(sector: usize) -> Self {
        Self { sector, sectors: 2000, entries: 128, entry_length: 128 }
    }

    fn table_sectors(&self) -> usize {
        ((self.entries * self.entry_length) as usize).div_ceil(self.sector)
    }

    /// A disk with these partitions, given as first and last sector.
    fn disk(&self, partitions: &[(u64, u64)]) -> Vec<u8> {
        let mut disk = vec![0; self.sector * self.sectors];
        disk[450] = 0xee;
        disk[454..458].copy_from_slice(&1_u32.to_le_bytes());
        disk[458..462].copy_from_slice(&(self.sectors as u32 - 1).to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let mut table = vec![0; (self.entries * self.entry_length) as usize];
        for (place, (first, last)) in partitions.iter().enumerate() {
            let entry = &mut table[place * self.entry_length as usize..][..128];
            entry[..16].copy_from_slice(LINUX);
            entry[16] = place as u8 + 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            entry[56..60].copy_from_slice(&[b'p', 0, b'0' + place as u8, 0]);
        }
        let last = self.sectors - 1;
        self.put(&mut disk, 1, last, 2, &table);
        self.put(&mut disk, last, 1, last - self.table_sectors(), &table);
        disk
    }

    fn put(&self, disk: &mut [u8], own: usize, other: usize, place: usize, table: &[u8]) {
        let mut header = vec![0; self.sector];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&0x1_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        let numbers = [
            (24, own),
            (32, other),
            (40, 2 + self.table_sectors()),
            (48, self.sectors - 2 - self.table_sectors()),
            (72, place),
        ];
        for (offset, number) in numbers {
            header[offset..offset + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        header[56] = 0x77;
        header[80..84].copy_from_slice(&self.entries.to_le_bytes());
        header[84..88].copy_from_slice(&self.entry_length.to_le_bytes());
        header[88..92].copy_from_slice(&CRC32.checksum(table).to_le_bytes());
        let checksum = header_checksum(&header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        disk[own * self.sector..][..self.sector].copy_from_slice(&header);
        disk[place * self.sector..][..table.len()].copy_from_slice(table);
    }
}

#[test]
fn a_gpt_is_read_with_both_sector_sizes() {
    for sector in [512, 4096] {
        let disk = Maker::new(sector).disk(&[(100, 199), (300, 300)]);
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!((table.kind, table.sector_size), (TableKind::Gpt, Some(sector as u32)));
        assert_eq!(table.notes, Vec::<String>::new());
        let [first, second] = table.partitions.as_slice() else { panic!("two partitions") };
        assert_eq!(first.extent, Extent::new(100 * sector as u64, 100 * sector as u64));
        assert_eq!(second.extent.length, sector as u64);
        assert_eq!((first.number, first.name.as_deref(), first.type_name), (1, Some("p0"), "Linux"));
        assert!(first.trusted && second.trusted);
        assert_eq!(table.disk_id.as_deref(), Some("00000077-0000-0000-0000-000000000000"));
    }
}

#[test]
fn a_bad_copy_is_not_used() {
    let maker = Maker::new(512);
    let good = maker.disk(&[(100, 199)]);
    let last = good.len() - 512;
    for (at, note) in [
        (512 + 40, "primary GPT header has a wrong checksum; only its backup"),
        (1024 + 3, "primary GPT header has a table with a wrong checksum; only its backup"),
        (512, "primary GPT header is missing; only its backup"),
        (last + 40, "the backup GPT header in sector 1999 has a wrong checksum"),
        (last - 32 * 512, "has a table with a wrong checksum"),
    ] {
        let mut disk = good.clone();
        disk[at] ^= 1;
        let table = PartitionTable::read(&disk).unwrap();
        assert_eq!(table.partitions.len(), 1, "{note}");
        assert!(table.doubts.iter().any(|found| found.contains(note)), "{note}: {:?}", table.doubts);
        if note.starts_with("primary") {
            let change = relocation(&disk).unwrap();
            assert!(change.writes.is_empty() && change.notes.len() == 1, "nothing may be repaired");
        }
    }
    let mut disk = good.clone();
    disk[512] = 0;
    disk[last] = 0;
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(table.kind, TableKind::Mbr);
    assert!(table.doubts[0].contains("neither it nor its backup"), "{:?}", table.doubts);
}

/// Two valid copies with different contents.
#[test]
fn copies_that_disagree_are_a_doubt() {
    let maker = Maker::new(512);
    let good = maker.disk(&[(100, 199)]);
    assert_eq!(PartitionTable::read(&good).unwrap().doubts, Vec::<String>::new());
    let other = maker.disk(&[(100, 299)]);
    let mut disk = good.clone();
    let backup = disk.len() - 33 * 512;
    disk[backup..].copy_from_slice(&other[backup..]);
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(table.partitions[0].extent.length, 100 * 512, "the primary is shown");
    assert!(table.doubts[0].contains("have different partitions"), "{:?}", table.doubts);

    // The disk grew, its table was not moved, and an older table is at its end.
    let mut grown = good;
    grown.resize(3000 * 512, 0);
    assert_eq!(PartitionTable::read(&grown).unwrap().doubts, Vec::<String>::new());
    let mut longer = Maker::new(512);
    longer.sectors = 3000;
    let older = longer.disk(&[(500, 599)]);
    let backup = grown.len() - 33 * 512;
    grown[backup..].copy_from_slice(&older[backup..]);
    let table = PartitionTable::read(&grown).unwrap();
    assert!(table.doubts[0].contains("at the end of the disk"), "{:?}", table.doubts);
}

#[test]
fn a_gpt_without_partitions_is_a_doubt() {
    let table = PartitionTable::read(&Maker::new(512).disk(&[])).unwrap();
    assert_eq!((table.kind, table.partitions.len(), table.doubts.len()), (TableKind::Gpt, 0, 1));
}

/// Entries of a hybrid MBR may repeat partitions of the GPT; other entries are announced ranges that may
/// overlap them.
#[test]
fn hybrid_mbrs_announce_ranges() {
    let mut disk = Maker::new(512).disk(&[(100, 199), (300, 399)]);
    let mut put = |slot: usize, start: u32, sectors: u32| {
        let at = 446 + slot * 16;
        disk[at + 4] = 0x83;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        let table = PartitionTable::read(&disk).unwrap();
        let trusted: Vec<bool> = table.partitions.iter().map(|partition| partition.trusted).collect();
        (trusted, table.announced.total() / 512)
    };
    assert_eq!(put(1, 100, 100), (vec![true, true], 0));
    assert_eq!(put(2, 350, 100), (vec![true, false], 100));
    assert_eq!(put(3, 500, 100), (vec![true, false], 200));
}

#[test]
fn an_mbr_that_does_not_announce_the_gpt_is_used() {
    let mut disk = Maker::new(512).disk(&[(100, 199)]);
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&500_u32.to_le_bytes());
    disk[458..462].copy_from_slice(&100_u32.to_le_bytes());
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!((table.kind, table.partitions[0].extent.offset), (TableKind::Mbr, 500 * 512));
    assert!(table.doubts[0].contains("does not announce"), "{:?}", table.doubts);
    disk[446 + 16 + 4] = 0xee;
    let table = PartitionTable::read(&disk).unwrap();
    assert_eq!(table.kind, TableKind::Gpt);
    assert!(table.notes[0].contains("hybrid"), "{:?}", table.notes);
}

#[test]
fn impossible_numbers_are_not_trusted() {
    let right = |entries, entry_length| Maker { entries, entry_length, ..Maker::new(512) };
    for maker in [right(1024, 128), right(4, 4096)] {
        assert_eq!(PartitionTable::read(&maker.disk(&[(1500, 1510)])).unwrap().partitions.len(), 1);
    }
    for (entries, entry_length) in [(1025, 128), (u32::MAX, 128), (0, 128), (128, 64), (1, 8192), (128, 129)]
    {
        let mut disk = Maker::new(512).disk(&[(100, 199)]);
        for header in [512, disk.len() - 512] {
            disk[header + 80..header + 84].copy_from_slice(&u32::to_le_bytes(entries));
            disk[header + 84..header + 88].copy_from_slice(&u32::to_le_bytes(entry_length));
            let checksum = header_checksum(&disk[header..header + 512]);
            disk[header + 16..header + 20].copy_from_slice(&checksum.to_le_bytes());
        }
        assert_eq!(PartitionTable::read(&disk).unwrap().kind, TableKind::Mbr, "{entries} of {entry_length}");
    }
    let disk = Maker::new(512).disk(&[(100, u64::MAX), (u64::MAX, 3), (0, 50), (1990, 1999), (700, 800)]);
    let trusted: Vec<bool> =
        PartitionTable::read(&disk).unwrap().partitions.iter().map(|partition| partition.trusted).collect();
    assert_eq!(trusted, [false, false, false, false, false], "the first covers the last");
}

/// What moves the backup.
fn relocation(disk: &Vec<u8>) -> Result<TableChange> {
    change_table(disk, disk.len() as u64, &TableChanges::default(), &Extents::new())
}

/// Applies changes, and reads the resulting table.
fn applied(mut disk: Vec<u8>, change: &TableChange) -> (Vec<u8>, PartitionTable) {
    for (offset, bytes) in &change.writes {
        disk[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
    }
    let table = PartitionTable::read(&disk).unwrap();
    (disk, table)
}

fn relocated(disk: Vec<u8>) -> (Vec<u8>, PartitionTable) {
    let change = relocation(&disk).unwrap();
    applied(disk, &change)
}

/// The partition that ends last grows, also without a longer disk, and both copies agree.
#[test]
fn the_last_partition_grows() {
    let grow = TableChanges { grow: true, new_ids: None };
    for (sector, sectors) in [(512, 13_000), (4096, 3000)] {
        let maker = Maker { sectors: 3000 * 4096 / sector, ..Maker::new(sector) };
        let small = maker.disk(&[(300, 1900), (100, 199)]);
        for length in [small.len(), sectors * sector * 2] {
            let mut disk = small.clone();
            disk.resize(length, 0);
            let change = change_table(&disk, length as u64, &grow, &Extents::new()).unwrap();
            let grown = change.grown.unwrap();
            let (disk, table) = applied(disk, &change);
            assert_eq!((table.doubts.len(), table.notes.len()), (0, 0), "{table:?}");
            let end = table.partitions[0].extent.end();
            assert_eq!((grown.number, grown.after), (Some(1), table.partitions[0].extent));
            assert!(end.is_multiple_of(1 << 20) && length as u64 - end < (2 << 20), "{end} of {length}");
            assert_eq!(table.partitions[1].extent, Extent::new(100 * sector as u64, 100 * sector as u64));
            let again = change_table(&disk, length as u64, &grow, &Extents::new()).unwrap();
            assert_eq!((again.writes.len(), again.notes.len()), (0, 1), "{:?}", again.notes);
            let mut damaged = disk;
            damaged[sector] ^= 1;
            assert_eq!(PartitionTable::read(&damaged).unwrap().partitions, table.partitions, "the backup");
        }
    }
}

/// Data of the image behind the last partition keeps it from growing; zeros, and what the target held where the image has
/// nothing, do not.
#[test]
fn a_partition_does_not_grow_over_data() {
    let grow = TableChanges { grow: true, new_ids: None };
    let small = Maker { sectors: 30_000, ..Maker::new(512) }.disk(&[(300, 1900)]);
    let image_length = small.len() as u64;
    let (image, before_gap) = (Extent::new(0, image_length), Extent::new(0, 19_000 * 512));
    for (place, filled, is_data) in [
        (20_000 * 512 + 7, image, true),
        (20_000 * 512 + 7, before_gap, false),
        (small.len() + 5, image, false),
    ] {
        let mut disk = small.clone();
        disk.resize(60_000 * 512, 0);
        disk[place] = 1;
        let change = change_table(&disk, image_length, &grow, &[filled].into_iter().collect()).unwrap();
        assert_eq!(change.grown.is_none(), is_data);
        let told =
            change.notes.iter().any(|note| note.contains("data behind partition 1, at offset 10240000"));
        assert_eq!(told, is_data, "{:?}", change.notes);
    }
}

#[test]
fn a_damaged_gpt_does_not_grow() {
    let mut disk = Maker::new(512).disk(&[(100, 199)]);
    let last = disk.len() - 512;
    disk[last] ^= 1;
    let change =
        change_table(&disk, disk.len() as u64, &TableChanges { grow: true, new_ids: None }, &Extents::new())
            .unwrap();
    assert_eq!(change.grown, None);
    assert!(change.notes[0].contains("no partition was grown: the backup GPT header"), "{:?}", change.notes);
}

#[test]
fn new_ids_are_random_and_in_both_copies() {
    let disk = Maker::new(512).disk(&[(100, 199), (300, 399)]);
    let before = PartitionTable::read(&disk).unwrap();
    let ids = |seed: u8| {
        let changes = TableChanges { grow: false, new_ids: Some([seed; 32]) };
        let change = change_table(&disk, disk.len() as u64, &changes, &Extents::new()).unwrap();
        assert!(change.replaces_ids && !change.moves_backup);
        let (mut disk, table) = applied(disk.clone(), &change);
        assert_eq!((table.doubts.len(), table.notes.len()), (0, 0), "{table:?}");
        let extents =
            |table: &PartitionTable| table.partitions.iter().map(|it| it.extent).collect::<Vec<_>>();
        assert_eq!(extents(&table), extents(&before));
        disk[512] ^= 1;
        assert_eq!(PartitionTable::read(&disk).unwrap().partitions, table.partitions, "the backup");
        let mut ids = vec![table.disk_id.unwrap()];
        ids.extend(table.partitions.into_iter().map(|it| it.uuid.unwrap()));
        ids
    };
    let mut all = [ids(1), ids(2)].concat();
    assert!(
        all.iter().all(|id| id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19])),
        "{all:?}"
    );
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6);
}

#[test]
fn a_backup_moves_to_the_end() {
    for sector in [512, 4096] {
        let small = Maker::new(sector).disk(&[(100, 199), (300, 1900)]);
        assert_eq!(relocation(&small).unwrap(), TableChange::default(), "it fits already");
        let mut large = small.clone();
        large.resize(3333 * sector, 0);
        assert!(relocation(&large).unwrap().moves_backup);
        let mut without = large.clone();
        without[small.len() - sector..small.len()].fill(0);
        let change = relocation(&without).unwrap();
        assert!(!change.moves_backup && !change.writes.is_empty(), "there is none to move");
        assert!(change.notes[0].contains("no valid backup GPT"), "{:?}", change.notes);
        let before = PartitionTable::read(&large).unwrap();
        assert!(before.notes[0].contains("not in the last sector"), "{:?}", before.notes);
        let (mut large, table) = relocated(large);
        assert_eq!((&table.partitions, table.notes.len()), (&before.partitions, 0), "{:?}", table.notes);
        assert_eq!(le32(&large, 458), 3332, "the MBR covers the disk");
        large[sector] ^= 1;
        assert_eq!(
            PartitionTable::read(&large).unwrap().partitions,
            before.partitions,
            "read from the backup"
        );

        let mut shorter = small.clone();
        shorter.truncate(1902 * sector);
        assert_eq!(relocation(&shorter).unwrap_err().kind(), platter_image::ErrorKind::Refused);
    }
}

/// `sgdisk -v` accepts a moved backup.
#[test]
fn sgdisk_agrees() {
    let run = |arguments: &[&str]| std::process::Command::new("sgdisk").args(arguments).output();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![0; 16 << 20]).unwrap();
    let name = path.to_str().unwrap();
    if run(&["-n", "1:2048:8191", "-n", "2:8192:", "-c", "1:root", name]).is_err() {
        return;
    }
    let mut disk = std::fs::read(&path).unwrap();
    disk.resize(40 << 20, 0);
    let (disk, table) = relocated(disk);
    assert_eq!((table.partitions.len(), table.partitions[0].name.as_deref()), (2, Some("root")));
    std::fs::write(&path, disk).unwrap();
    let said = run(&["-v", name]).unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("No problems found"), "{said}");
}
