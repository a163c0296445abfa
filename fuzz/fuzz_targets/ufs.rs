//! UFS: its reader. The input is one byte of choices and a list of edits to a small real filesystem, of version 1 or 2.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_fuzz::BaseDisk;

static BASES: LazyLock<[BaseDisk; 2]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/ufs1.zst")),
        BaseDisk::unpack(include_bytes!("../images/ufs2.zst")),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let mut disk = BASES[usize::from(choices & 1)].edited(edits);
    if choices & 4 != 0 {
        disk.truncate(disk.len() / 2);
    }
    platter_fuzz::examine_region(&disk, choices & 2 != 0);
});
