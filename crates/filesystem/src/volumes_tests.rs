//! Tests of volumes: disks whose metadata is written here, with swap areas on the logical volumes.

use super::*;
use crate::checksum::crc32_lvm;
use crate::{FilesystemPlace, Found, PlaceContents, examine, logical_volumes};
use platter_image::chunking::Region;
use std::io;

const SECTOR: u64 = 512;
const KIB: u64 = 1 << 10;
/// The length of an extent, and where extents begin on a physical volume.
const PE: u64 = 64 * KIB;
const START: u64 = 128 * KIB;
/// Where the area for metadata is, and its length.
const AREA: u64 = 4 * KIB;
const AREA_LENGTH: u64 = 60 * KIB;
/// The length of a physical volume: it has 20 extents, and something behind them.
const LENGTH: u64 = START + 20 * PE + 24 * KIB;

const UUIDS: [&str; 2] = ["abcdef-0123-4567-89ab-cdef-0123-456789", "ABCDEF-0123-4567-89ab-cdef-0123-456789"];

fn put(disk: &mut [u8], offset: u64, bytes: &[u8]) {
    disk[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
}

/// Writes the label and the metadata of a physical volume to `offset`.
fn put_volume(disk: &mut [u8], offset: u64, uuid: &str, text: &str) {
    let mut label = [0; 512];
    put(&mut label, 0, b"LABELONE");
    put(&mut label, 8, &1_u64.to_le_bytes());
    put(&mut label, 20, &32_u32.to_le_bytes());
    put(&mut label, 24, b"LVM2 001");
    put(&mut label, 32, uuid.replace('-', "").as_bytes());
    for (at, number) in [(64, LENGTH), (72, START), (104, AREA), (112, AREA_LENGTH)] {
        put(&mut label, at, &number.to_le_bytes());
    }
    put(&mut label, 136, &2_u32.to_le_bytes());
    put(&mut label, 140, &1_u32.to_le_bytes());
    put(disk, offset + SECTOR, &label);
    let mut header = [0; 512];
    put(&mut header, 4, b" LVM2 x[5A%r0N*>");
    put(&mut header, 20, &1_u32.to_le_bytes());
    // The text begins near the end of the ring.
    let at = AREA_LENGTH - 100;
    for (field, number) in [(24, AREA), (32, AREA_LENGTH), (40, at), (48, text.len() as u64)] {
        put(&mut header, field, &number.to_le_bytes());
    }
    put(disk, offset + AREA, &header);
    let (first, rest) = text.as_bytes().split_at(100);
    put(disk, offset + AREA + at, first);
    put(disk, offset + AREA + 512, rest);
    mend(disk, offset);
}

/// Corrects the checksums of a physical volume.
fn mend(disk: &mut [u8], offset: u64) {
    let start = offset as usize + 512;
    let sum = crc32_lvm(&disk[start + 20..start + 512]);
    put(disk, offset + 512 + 16, &sum.to_le_bytes());
    let area = (offset + AREA) as usize;
    let number =
        |disk: &[u8], at: usize| u64::from_le_bytes(disk[area + at..area + at + 8].try_into().unwrap());
    let (at, length) = (number(disk, 40), number(disk, 48));
    if (512..AREA_LENGTH).contains(&at) && length <= AREA_LENGTH - 512 {
        let first = length.min(AREA_LENGTH - at) as usize;
        let mut text = disk[area + at as usize..][..first].to_vec();
        text.extend(&disk[area + 512..][..length as usize - first]);
        put(disk, offset + AREA + 56, &crc32_lvm(&text).to_le_bytes());
    }
    let sum = crc32_lvm(&disk[area + 4..area + 512]);
    put(disk, offset + AREA, &sum.to_le_bytes());
}

/// A disk with these physical volumes, and with 0xaa wherever there is no metadata.
fn disk(volumes: usize, text: &str) -> Vec<u8> {
    let mut disk = vec![0xaa; (LENGTH * volumes as u64) as usize];
    for (index, uuid) in UUIDS.iter().take(volumes).enumerate() {
        let offset = index as u64 * LENGTH;
        disk[offset as usize..(offset + START) as usize].fill(0);
        put_volume(&mut disk, offset, uuid, text);
    }
    disk
}

fn segment(number: u32, start: u64, count: u64, rest: &str) -> String {
    format!("segment{number} {{\nstart_extent = {start}\nextent_count = {count}\n{rest}\n}}\n")
}

fn linear(number: u32, start: u64, count: u64, first: u64) -> String {
    segment(
        number,
        start,
        count,
        &format!("type = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", {first}]"),
    )
}

fn logical(name: &str, status: &str, segments: &[String]) -> String {
    format!(
        "{name} {{\nid = \"x\"\nstatus = [{status}]\nflags = []\nsegment_count = {}\n{}}}\n",
        segments.len(),
        segments.concat()
    )
}

const USUAL: &str = "\"READ\", \"WRITE\", \"VISIBLE\"";

/// The text of a group with these volumes.
fn text(physical: usize, logical: &[String]) -> String {
    let volumes = UUIDS.iter().take(physical).enumerate().map(|(index, uuid)| {
        format!(
            "pv{index} {{\nid = \"{uuid}\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\npe_start = {}\npe_count = 20\n}}\n",
            START / SECTOR
        )
    });
    format!(
        "vg {{\nid = \"g\"\nseqno = 3\nformat = \"lvm2\"\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\n\
         extent_size = {}\nphysical_volumes {{\n{}}}\nlogical_volumes {{\n{}}}\n}}\n\
         # Generated\ncontents = \"Text Format Volume Group\"\nversion = 1\n\0",
        PE / SECTOR,
        volumes.collect::<String>(),
        logical.concat()
    )
}

/// A swap area of that many pages of 4 KiB at the start of a volume: only its first page is kept.
fn swap() -> Vec<u8> {
    let mut page = vec![0; 4096];
    put(&mut page, 1024, &1_u32.to_le_bytes());
    put(&mut page, 1028, &31_u32.to_le_bytes());
    put(&mut page, 4086, b"SWAPSPACE2");
    page
}

/// A volume of two segments with a swap area of its whole length, a free extent, and a volume with something unknown.
fn usual() -> (Vec<u8>, Extents) {
    let swapped = logical("swapped", USUAL, &[linear(1, 0, 1, 7), linear(2, 1, 1, 3)]);
    let unknown = logical("unknown", USUAL, &[linear(1, 0, 2, 18)]);
    let mut disk = disk(1, &text(1, &[swapped, unknown]));
    put(&mut disk, START + 7 * PE, &swap());
    let kept = [
        Extent::new(0, START),
        Extent::new(START + 7 * PE, 4096),
        Extent::new(START + 18 * PE, 2 * PE + 24 * KIB),
    ];
    (disk, kept.into_iter().collect())
}

fn contents(disk: &Vec<u8>) -> Contents {
    let extent = Extent::new(0, disk.len() as u64);
    let owners = Owners::find(disk, extent).unwrap();
    let found = examine(disk, extent, &owners, Trust::Sole, ExamineOptions::default()).unwrap();
    found.clone().into_region(extent).check().unwrap();
    found
}

#[test]
fn free_extents_and_free_space_on_volumes_are_dropped() {
    let (disk, kept) = usual();
    let found = contents(&disk);
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!((found.filesystem.as_str(), found.uuid.as_deref()), ("LVM2_member", Some(UUIDS[0])));
    assert_eq!(found.allocated, kept);
}

#[test]
fn a_striped_volume_is_on_two_physical_volumes() {
    let striped = "type = \"striped\"\nstripe_count = 2\nstripe_size = 8\nstripes = [\"pv0\", 4, \"pv1\", 0]";
    let volumes = [logical("striped", USUAL, &[linear(1, 0, 1, 0), segment(2, 1, 6, striped)])];
    let mut disk = disk(2, &text(2, &volumes));
    // The area has 32 pages, of 112.
    put(&mut disk, START, &swap());
    let extents = [Extent::new(0, LENGTH), Extent::new(LENGTH, LENGTH)];
    let found = examine_volumes(&disk, &extents, ExamineOptions::default()).unwrap();
    // Of the first segment 16 pages; of the second 16 pages in turn; the rest is behind the area, and kept.
    let expected = |start: u64, used: &[Extent]| -> Extents {
        let outside = [Extent::new(start, START), Extent::new(start + START + 20 * PE, 24 * KIB)];
        used.iter().chain(&outside).copied().collect()
    };
    let half = 3 * PE - 8 * 4096;
    let first = [Extent::new(START, 4096), Extent::new(START + 4 * PE + 8 * 4096, half)];
    assert_eq!(found[0].allocated, expected(0, &first));
    assert_eq!(found[1].allocated, expected(LENGTH, &[Extent::new(LENGTH + START + 8 * 4096, half)]));
    assert!(found.iter().all(|one| one.notes.is_empty()));
    // Without its twin, a physical volume is kept.
    let alone = examine_volumes(&disk, &extents[..1], ExamineOptions::default()).unwrap();
    assert_eq!(alone[0].allocated.total(), LENGTH);
    assert!(
        alone[0].notes[0].contains("has 2 physical volumes, of which this disk has 1"),
        "{:?}",
        alone[0].notes
    );
}

/// A disk of which a part cannot be read.
struct Damaged<'d> {
    disk: &'d Vec<u8>,
    lost: Extent,
}

