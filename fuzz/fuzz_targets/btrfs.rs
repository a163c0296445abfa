//! btrfs: its reader. The input is one byte of choices and a list of edits to a small real filesystem, whose checksums are
//! mended afterwards.

#![no_main]

use std::sync::LazyLock;

use crc::{CRC_32_ISCSI, Crc};
use libfuzzer_sys::fuzz_target;
use platter_fuzz::BaseDisk;

/// The length of a tree block and of a superblock.
const BLOCK: usize = 4096;

static BASE: LazyLock<BaseDisk> = LazyLock::new(|| BaseDisk::unpack(include_bytes!("../images/btrfs.zst")));
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Mends the checksum of every block that has the filesystem's UUID where tree blocks and superblocks have it.
fn mend(disk: &mut [u8]) {
    let uuid: Vec<u8> = disk.get(65536 + 32..65536 + 48).unwrap_or_default().to_vec();
    for block in disk.chunks_exact_mut(BLOCK).filter(|block| block[32..48] == *uuid) {
        let sum = CRC32C.checksum(&block[32..]);
        block[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let mut disk = BASE.edited(edits);
    if choices & 4 != 0 {
        disk.truncate(disk.len() / 2);
    }
    if choices & 8 == 0 {
        mend(&mut disk);
    }
    platter_fuzz::walk(&disk);
    platter_fuzz::examine_region(&disk, choices & 2 != 0);
});
