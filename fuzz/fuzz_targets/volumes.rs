//! Volumes of LVM and members of RAID 1: the survey of a disk, and the files on its volumes. The input is one byte of choices and a
//! list of edits to a small real disk.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_disk::{SurveyOptions, survey, survey::read_table};
use platter_filesystem::{FilesystemPlace, PlaceContents, logical_volumes};
use platter_fuzz::{BaseDisk, visit};
use platter_image::{ErrorKind, Extent};

static BASES: LazyLock<[BaseDisk; 3]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/lvm.zst")),
        BaseDisk::unpack(include_bytes!("../images/raid-0.90.zst")),
        BaseDisk::unpack(include_bytes!("../images/raid-1.2.zst")),
    ]
});

const SECTOR: usize = 512;

fn number(disk: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(disk[at..at + 8].try_into().expect("8 bytes"))
}

fn put(disk: &mut [u8], at: usize, number: u32) {
    disk[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// The CRC-32 of LVM.
fn crc<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> u32 {
    bytes.into_iter().fold(0xf597_a6cf, |crc, byte| {
        let step = |crc: u32, _| crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0xedb8_8320 };
        (0..8).fold(crc ^ u32::from(*byte), step)
    })
}

/// Corrects the checksums of labels, of metadata in areas that are one piece, and of superblocks.
fn mend(disk: &mut [u8]) {
    for at in (0..disk.len() - 4096).step_by(SECTOR) {
        if disk[at..].starts_with(b"LABELONE") {
            let sum = crc(&disk[at + 20..at + SECTOR]);
            put(disk, at + 16, sum);
        } else if disk[at + 4..].starts_with(b" LVM2 x[5A%r0N*>") {
            let (offset, length) = (number(disk, at + 40) as usize, number(disk, at + 48) as usize);
            let text = at.checked_add(offset).and_then(|start| Some(start..start.checked_add(length)?));
            if let Some(text) = text.filter(|text| text.len() < 64 << 10).and_then(|text| disk.get(text)) {
                let sum = crc(text);
                put(disk, at + 56, sum);
            }
            let sum = crc(&disk[at + 4..at + SECTOR]);
            put(disk, at, sum);
        } else if disk[at..].starts_with(b"\xfc\x4e\x2b\xa9") {
            let word = |disk: &[u8], index: usize| number(disk, at + index * 4) & 0xffff_ffff;
            let (field, count) = match word(disk, 1) {
                0 => (38, 1024),
                _ => (54, 64 + (word(disk, 55) as usize / 2).min(900)),
            };
            put(disk, at + field * 4, 0);
            let sum: u64 = (0..count).map(|index| word(disk, index)).sum();
            put(disk, at + field * 4, (sum as u32).wrapping_add((sum >> 32) as u32));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let base = usize::from(choices & 7) % BASES.len();
    let mut disk = BASES[base].edited(edits);
    if choices & 0x40 == 0 {
        mend(&mut disk);
    }
    if choices & 0x10 != 0 {
        disk.truncate(disk.len() / 2 / SECTOR * SECTOR);
    }
    let table = read_table(&disk).expect("a disk in memory");
    let mut extents: Vec<Extent> = table
        .partitions
        .iter()
        .filter(|partition| partition.trusted)
        .map(|partition| partition.extent)
        .collect();
    if extents.is_empty() {
        extents.push(Extent::new(0, disk.len() as u64));
    }
    let mut places: Vec<FilesystemPlace> = extents.into_iter().map(FilesystemPlace::Partition).collect();
    let contents: Vec<PlaceContents> =
        places.iter().map(|place| place.probe(&disk).expect("a disk in memory")).collect();
    let volumes = logical_volumes(&disk, &contents).volumes.into_iter();
    places.extend(volumes.map(|(_, volume)| FilesystemPlace::Volume(volume)));
    for place in places {
        assert!(place.offset() < disk.len() as u64, "a place is behind the disk");
        match place.probe(&disk).expect("a disk in memory").open(&disk) {
            Some(Ok(mut files)) => visit(&mut *files),
            Some(Err(error)) => assert_ne!(error.kind(), ErrorKind::Bug, "{error}"),
            None => {}
        }
    }
    let options = SurveyOptions { force: choices & 8 != 0, ..SurveyOptions::default() };
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
        let notes: Vec<String> = survey.all_notes().collect();
        assert!(survey.used() < disk.len() as u64, "base {base} has free space: {notes:?}");
    }
});