impl DiskRead for Damaged<'_> {
    fn length(&self) -> u64 {
        self.disk.len() as u64
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.lost.intersect(&Extent::new(offset, buffer.len() as u64)) {
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => self.disk.read_exact_at(buffer, offset),
        }
    }
}

/// Two groups, each on one physical volume with two volumes, of which the first has a swap area.
fn two_groups() -> Vec<u8> {
    let volumes = [
        logical("swapped", USUAL, &[linear(1, 0, 2, 4)]),
        logical("empty", USUAL, &[linear(1, 0, 1, 8), linear(2, 1, 1, 3)]),
        logical("locked", "\"LOCKED\"", &[linear(1, 0, 1, 12)]),
    ];
    let first = text(1, &volumes);
    let second = first.replace(UUIDS[0], UUIDS[1]).replacen("vg {", "v-g {", 1);
    let mut disk = disk(2, &first);
    disk[LENGTH as usize..(LENGTH + START) as usize].fill(0);
    put_volume(&mut disk, LENGTH, UUIDS[1], &second);
    for start in [START, LENGTH + START] {
        put(&mut disk, start + 4 * PE, &swap());
    }
    disk
}

/// A logical volume: the index of the physical volume in which it begins, its name, and whether swap is on it (`None`: it cannot be
/// read).
type FoundVolume = (usize, String, Option<bool>);

