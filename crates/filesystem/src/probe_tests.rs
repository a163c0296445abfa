//! Tests of probing: every mark in the table is found wherever it may be, and no other mark is found in its
//! place.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::signatures::{At, Rule};

/// A place that coincides with no fixed offset: 24 MiB plus 3 sectors, not at the start of the disk.
const START: u64 = 1 << 20;
const LENGTH: u64 = (24 << 20) + 3 * 512;

fn disk() -> Vec<u8> {
    vec![0; (START + LENGTH) as usize]
}

fn names(disk: &Vec<u8>) -> Vec<&'static str> {
    let owners = Owners::find(disk, Extent::new(START, LENGTH)).unwrap();
    owners.list().iter().map(|owner| owner.name).collect()
}

fn put(disk: &mut [u8], offset: u64, bytes: &[u8]) {
    disk[(START + offset) as usize..][..bytes.len()].copy_from_slice(bytes);
}

/// Every magic is found at every offset where it may be.
#[test]
fn every_magic_is_found() {
    let mut disk = disk();
    let mut known = BTreeSet::new();
    let extent = Extent::new(START, LENGTH);
    for signature in signatures::all() {
        known.insert(signature.name);
        let Rule::Magic(places, magics) = &signature.rule else { continue };
        for (at, magic) in places.iter().flat_map(|at| magics.iter().map(move |magic| (at, magic))) {
            let offset = at.offset(LENGTH).unwrap();
            put(&mut disk, offset, magic);
            let found = Owners::find(&disk, extent).unwrap();
            let owner = found.list().iter().find(|owner| owner.name == signature.name);
            assert_eq!(owner.unwrap().offset, START + offset, "{} at {offset}", signature.name);
            put(&mut disk, offset, &vec![0; magic.len()]);
        }
    }
    assert!(known.len() >= 86, "{} owners are known", known.len());
    assert_eq!(names(&disk), Vec::<&str>::new());
}

#[test]
fn offsets_of_places() {
    assert_eq!(At::Start(5).offset(5), None);
    assert_eq!(At::End(512).offset(511), None);
    assert_eq!(At::AlignedEnd(65536, 65536).offset(65536 * 3 + 512), Some(65536 * 2));
    assert_eq!(At::AlignedEnd(65536, 65536).offset(65535), None);
}

fn found(bytes: &[(u64, &[u8])], name: &str) {
    let mut disk = disk();
    for (offset, bytes) in bytes {
        put(&mut disk, *offset, bytes);
    }
    assert_eq!(names(&disk), [name]);
    // Without any one of them, no owner is found.
    for (offset, bytes) in bytes {
        let mut other = disk.clone();
        put(&mut other, *offset, &vec![0; bytes.len()]);
        assert_eq!(names(&other), Vec::<&str>::new(), "{name} without its bytes at {offset}");
    }
}

