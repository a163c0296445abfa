//! Partition tables: reading one, and where its backup would have to go. The input is one byte of choices and a list
//! of edits to a real disk.

#![no_main]

use std::io;
use std::sync::LazyLock;

use crc::{CRC_32_ISO_HDLC, Crc};
use libfuzzer_sys::fuzz_target;
use platter_disk::partition::{PartitionTable, TableChange, TableChanges, change_table};
use platter_fuzz::BaseDisk;
use platter_image::{DiskRead, ErrorKind, Extent, Extents};

static BASES: LazyLock<[BaseDisk; 4]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/mbr.zst")),
        BaseDisk::unpack(include_bytes!("../images/gpt.zst")),
        BaseDisk::unpack(include_bytes!("../images/gpt-4096.zst")),
        BaseDisk::unpack(include_bytes!("../images/bsd.zst")),
    ]
});
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
/// Longest table whose checksum is corrected.
const TABLE_MENDED_MAX: usize = 64 << 10;

struct Disk {
    bytes: Vec<u8>,
    sector_size: u32,
}

impl DiskRead for Disk {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buffer, offset)
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let mut bytes = BASES[usize::from(choices & 3) % BASES.len()].edited(edits);
    let sector_size = if choices & 4 == 0 { 512 } else { 4096 };
    // The disk may be larger or smaller than the one that the table was made for.
    match choices >> 3 & 3 {
        0 => {}
        1 => bytes.resize(bytes.len() + (32 << 10), 0),
        2 => bytes.truncate(bytes.len() / 4),
        _ => bytes.truncate(usize::from(*choices) * 16),
    }
    if choices & 0x80 == 0 {
        for size in [512, 4096] {
            mend(&mut bytes, size, size);
            let last = (bytes.len() / size).saturating_sub(1) * size;
            mend(&mut bytes, size, last);
        }
    }
    check(&Disk { bytes, sector_size });
});

fn check(disk: &Disk) {
    let table = PartitionTable::read(disk).expect("only the disk may fail, and this one does not");
    for partition in &table.partitions {
        let inside = partition.extent.length > 0 && partition.extent.end() <= disk.length();
        assert!(inside || !partition.trusted, "trusted, and outside of the disk: {partition:?}");
    }
    let mut trusted: Vec<_> = table.partitions.iter().filter(|partition| partition.trusted).collect();
    trusted.sort_unstable_by_key(|partition| partition.extent);
    for pair in trusted.windows(2) {
        assert!(pair[0].extent.end() <= pair[1].extent.offset, "trusted, and overlapping: {pair:?}");
    }
    for (grow, new_ids) in [(false, None), (true, None), (true, Some([7; 32]))] {
        let changes = TableChanges { grow, new_ids };
        match change_table(disk, disk.length(), &changes, &everything(disk)) {
            Ok(change) => apply(disk, &change, &changes),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{error}"),
        }
    }
}

/// What an image of this disk fills: no partition may grow over what is not zero.
fn everything(disk: &Disk) -> Extents {
    [Extent::new(0, disk.length())].into_iter().collect()
}

/// The changed table lies on the disk, has the same partitions except for what was requested, and needs no further
/// change.
fn apply(disk: &Disk, change: &TableChange, changes: &TableChanges) {
    if change.writes.is_empty() {
        return;
    }
    let mut bytes = disk.bytes.clone();
    for (offset, written) in &change.writes {
        let start = *offset as usize;
        let end = start + written.len();
        assert!(end <= bytes.len(), "{} bytes at {offset} of a disk of {}", written.len(), bytes.len());
        bytes[start..end].copy_from_slice(written);
    }
    let partitions = |disk: &Disk| -> Vec<_> {
        let table = PartitionTable::read(disk).expect("this disk does not fail");
        let id = |uuid: Option<String>| uuid.filter(|_| changes.new_ids.is_none());
        table
            .partitions
            .into_iter()
            .map(|partition| (partition.number, partition.extent, id(partition.uuid)))
            .collect()
    };
    let after = Disk { bytes, sector_size: disk.sector_size };
    let mut expected = partitions(disk);
    if let Some(grown) = change.grown {
        for (number, extent, _) in &mut expected {
            if Some(*number) == grown.number {
                assert!(*extent == grown.before && grown.after.end() <= disk.length(), "{grown:?}");
                *extent = grown.after;
            }
        }
        let trusted = PartitionTable::read(&after).expect("this disk does not fail").partitions;
        let grown = trusted.iter().find(|partition| Some(partition.number) == grown.number);
        assert!(grown.is_some_and(|grown| grown.trusted), "{grown:?}");
    }
    let mut found = partitions(&after);
    // An extended partition grows with the logical one in it.
    for list in [&mut expected, &mut found] {
        list.retain(|(number, ..)| change.grown.is_none_or(|grown| grown.number <= Some(4) || *number > 4));
    }
    assert_eq!(found, expected, "the partitions changed");
    let changes = TableChanges { new_ids: None, ..*changes };
    let again = change_table(&after, after.length(), &changes, &everything(disk));
    assert!(again.expect("it was changed once").writes.is_empty(), "changes do not come to rest");
}

/// Corrects the checksums of the GPT header at `at` and of its table.
fn mend(bytes: &mut [u8], size: usize, at: usize) {
    let Some(header) = bytes.get(at..at + size).filter(|header| header.starts_with(b"EFI PART")) else {
        return;
    };
    let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
    let (length, table_sector) = (field(12), field(72));
    let table_length = field(80).saturating_mul(field(84));
    let start = table_sector.saturating_mul(size);
    let table =
        bytes.get(start..start.saturating_add(table_length)).filter(|table| table.len() <= TABLE_MENDED_MAX);
    let sum = table.map(|table| CRC.checksum(table));
    let header = &mut bytes[at..at + size];
    if let Some(sum) = sum {
        header[88..92].copy_from_slice(&sum.to_le_bytes());
    }
    if (92..=size).contains(&length) {
        header[16..20].fill(0);
        let sum = CRC.checksum(&header[..length]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
    }
}
