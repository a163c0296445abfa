//! Tests of surveys: every byte of a disk is in exactly one part, and the right bytes are kept.

use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A disk with an MBR and these partitions: type, offset, length.
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

#[expect(clippy::needless_pass_by_value, reason = "callers make it in place")]
fn look(disk: &Vec<u8>, options: SurveyOptions) -> Survey {
    let survey = survey(disk, None, &options).unwrap();
    let mut end = 0;
    for part in &survey.parts {
        assert_eq!(part.region.extent.offset, end, "parts must be contiguous");
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
fn gaps_are_kept_or_skipped() {
    let partitions = [(0x83, 2 * MIB, 2 * MIB), (0x83, 5 * MIB, MIB), (0x83, 9 * MIB, MIB)];
    let disk = disk(20 * MIB, 512, &partitions);
    let kept = look(&disk, SurveyOptions::default());
    assert_eq!((kept.used(), kept.skipped(), kept.all_notes().count()), (20 * MIB, 0, 0));
    let skipping = SurveyOptions { skip_gaps: true, ..SurveyOptions::default() };
    let survey = look(&disk, skipping);
    // Kept: the space before the first partition, a gap of 1 MiB, and the end; not the gap of 3 MiB.
    assert_eq!(allocated(&survey), [(0, 6 * MIB), (9 * MIB, 10 * MIB), (19 * MIB, 20 * MIB)]);
    assert_eq!(survey.skipped(), 12 * MIB);
    let notes: Vec<String> = survey.all_notes().collect();
    assert_eq!(notes.len(), 2);
    assert!(notes[0].contains(&format!("{} bytes from offset {} on", 3 * MIB, 6 * MIB)), "{notes:?}");
    let raw = look(&disk, SurveyOptions { raw: true, ..SurveyOptions::default() });
    assert_eq!((raw.used(), raw.parts.len(), raw.table.kind), (20 * MIB, 1, TableKind::None));
}

/// A disk, table or filesystem that states more bytes than there are was cut off.
#[test]
fn a_missing_end_is_found() {
    let whole = disk(4 * MIB, 512, &[(0x83, MIB, 3 * MIB)]);
    assert_eq!(look(&whole, SurveyOptions::default()).cut_off(), None);
    let cut = whole[..3 * MIB as usize].to_vec();
    let what = look(&cut, SurveyOptions::default()).cut_off().unwrap();
    assert!(what.contains("at least 4194304 bytes, but it has 3145728"), "{what}");
    assert_eq!(look(&cut, SurveyOptions { raw: true, ..SurveyOptions::default() }).cut_off(), None);
    let mut filesystem = vec![0; 2 * MIB as usize];
    filesystem[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
    filesystem[1024 + 4..][..4].copy_from_slice(&4096_u32.to_le_bytes());
    assert_eq!(look(&filesystem, SurveyOptions::default()).cut_off(), None, "no valid superblock, no length");
}

/// Ranges that are announced but not understood do not count as gaps, even when gaps are skipped.
#[test]
fn announced_ranges_are_not_gaps() {
    let skipping = SurveyOptions { skip_gaps: true, ..SurveyOptions::default() };
    let mut disk = disk(40 * MIB, 512, &[(0x83, MIB, MIB), (0x05, 10 * MIB, 20 * MIB)]);
    assert_eq!(
        look(&disk, skipping.clone()).used(),
        (2 + 20 + 1) * MIB,
        "an extended partition without a record"
    );
    disk[10 * MIB as usize + 446..10 * MIB as usize + 510].fill(0);
    disk[10 * MIB as usize + 510..10 * MIB as usize + 512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(look(&disk, skipping.clone()).used(), 3 * MIB + 512, "an empty one");
    disk[MIB as usize..MIB as usize + 4].copy_from_slice(b"XFSB");
    disk[32769..32774].copy_from_slice(b"CD001");
    assert_eq!(look(&disk, skipping).used(), 40 * MIB, "a disk with marks of other owners");
}

/// Marks of an earlier or later owner of the whole disk: it is unknown which use is current.
#[test]
fn marks_on_the_whole_disk_keep_all_of_it() {
    let marks: [(u64, &[u8]); 6] = [
        (1080, b"\x53\xef"),
        (0x10040, b"_BHRfS_M"),
        (32769, b"CD001"),
        (MIB, b"\x0d\xd0\x01\xc0"),
        (20 * MIB - 512, b"\xde\x11\xde\x11"),
        (20 * MIB - 1024, b"Intel Raid ISM Cfg Sig. "),
    ];
    let mut clean = disk(20 * MIB, 512, &[(0x82, 2 * MIB, 8 * MIB)]);
    put_swap(&mut clean, 2 * MIB, 8 * MIB);
    assert_eq!(look(&clean, SurveyOptions::default()).used(), 12 * MIB + 4096);
    for (offset, mark) in marks {
        let mut disk = clean.clone();
        disk[offset as usize..offset as usize + mark.len()].copy_from_slice(mark);
        let survey = look(&disk, SurveyOptions::default());
        assert_eq!(survey.used(), 20 * MIB, "{offset}");
        assert_eq!(survey.parts[1].filesystem, "swap", "it is still reported");
        let notes: Vec<String> = survey.all_notes().collect();
        assert!(notes.len() == 1 && notes[0].ends_with("the whole disk is stored"), "{notes:?}");
    }
}

/// At the end of a disk, a partition's mark may be where a mark of the disk would be.
#[test]
fn marks_of_the_last_partition_are_not_those_of_the_disk() {
    let mut disk = disk(20 * MIB, 512, &[(0x82, 2 * MIB, 8 * MIB), (0xfd, 10 * MIB, 10 * MIB)]);
    put_swap(&mut disk, 2 * MIB, 8 * MIB);
    let at = 20 * MIB as usize - (64 << 10);
    disk[at..at + 4].copy_from_slice(b"\xfc\x4e\x2b\xa9");
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!(survey.parts[2].filesystem, "linux_raid_member");
    assert_eq!(survey.used(), 12 * MIB + 4096);
}

/// A boot record on a disk that is a single filesystem: invalid entries, or a GPT that is not announced.
#[test]
fn swap_on_the_whole_disk_with_a_boot_record() {
    let mut clean = vec![0xcc; 8 * MIB as usize];
    put_swap(&mut clean, 0, 8 * MIB);
    assert_eq!(look(&clean, SurveyOptions::default()).used(), 4096);
    let record = |disk: &mut Vec<u8>, mark: u8| {
        disk[446] = mark;
        disk[450] = 0x83;
        disk[455] = 1;
        disk[459] = 1;
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    };
    let mut odd = clean.clone();
    record(&mut odd, 0x01);
    let mut table = clean.clone();
    record(&mut table, 0x80);
    let mut backup = clean.clone();
    backup[8 * MIB as usize - 512..][..8].copy_from_slice(b"EFI PART");
    let mut label = clean.clone();
    label[512..516].copy_from_slice(b"\x57\x45\x56\x82");
    for disk in [odd, table, backup, label] {
        let survey = look(&disk, SurveyOptions::default());
        assert_eq!(survey.used(), 8 * MIB);
        assert!(survey.all_notes().count() > 0);
    }
    clean[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(look(&clean, SurveyOptions::default()).used(), 4096, "a boot record without entries");
}

/// A filesystem inside a container that is not understood.
#[test]
fn swap_in_a_container_is_kept_in_full() {
    for (kind, at, mark) in [
        (0xa5, 0, &b""[..]),
        (0x8e, 0, b""),
        (0xfd, 0, b""),
        (0x83, 512, b"\x57\x45\x56\x82"),
        (0x83, 524, b"\xee\xde\x0d\x60"),
        (0x83, 512, b"EFI PART"),
        (0x81, 450, b"\x81\0\0\0\x01\0\0\0\x01\0\0\0"),
    ] {
        let mut disk = disk(20 * MIB, 512, &[(kind, 2 * MIB, 8 * MIB)]);
        put_swap(&mut disk, 2 * MIB, 8 * MIB);
        let at = 2 * MIB as usize + at;
        disk[at..at + mark.len()].copy_from_slice(mark);
        disk[2 * MIB as usize + 510..][..2].copy_from_slice(&[0x55, 0xaa]);
        let survey = look(&disk, SurveyOptions::default());
        assert_eq!((survey.used(), survey.all_notes().count()), (20 * MIB, 1), "{kind:#x} {mark:?}");
    }
}

#[test]
fn filesystems_are_found_by_their_own_marks() {
    // The partition type says NTFS, but it is swap.
    let mut disk = disk(10 * MIB, 512, &[(0x07, MIB, 4 * MIB), (0x82, 5 * MIB, 4 * MIB)]);
    put_swap(&mut disk, MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!(survey.parts[1].filesystem, "swap");
    assert_eq!((survey.parts[1].used, survey.parts[1].partition), (4096, Some(1)));
    assert_eq!((survey.parts[2].used, survey.parts[2].filesystem.as_str()), (4 * MIB, ""));
}

#[test]
fn overlapping_partitions_are_kept_in_full() {
    let mut disk =
        disk(20 * MIB, 512, &[(0x83, 2 * MIB, 4 * MIB), (0x83, 5 * MIB, 4 * MIB), (0x83, 18 * MIB, 9 * MIB)]);
    put_swap(&mut disk, 2 * MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!(survey.used(), 20 * MIB);
    let skipping = look(&disk, SurveyOptions { skip_gaps: true, ..SurveyOptions::default() });
    assert_eq!(allocated(&skipping), [(0, 9 * MIB), (18 * MIB, 20 * MIB)]);
    assert!(survey.parts.iter().all(|part| part.filesystem == "unallocated"));
}

#[test]
fn a_table_for_4096_byte_sectors_in_a_plain_file() {
    let mut disk = disk(20 * MIB, 4096, &[(0x82, 8 * MIB, 4 * MIB)]);
    put_swap(&mut disk, 8 * MIB, 4 * MIB);
    let survey = look(&disk, SurveyOptions::default());
    assert_eq!((survey.sector_size, survey.parts[1].filesystem.as_str()), (4096, "swap"));
    assert_eq!(survey.used(), 20 * MIB, "nothing proves that its sectors have 4096 bytes");
}

#[test]
fn tiny_and_unaligned_disks() {
    for length in [0, 512, 1024, 4096] {
        let disk = vec![0xaa; length];
        assert_eq!(look(&disk, SurveyOptions::default()).used(), length as u64);
    }
    let unaligned = survey(&vec![0; 700], None, &SurveyOptions::default()).unwrap_err();
    assert_eq!(unaligned.kind(), platter_image::ErrorKind::Refused);
}

#[test]
fn holes_are_stored_as_zeros() {
    let disk = disk(10 * MIB, 512, &[(0x83, MIB, 4 * MIB)]);
    let data = Extents::from_unsorted(vec![Extent::new(0, 4096), Extent::new(2 * MIB, MIB)]);
    let survey = survey(&disk, Some(&data), &SurveyOptions::default()).unwrap();
    assert_eq!(survey.parts[1].region.allocated.total(), 4 * MIB, "it is still kept");
    let zeroed: Vec<Extent> = survey.parts[1].region.zeroed.iter().copied().collect();
    assert_eq!(zeroed, [Extent::new(MIB, MIB), Extent::new(3 * MIB, 2 * MIB)]);
}

proptest! {
    /// Arbitrary first sectors cause no panic, and the parts cover the disk.
    #[test]
    fn arbitrary_tables_do_not_panic(head in prop::collection::vec(any::<u8>(), 2048), entries in prop::collection::vec((0..8_u8, 0..40_u32, 0..60_u32), 4)) {
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