/// The logical volumes, and the indices of the physical volumes that were not looked through. Physical volumes are searched for on an intact disk, because their marks are
/// searched for in the whole area for metadata.
fn found_on(intact: &Vec<u8>, disk: &dyn DiskRead) -> (Vec<FoundVolume>, Vec<usize>) {
    let places = [Extent::new(0, LENGTH), Extent::new(LENGTH, LENGTH)].map(FilesystemPlace::Partition);
    let physical: Vec<PlaceContents> = places.iter().map(|place| place.probe(intact).unwrap()).collect();
    assert!(physical.iter().all(PlaceContents::is_physical_volume));
    let found = logical_volumes(disk, &physical);
    let volumes = found.volumes.into_iter().map(|(index, volume)| {
        let name = volume.name().to_owned();
        let contents = FilesystemPlace::Volume(volume).probe(disk).ok();
        (index, name, contents.map(|contents| matches!(contents.found, Found::Swap(_))))
    });
    (volumes.collect(), found.failed.into_iter().map(|(index, _)| index).collect())
}

#[test]
fn damage_affects_one_volume_or_group() {
    let disk = two_groups();
    let volume = |index, name: &str, contents| (index, name.to_owned(), contents);
    let all = vec![
        volume(1, "v--g-empty", Some(false)),
        volume(1, "v--g-swapped", Some(true)),
        volume(0, "vg-empty", Some(false)),
        volume(0, "vg-swapped", Some(true)),
    ];
    assert_eq!(found_on(&disk, &disk), (all.clone(), vec![]));
    // The text of the second group.
    let text = Extent::new(LENGTH + AREA + AREA_LENGTH - 100, 10);
    assert_eq!(found_on(&disk, &Damaged { disk: &disk, lost: text }), (all[2..].to_vec(), vec![1]));
    let on_a_volume = Extent::new(START + 4 * PE, 10);
    let mut lost = all;
    lost[3].2 = None;
    assert_eq!(found_on(&disk, &Damaged { disk: &disk, lost: on_a_volume }), (lost, vec![]));
}

