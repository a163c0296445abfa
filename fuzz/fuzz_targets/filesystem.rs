//! Filesystems: the survey of a disk. The input is one byte of choices and a list of edits to a small real one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_disk::{SurveyOptions, survey};
use platter_fuzz::BaseDisk;
use platter_image::{ErrorKind, Extent, Extents};

static BASES: LazyLock<[BaseDisk; 4]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/ext2.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4-checksums.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4-journal.zst")),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let mut disk = BASES[usize::from(choices & 3)].edited(edits);
    if choices & 0x10 != 0 {
        disk.truncate(disk.len() / 2);
    }
    platter_fuzz::walk(&disk);
    let options = SurveyOptions {
        force: choices & 4 != 0,
        all: false,
        raw: choices & 0xe0 == 0xe0,
        skip_gaps: choices & 8 != 0,
        choices: Default::default(),
    };
    // If holes are known, every other 4 KiB is one.
    let data: Extents = (0..disk.len() as u64 / 8192).map(|n| Extent::new(n * 8192, 4096)).collect();
    let data = (choices & 0x20 != 0).then_some(&data);
    let survey = match survey(&disk, data, &options) {
        Ok(survey) => survey,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            assert!(!options.force, "refused, though forced: {error}");
            return;
        }
    };
    let mut position = 0;
    for part in &survey.parts {
        assert_eq!(part.region.extent.offset, position, "parts do not follow one another");
        position = part.region.extent.end();
        part.region.check().expect("a region keeps its promises");
        assert!(part.used <= part.region.extent.length);
    }
    assert_eq!(position, disk.len() as u64, "the parts are not the whole disk");
});
