//! Partition tables: reading one, and where its backup would have to go. The input is one byte of choices and a list
//! of edits to a real disk.

#![no_main]

use std::io;
use std::sync::LazyLock;

use crc::{CRC_32_ISO_HDLC, Crc};
use libfuzzer_sys::fuzz_target;
use platter_disk::partition::{PartitionTable, gpt};
use platter_fuzz::BaseDisk;
use platter_image::{DiskRead, ErrorKind};

static BASES: LazyLock<[BaseDisk; 3]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/mbr.zst")),
        BaseDisk::unpack(include_bytes!("../images/gpt.zst")),
        BaseDisk::unpack(include_bytes!("../images/gpt-4096.zst")),
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
    match gpt::relocate_backup(disk) {
        Ok(relocation) => apply(disk, &relocation),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{error}"),
    }
}

/// The result of relocation lies on the disk, has the same partitions, and needs no further relocation.
fn apply(disk: &Disk, relocation: &gpt::Relocation) {
    if relocation.writes.is_empty() {
        return;
    }
    let mut bytes = disk.bytes.clone();
    for (offset, written) in &relocation.writes {
        let start = *offset as usize;
        let end = start + written.len();
        assert!(end <= bytes.len(), "{} bytes at {offset} of a disk of {}", written.len(), bytes.len());
        bytes[start..end].copy_from_slice(written);
    }
    let extents = |disk: &Disk| -> Vec<_> {
        let table = PartitionTable::read(disk).expect("this disk does not fail");
        table
            .partitions
            .into_iter()
            .map(|partition| (partition.number, partition.extent, partition.uuid))
            .collect()
    };
    let after = Disk { bytes, sector_size: disk.sector_size };
    assert_eq!(extents(&after), extents(disk), "relocation changed the partitions");
    let again = gpt::relocate_backup(&after).expect("it was relocated once");
    assert!(again.writes.is_empty(), "relocation does not come to rest");
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
