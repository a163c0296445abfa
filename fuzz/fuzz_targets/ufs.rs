//! UFS: its reader. The input is one byte of choices and a list of edits to a small real filesystem, of version 1 or 2.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_filesystem::{ExamineOptions, Owners, Trust, examine};
use platter_fuzz::BaseDisk;
use platter_image::{ErrorKind, Extent};

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
    let extent = Extent::new(0, disk.len() as u64);
    let owners = Owners::find(&disk, extent).expect("memory can be read");
    let force = choices & 2 != 0;
    match examine(&disk, extent, &owners, Trust::Sole, ExamineOptions { force, all: false }) {
        Ok(contents) => contents.into_region(extent).check().expect("a region keeps its promises"),
        Err(error) => assert!(error.kind() == ErrorKind::Refused && !force, "{error}"),
    }
});