/// Volumes that are not simple are kept in full; others beside them are read.
#[test]
fn composed_volumes_are_kept_in_full() {
    let pool = segment(1, 0, 2, "type = \"thin-pool\"\nmetadata = \"pool_tmeta\"\npool = \"pool_tdata\"");
    let snapshot =
        segment(1, 0, 2, "type = \"snapshot\"\nchunk_size = 8\norigin = \"origin\"\ncow_store = \"cow\"");
    for (volumes, used, reasons) in [
        (
            vec![
                logical("pool", USUAL, &[pool]),
                logical("pool_tmeta", "\"READ\", \"WRITE\"", &[linear(1, 0, 1, 0)]),
                logical("pool_tdata", "\"READ\", \"WRITE\"", &[linear(1, 0, 2, 2)]),
            ],
            vec![(0, 1), (2, 2)],
            vec!["vg/pool_tdata is stored in full: it is a part", "vg/pool_tmeta is stored"],
        ),
        (
            vec![
                logical("snapshot0", "\"READ\"", &[snapshot]),
                logical("origin", USUAL, &[linear(1, 0, 2, 2)]),
                logical("cow", USUAL, &[linear(1, 0, 1, 0)]),
            ],
            vec![(0, 1), (2, 2)],
            vec!["vg/cow is stored in full: another logical volume uses it", "vg/origin"],
        ),
        (
            vec![
                logical(
                    "moved",
                    USUAL,
                    &[segment(1, 0, 2, "type = \"striped\"\nstripe_count = 1\nstripes = [\"below\", 0]")],
                ),
                logical("below", "\"READ\", \"WRITE\", \"LOCKED\"", &[linear(1, 0, 2, 2)]),
            ],
            vec![(2, 2)],
            vec!["vg/below"],
        ),
        (
            vec![logical("odd", "\"READ\", \"VISIBLE\", \"NEW\"", &[linear(1, 0, 2, 2)])],
            vec![(2, 2)],
            vec!["vg/odd is stored in full: it has the flag NEW"],
        ),
    ] {
        let mut all = volumes.clone();
        all.push(logical("swapped", USUAL, &[linear(1, 0, 2, 10)]));
        let mut disk = disk(1, &text(1, &all));
        // What looks like a swap area in a composed volume is none.
        for (first, _) in &used {
            put(&mut disk, START + first * PE, &swap());
        }
        put(&mut disk, START + 10 * PE, &swap());
        let found = contents(&disk);
        let mut expected = vec![Extent::new(0, START), Extent::new(START + 20 * PE, 24 * KIB)];
        expected.push(Extent::new(START + 10 * PE, 4096));
        expected.extend(used.iter().map(|(first, count)| Extent::new(START + first * PE, count * PE)));
        assert_eq!(found.allocated, Extents::from_unsorted(expected), "{reasons:?}");
        assert_eq!(found.notes.len(), reasons.len(), "{:?}", found.notes);
        for (note, reason) in found.notes.iter().zip(reasons) {
            assert!(note.contains(reason), "{note}, not {reason}");
        }
    }
}