#[test]
fn marks_that_need_a_test_are_found() {
    let last = LENGTH - 512;
    found(&[(0, b"HM\x01\0")], "LVM1_member");
    let metadata = [(0, &b"\xeb\x58\x90MSWIN4.1"[..]), (440, &[0, 2, 0x10]), (0x10_0200, b"-FVE-FS-")];
    found(&metadata, "BitLocker");
    found(&[(8, b"\x01\0"), (88, b"CS"), (90, b"\x01\0\0\0")], "cs_fvault2");
    found(&[(1024, b"H+\0\x04")], "hfsplus");
    found(&[(1024, b"BD"), (1024 + 20, b"\0\0\x10\0")], "hfs");
    found(&[(0, b"ER"), (512, b"PM\0\0")], "mac");
    found(&[(0x1c6, b"\x01GEM\0\0\0\x02\0\0\x10\0")], "atari");
    // The checksum of the first 50 bytes, which is that of the magic.
    found(&[(last, b"\x55\xaa"), (last + 50, b"\xff")], "via_raid_member");
    found(&[(last + 0x60, b"\0\0\0\x2f"), (last + 0x13e, b"\0\xd1")], "silicon_medley_raid_member");
    // "JM" and its complement.
    found(&[(last, b"JM"), (last + 4, b"\xb6\xb2")], "jmicron_raid_member");
    found(&[(508, b"\xda\xbe"), (256, b"\xda\xbe")], "sun");
    // Inodes, zones, maps of one block each, first zone.
    found(&[(1024, b"\x40\0\xe8\x03\x01\0\x01\0\x20\0"), (1024 + 16, b"\x7f\x13")], "minix");
    let fat = b"\xeb\x3c\x90mkdosfs\0\0\x02\x04\x01\0\x02\0\x02\0\x80\xf8";
    let mut disk = disk();
    put(&mut disk, 0, fat);
    assert_eq!(names(&disk), Vec::<&str>::new(), "without a boot record");
    put(&mut disk, 510, b"\x55\xaa");
    assert_eq!(names(&disk), ["vfat"]);
    let mut log = vec![0; 512];
    log[..4].copy_from_slice(b"\xfe\xed\xba\xbe");
    log[11] = 2;
    log[14] = 2;
    log[303] = 1;
    let mut disk = self::disk();
    put(&mut disk, 300 * 512, &log);
    assert_eq!(names(&disk), ["xfs_external_log"]);
}

/// Each of the four labels suffices, by its list of names or by an uberblock.
#[test]
fn zfs_is_found_at_both_ends() {
    let end = LENGTH >> 18 << 18;
    for label in [0, 1 << 18, end - (2 << 18), end - (1 << 18)] {
        let list = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20";
        let uberblocks: [(u64, &[u8]); 3] = [
            (16 << 10, list),
            ((128 << 10) + (7 << 10), b"\x0c\xb1\xba\0\0\0\0\0"),
            ((256 << 10) - 1024, b"\0\0\0\0\0\xba\xb1\x0c"),
        ];
        for (offset, mark) in uberblocks {
            let mut disk = disk();
            put(&mut disk, label + offset, mark);
            assert_eq!(names(&disk), ["zfs_member"], "{label} {offset}");
        }
    }
}

/// Descriptors 2 and 4 KiB apart, after those of ISO 9660.
#[test]
fn udf_is_found_in_every_block_size() {
    for step in [2048, 4096] {
        for (before, name) in [(0, b"BEA01"), (0, b"NSR03"), (3, b"NSR02"), (40, b"TEA01")] {
            let mut disk = disk();
            for number in 0..before {
                put(&mut disk, (32 << 10) + number * step + 1, b"CD001");
            }
            put(&mut disk, (32 << 10) + before * step + 1, name);
            let expected = if before > 0 { vec!["iso9660", "udf"] } else { vec!["udf"] };
            assert_eq!(names(&disk), expected, "{step} {before}");
        }
    }
}

/// An ext superblock with a count that looks like the magic of Minix is recognized as ext only.
#[test]
fn ext_is_not_minix() {
    let mut disk = disk();
    put(&mut disk, 1024 + 56, b"\x53\xef");
    put(&mut disk, 1024, b"\x40\0\xe8\x03\x01\0\x01\0\x20\0");
    put(&mut disk, 1024 + 16, b"\x7f\x13");
    assert_eq!(probe(&disk, Extent::new(START, LENGTH)).unwrap(), Found::Filesystem("ext"));
    put(&mut disk, 0, b"LUKS\xba\xbe");
    let both = Found::Ambiguous(vec!["crypto_LUKS", "ext"]);
    assert_eq!(probe(&disk, Extent::new(START, LENGTH)).unwrap(), both);
}

proptest! {
    /// Arbitrary bytes in a place of any length cause no panic.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..6000), at_end in any::<bool>(), sectors in 0..2000_u64) {
        let length = sectors * 512;
        let mut disk = vec![0; length as usize + 512];
        let count = bytes.len().min(length as usize);
        let start = if at_end { 512 + length as usize - count } else { 512 };
        disk[start..start + count].copy_from_slice(&bytes[..count]);
        Owners::find(&disk, Extent::new(512, length)).unwrap();
    }
}
