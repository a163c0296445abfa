//! Tests of surveys: that every byte of a disk is in one part, and which bytes count.

use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A disk with an MBR of these partitions: type, first byte, length.
fn disk(length: u64, sector: u64, partitions: &[(u8, u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0xcc; length as usize];
    disk[440..512].fill(0);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (slot, (kind, start, length)) in partitions.iter().enumerate() {
        let at = 446 + slot * 16;
        disk[at + 4] = *kind;
        disk[at + 8..at + 12].copy_from_slice(&((start / sector) as u32).to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&((length / sector) as u32).to_le_bytes());
    }
    disk
}

fn put_swap(disk: &mut [u8], start: u64, length: u64) {
    let start = start as usize;
    disk[start..start + 4096].fill(0);
    disk[start + 1024] = 1;
    disk[start + 1028..start + 1032].copy_from_slice(&((length / 4096) as u32 - 1).to_le_bytes());
    disk[start + 4086..start + 4096].copy_from_slice(b"SWAPSPACE2");
}

fn look(disk: &Vec<u8>, options: SurveyOptions) -> Survey {
    let survey = survey(disk, None, &options).unwrap();
    let mut end = 0;
    for part in &survey.parts {
        assert_eq!(part.region.extent.offset, end, "parts follow each other");
        end = part.region.extent.end();
    }
    assert_eq!(end, disk.len() as u64);
    survey
}

fn allocated(survey: &Survey) -> Vec<(u64, u64)> {
    let all: Extents = survey.parts.iter().flat_map(|part| &part.region.allocated).copied().collect();
    all.iter().map(|extent| (extent.offset, extent.end())).collect()
}

#[test]
fn gaps() {
    let partitions = [(0x83, 2 * MIB, 2 * MIB), (0x83, 5 * MIB, MIB), (0x83, 9 * MIB, MIB)];
    let disk = disk(20 * MIB, 512, &partitions);
    let survey = look(&disk, SurveyOptions::default());
    // The room in front, a gap of 1 MiB, none of 3 MiB, the end.
    assert_eq!(allocated(&survey), [(0, 6 * MIB), (9 * MIB, 10 * MIB), (19 * MIB, 20 * MIB)]);
    let notes: Vec<String> = survey.all_notes().collect();
    assert_eq!(notes.len(), 2);
    assert!(notes[0].contains(&format!("{} bytes from {} on", 3 * MIB, 6 * MIB)), "{notes:?}");
    let kept = look(&disk, SurveyOptions { keep_gaps: true, ..SurveyOptions::default() });
    assert_eq!((kept.used(), kept.all_notes().count()), (20 * MIB, 0));
    let raw = look(&disk, SurveyOptions { raw: true, ..SurveyOptions::default() });
    assert_eq!((raw.used(), raw.parts.len(), raw.table.kind), (20 * MIB, 1, TableKind::None));
}

#[test]
fn filesystems_are_found_by_themselves() {
    // The type byte says NTFS, and it is swap.
    let mut disk = disk(10 * MIB, 512, &[(0x07, MIB, 4 * MIB), (0x82, 5 * MIB, 4 * MIB)]);
    put_swap(&mut disk, MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!(survey.parts[1].filesystem, "swap");
    assert_eq!((survey.parts[1].used, survey.parts[1].partition), (4096, Some(1)));
    assert_eq!((survey.parts[2].used, survey.parts[2].filesystem.as_str()), (4 * MIB, ""));
}

#[test]
fn what_overlaps_is_taken_whole() {
    let mut disk =
        disk(20 * MIB, 512, &[(0x83, 2 * MIB, 4 * MIB), (0x83, 5 * MIB, 4 * MIB), (0x83, 18 * MIB, 9 * MIB)]);
    put_swap(&mut disk, 2 * MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!(allocated(&survey), [(0, 9 * MIB), (18 * MIB, 20 * MIB)]);
    assert!(survey.parts.iter().all(|part| part.filesystem == "unallocated"));
}

#[test]
fn sectors_of_4096_bytes_in_a_file_that_does_not_say_so() {
    let mut disk = disk(20 * MIB, 4096, &[(0x82, 8 * MIB, 4 * MIB)]);
    put_swap(&mut disk, 8 * MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!((survey.sector_size, survey.parts[1].filesystem.as_str()), (4096, "swap"));
}

#[test]
fn odd_disks() {
    for length in [0, 512, 1024, 4096] {
        let disk = vec![0xaa; length];
        assert_eq!(look(&disk, SurveyOptions::default()).used(), length as u64);
    }
    let unaligned = survey(&vec![0; 700], None, &SurveyOptions::default()).unwrap_err();
    assert_eq!(unaligned.kind(), platter_image::ErrorKind::Refused);
}

#[test]
fn holes_are_zeros() {
    let disk = disk(10 * MIB, 512, &[(0x83, MIB, 4 * MIB)]);
    let data = Extents::from_unsorted(vec![Extent::new(0, 4096), Extent::new(2 * MIB, MIB)]);
    let survey = survey(&disk, Some(&data), &SurveyOptions::default()).unwrap();
    assert_eq!(survey.parts[1].region.allocated.total(), 4 * MIB, "it still counts");
    let zeroed: Vec<Extent> = survey.parts[1].region.zeroed.iter().copied().collect();
    assert_eq!(zeroed, [Extent::new(MIB, MIB), Extent::new(3 * MIB, 2 * MIB)]);
}

proptest! {
    /// Whatever stands in the first sectors: no panic, and parts that cover the disk.
    #[test]
    fn any_table(head in prop::collection::vec(any::<u8>(), 2048), entries in prop::collection::vec((0..8_u8, 0..40_u32, 0..60_u32), 4)) {
        let mut disk = vec![0; 32 * 512];
        disk[..2048].copy_from_slice(&head);
        for sector in 0..8 {
            let at = sector * 3 * 512;
            for (slot, (kind, start, sectors)) in entries.iter().enumerate() {
                let entry = at + 446 + slot * 16;
                disk[entry..entry + 16].fill(0);
                disk[entry + 4] = *kind;
                disk[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
                disk[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
            }
            disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
        }
        look(&disk, SurveyOptions::default());
    }
}
