//! FAT, exFAT and NTFS: the survey of a disk. The input is one byte of choices and a list of edits to a small real one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_disk::{SurveyOptions, survey};
use platter_fuzz::BaseDisk;
use platter_image::ErrorKind;

/// The number of the base that has checksums, which edits break.
const EXFAT: usize = 3;

static BASES: LazyLock<[BaseDisk; 5]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/fat12.zst")),
        BaseDisk::unpack(include_bytes!("../images/fat16.zst")),
        BaseDisk::unpack(include_bytes!("../images/fat32.zst")),
        BaseDisk::unpack(include_bytes!("../images/exfat.zst")),
        BaseDisk::unpack(include_bytes!("../images/ntfs.zst")),
    ]
});

/// Corrects the checksums of the boot region, and of all sets of directory entries.
fn mend(disk: &mut [u8]) {
    let add = |sum: u32, byte: &u8| sum.rotate_right(1).wrapping_add(u32::from(*byte));
    let counted = disk[..11 * 512].iter().enumerate().filter(|(at, _)| !matches!(at, 106 | 107 | 112));
    let sum = counted.map(|(_, byte)| byte).fold(0, add);
    for word in disk[11 * 512..12 * 512].chunks_exact_mut(4) {
        word.copy_from_slice(&sum.to_le_bytes());
    }
    for start in (0..disk.len()).step_by(32) {
        let length = 32 * (usize::from(disk[start + 1]) + 1);
        if disk[start] != 0x85 || start + length > disk.len() || length > 32 * 19 {
            continue;
        }
        let set = &mut disk[start..start + length];
        let counted = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = counted.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)));
        set[2..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let base = usize::from(choices & 7) % BASES.len();
    let mut disk = BASES[base].edited(edits);
    if base == EXFAT && choices & 0x40 == 0 {
        mend(&mut disk);
    }
    if choices & 0x10 != 0 {
        disk.truncate(disk.len() / 2);
    }
    platter_fuzz::walk(&disk);
    let options =
        SurveyOptions { force: choices & 8 != 0, all: choices & 0x20 != 0, ..SurveyOptions::default() };
    let survey = match survey(&disk, None, &options) {
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
    if input.len() == 1 && choices & 0x10 == 0 {
        assert!(survey.used() < disk.len() as u64, "base {base} has free space: {:?}", survey.parts[0].notes);
    }
});