/// Groups that leave a doubt are kept in full.
#[test]
fn doubtful_groups_are_kept_in_full() {
    let volume = |segments: &[String]| {
        text(1, &[logical("a", USUAL, segments), logical("b", USUAL, &[linear(1, 0, 1, 9)])])
    };
    let good = volume(&[linear(1, 0, 2, 3)]);
    let on = |name: &str| {
        segment(1, 0, 2, &format!("type = \"striped\"\nstripe_count = 1\nstripes = [\"{name}\", 0]"))
    };
    let loop_of_two = text(
        1,
        &[
            logical("a", USUAL, &[on("b")]),
            logical("b", USUAL, &[on("a")]),
            logical("c", USUAL, &[linear(1, 0, 2, 3)]),
        ],
    );
    for (text, reason) in [
        (volume(&[on("a")]), "logical volume a is made of itself"),
        (loop_of_two, "logical volume a is made of itself"),
        (volume(&[linear(1, 0, 2, 19)]), "ends behind its physical volume"),
        (volume(&[linear(1, 0, 1, 20)]), "ends behind its physical volume"),
        (volume(&[linear(1, 0, 2, 8)]), "a and b have an extent in common"),
        (volume(&[linear(1, 0, 2, 3), linear(2, 2, 1, 4)]), "have an extent in common"),
        (volume(&[linear(1, 0, 2, 3), linear(2, 3, 1, 6)]), "leave out or repeat extent 2"),
        (volume(&[linear(1, 1, 2, 3)]), "leave out or repeat extent 0"),
        (volume(&[linear(1, 0, 0, 3)]), "impossible length"),
        (volume(&[linear(1, u64::MAX, 2, 3)]), "impossible length"),
        (volume(&[segment(1, 0, 2, "type = \"new\"")]), "its type new is not known"),
        (
            volume(&[segment(1, 0, 2, "type = \"mirror\"\nmirrors = [\"pv0\", 3, \"pv0\", 5]")]),
            "of type mirror, it uses a physical volume directly",
        ),
        (volume(&[segment(1, 0, 2, "type = \"error\"\nnext = \"pv0\"")]), "uses a physical volume directly"),
        (good.replace("[\"RESIZEABLE\"", "[\"EXPORTED\""), "it has the flag EXPORTED"),
        (good.replace("\"ALLOCATABLE\"", "\"MISSING\""), "it has the flag MISSING"),
        (good.replace("flags = []\npe_start", "flags = [\"NEW\"]\npe_start"), "it has the flag NEW"),
        (good.replace("extent_size = 128", "extent_size = 0"), "impossible length"),
        (good.replace("extent_size = 128", "extent_size = 36028797018963968"), "impossible length"),
        (good.replace("extent_size = 128", "extent_size = 36028797018963967"), "its extents are impossible"),
        (good.replace("pe_count = 20", "pe_count = 21"), "contradict each other about its extents"),
        (good.replace("pe_start = 256", "pe_start = 128"), "contradict each other about its extents"),
        (good.replace(&UUIDS[0][1..], &UUIDS[0][2..]), "of which this disk has 1"),
        (good.replace("segment_count = 1", "segment_count = 2"), "a segment is missing"),
        (good.replace("stripe_count = 1", "stripe_count = 2"), "the number of its stripes is wrong"),
        (good.replace("stripe_count = 1", "stripe_count = 1\ndata_copies = 2"), "is not understood"),
        (good.replace("stripe_count = 1", "stripe_count = 1\nnew = 2"), "is not known"),
        (good.replace("version = 1", "version = 2"), "not a volume group of version 1"),
        (good.replace("# Generated", "other {}"), "does not describe one volume group"),
    ] {
        assert_ne!(text, good, "{reason}");
        let found = contents(&disk(1, &text));
        assert_eq!(found.allocated.total(), LENGTH, "{reason}");
        assert!(found.notes.len() == 1 && found.notes[0].contains(reason), "{:?}, not {reason}", found.notes);
    }
    assert!(contents(&disk(1, &good)).allocated.total() < LENGTH);
}

/// A damaged or unfinished label or area.
#[test]
fn doubtful_labels_are_kept_in_full() {
    let (good, _) = usual();
    let second = [b"LABELONE".as_slice(), &[0; 8]].concat();
    for (offset, bytes, is_mended, reason) in [
        (512 + 100, &b"x"[..], false, "checksum of its label"),
        (512 + 8, b"\x02", true, "belongs to another place"),
        (1024, &second, false, "several labels"),
        (512 + 64, &(LENGTH + 1).to_le_bytes(), true, "but its place has"),
        (512 + 136, b"\x03", true, "an extension that is not known"),
        (512 + 140, b"\x02", true, "an extension that is not known"),
        (512 + 112, &(START + 1 - AREA).to_le_bytes(), true, "not that of this place"),
        (AREA + 300, b"x", false, "header of its metadata is damaged"),
        (AREA + 40, &[0; 8], true, "belongs to no volume group"),
        (AREA + 60, b"\x01", true, "belongs to no volume group"),
        (AREA + 60, b"\x02", true, "flags that are not known"),
        (AREA + 64, &[1; 24], true, "was not finished"),
        (AREA + 48, &AREA_LENGTH.to_le_bytes(), true, "an impossible place"),
        (AREA + 40, &AREA_LENGTH.to_le_bytes(), true, "an impossible place"),
        (AREA + 600, b"x", false, "checksum of its metadata"),
    ] {
        let mut disk = good.clone();
        put(&mut disk, offset, bytes);
        if is_mended {
            mend(&mut disk, 0);
        }
        let found = contents(&disk);
        assert_eq!(found.allocated.total(), LENGTH, "{reason}");
        assert!(found.notes.len() == 1 && found.notes[0].contains(reason), "{:?}, not {reason}", found.notes);
        assert_eq!(found.is_cut_off, reason.starts_with("but its place"));
    }
}

/// Physical volumes in logical volumes, each a little smaller.
#[test]
fn volumes_in_volumes_end() {
    let mut outer = disk(1, &text(1, &[logical("inner", USUAL, &[linear(1, 0, 20, 0)])]));
    let mut found = Vec::new();
    for _ in 0..5 {
        found.push(contents(&outer).notes);
        // The inside of the next volume is all of this one, whose metadata states other lengths.
        let length = outer.len() as u64;
        let count = length.div_ceil(PE);
        let text = text(1, &[logical("inner", USUAL, &[linear(1, 0, count, 0)])])
            .replace("pe_count = 20", &format!("pe_count = {count}"));
        let mut next = vec![0; (START + count * PE) as usize];
        put_volume(&mut next, 0, UUIDS[0], &text);
        put(&mut next, 512 + 64, &(START + count * PE).to_le_bytes());
        mend(&mut next, 0);
        put(&mut next, START, &outer);
        outer = next;
    }
    let is_deep =
        |notes: &Vec<String>| notes.iter().any(|note| note.contains("it is inside of 3 other volumes"));
    assert_eq!(found.iter().map(is_deep).collect::<Vec<_>>(), [false, false, false, true, true]);
}

/// Whatever one byte says, no reader panics, the result is consistent, and everything outside of extents is kept.
#[test]
fn changed_bytes_are_no_danger() {
    let (good, kept) = usual();
    let label = 512..512 + 160;
    let area = AREA as usize..AREA as usize + 72;
    let text = AREA as usize + 512..AREA as usize + 512 + 1300;
    let last = (AREA + AREA_LENGTH) as usize - 100..(AREA + AREA_LENGTH) as usize;
    let mut differing = 0;
    for at in label.chain(area).chain(text).chain(last) {
        for change in [0x01, 0x80, 0xff, b' ' ^ good[at], b'9' ^ good[at]] {
            let mut disk = good.clone();
            disk[at] ^= change;
            mend(&mut disk, 0);
            let extent = Extent::new(0, LENGTH);
            let found = &examine_volumes(&disk, &[extent], ExamineOptions::default()).unwrap()[0];
            let Contents { allocated, zeroed, files, .. } = found.clone();
            Region { extent, allocated, zeroed, files }.check().unwrap();
            let outside: Extents = kept.clip(Extent::new(0, START)).collect();
            assert!(outside.subtract(&found.allocated).is_empty(), "{at} {change}");
            differing += usize::from(found.allocated != kept);
        }
    }
    assert!(differing > 1000, "{differing} changes matter");
}

/// The words of a superblock of version 1 of a RAID 1, at `offset` of a member, with its data at `start`.
fn put_new(disk: &mut [u8], offset: u64, start: u64, length: u64) {
    let mut superblock = vec![0; 260];
    for (at, number) in
        [(0, 0xa92b_4efc), (4, 1), (8, 1), (72, 1), (92, 2), (160, 1), (220, 2), (256, 1 << 16)]
    {
        put(&mut superblock, at, &u32::to_le_bytes(number));
    }
    for (at, number) in [
        (80, length / SECTOR),
        (128, start / SECTOR),
        (136, length / SECTOR),
        (144, offset / SECTOR),
        (208, u64::MAX),
    ] {
        put(&mut superblock, at, &number.to_le_bytes());
    }
    put(disk, offset, &superblock);
    mend_member(disk, offset);
}

/// Corrects the checksum of a superblock of version 1 with two members.
fn mend_member(disk: &mut [u8], offset: u64) {
    put(disk, offset + 216, &[0; 4]);
    let words = disk[offset as usize..offset as usize + 260].chunks(4);
    let sum: u64 = words.map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    put(disk, offset + 216, &((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
}

/// A superblock of version 0.90 at the end, with this member as number 1.
fn put_old(disk: &mut [u8], offset: u64, length: u64) {
    put(disk, offset, &[0; 4096]);
    for (word, number) in [
        (0, 0xa92b_4efc),
        (2, 90),
        (7, 1),
        (8, (length / KIB) as u32),
        (10, 2),
        (33, 1),
        (992 + 3, 1),
        (992 + 4, 6),
    ] {
        put(disk, offset + word * 4, &number.to_le_bytes());
    }
    mend_old(disk, offset);
}

fn mend_old(disk: &mut [u8], offset: u64) {
    put(disk, offset + 38 * 4, &[0; 4]);
    let words = disk[offset as usize..offset as usize + 4096].chunks(4);
    let sum: u64 = words.map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    put(disk, offset + 38 * 4, &((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
}

const MEMBER: u64 = (1 << 20) + 24 * KIB;

/// A member of every version, with a swap area of 128 KiB in its data; what is kept of it besides its superblock's surroundings.
fn members() -> Vec<(&'static str, Vec<u8>, u64, Extent)> {
    let empty = vec![0xaa; MEMBER as usize];
    let last = MEMBER / 4096 * 4096 - 8192;
    let old = MEMBER / 65536 * 65536 - 65536;
    let new = |offset, start, length| {
        let mut disk = empty.clone();
        put_new(&mut disk, offset, start, length);
        put(&mut disk, start, &swap());
        (disk, offset, Extent::new(start, length))
    };
    let mut disk = empty.clone();
    put_old(&mut disk, old, old);
    put(&mut disk, 0, &swap());
    let named = |name, (disk, offset, data)| (name, disk, offset, data);
    vec![
        named("1.0", new(last, 0, last - 64 * KIB)),
        named("1.1", new(0, 64 * KIB, 900 * KIB)),
        named("1.2", new(4096, 128 * KIB, 800 * KIB)),
        ("0.90", disk, old, Extent::new(0, old)),
    ]
}

#[test]
fn members_of_every_version_are_looked_through() {
    for (version, disk, _, data) in members() {
        let found = contents(&disk);
        let kept = [Extent::new(0, data.offset + 4096), Extent::between(data.offset + 128 * KIB, MEMBER)];
        assert_eq!(found.notes, Vec::<String>::new(), "{version}");
        assert_eq!(found.allocated, kept.into_iter().collect(), "{version}");
        assert_eq!(found.filesystem, "linux_raid_member", "{version}");
    }
}

/// Another mark beside the data's own is a doubt, and so is anything unusual in a superblock.
#[test]
fn doubtful_members_are_kept_in_full() {
    for (version, good, offset, data) in members() {
        let is_old = version == "0.90";
        let mut doubts: Vec<(u64, Vec<u8>, &str)> = match is_old {
            true => vec![
                (4, vec![1], "another version than 0.90"),
                (2 * 4, vec![91], "is being changed"),
                (7 * 4, vec![5], "of level 5"),
                (33 * 4, vec![0], "was not stopped"),
                (33 * 4, vec![3], "was not stopped"),
                (996 * 4, vec![2], "it is a spare"),
                (996 * 4, vec![7], "it is a spare"),
                (995 * 4, vec![2], "it is a spare"),
                (8 * 4, vec![0xff; 4], "an impossible length"),
                (8 * 4, vec![0; 4], "not in its place"),
            ],
            false => vec![
                (4, vec![2], "another version than 1"),
                (8, vec![4], "is being changed"),
                (8, vec![8], "is being changed"),
                (72, vec![0; 4], "of level 0"),
                (72, vec![0xfc, 0xff, 0xff, 0xff], "of level -4"),
                (208, vec![0], "was not stopped"),
                (144, vec![1], "belongs to another place"),
                (258, vec![2], "it is a spare"),
                (258, vec![0xff, 0xff], "it is a spare"),
                (160, vec![2], "it is a spare"),
                (80, vec![0xff; 8], "an impossible length"),
                (80, vec![0; 8], "not in its place"),
                (128, vec![0xff; 7], "an impossible length"),
            ],
        };
        doubts.push((240, vec![1], "the checksum"));
        for (at, bytes, reason) in doubts {
            let mut disk = good.clone();
            put(&mut disk, offset + at, &bytes);
            if reason != "the checksum" {
                if is_old { mend_old(&mut disk, offset) } else { mend_member(&mut disk, offset) }
            }
            let found = contents(&disk);
            assert_eq!(found.allocated.total(), MEMBER, "{version}: {reason}");
            // With data at its start, it then has two possible owners.
            let reason = if data.offset == 0 { "more than one of them may be in use" } else { reason };
            assert!(
                found.notes.len() == 1 && found.notes[0].contains(reason),
                "{version}: {:?}, not {reason}",
                found.notes
            );
        }
        let mut disk = good.clone();
        put(&mut disk, MEMBER - 512, b"\xde\x11\xde\x11");
        assert_eq!(contents(&disk).allocated.total(), MEMBER, "{version}: another RAID");
        let mut disk = good;
        put(&mut disk, data.offset, b"XFSB");
        assert_eq!(contents(&disk).allocated.total(), MEMBER, "{version}: two owners of its data");
    }
}
