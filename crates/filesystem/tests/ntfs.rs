//! NTFS volumes of mkntfs and ntfscp, changed so that their parts contradict each other: what may be read is kept.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;

use images::{MIB, assert_whole, read, run, stale};

const CLUSTER: usize = 4096;
const RECORD: usize = 1024;
const DATA: u8 = 0x80;
const FILE_LENGTH: u64 = 64 << 10;

/// Makes a volume with files of these names in its root directory over stale bytes; `None` if that is not possible here.
fn make(names: &[&str]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let (image, file) = (directory.path().join("image"), directory.path().join("file"));
    let (image, file) = (image.to_str()?, file.to_str()?);
    stale(image.as_ref(), 6 * MIB);
    let contents: Vec<u8> = (0..FILE_LENGTH).map(|at| (at % 251) as u8).collect();
    fs::write(file, [&b"hibr"[..], &contents[4..]].concat()).unwrap();
    if run("mkntfs", &["-Q", "-F", "-q", image]).is_none() {
        eprintln!("skipped: mkntfs is missing");
        return None;
    }
    for name in names {
        run("ntfscp", &[image, file, name]).unwrap();
    }
    Some(fs::read(image).unwrap())
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Changes a record or a node of an index, whose last bytes of each sector are elsewhere.
fn change(bytes: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let (place, pieces) = (number(bytes, 4, 2), bytes.len() / 512);
    let exchange = |bytes: &mut [u8]| {
        for (piece, at) in (1..=pieces).flat_map(|piece| [(piece, 0), (piece, 1)]) {
            bytes.swap(place + 2 * piece + at, 512 * piece - 2 + at);
        }
    };
    exchange(bytes);
    change(bytes);
    exchange(bytes);
}

fn record(disk: &mut [u8], which: usize) -> &mut [u8] {
    let table = number(disk, 48, 8) * CLUSTER;
    &mut disk[table + which * RECORD..][..RECORD]
}

/// Changes how many bytes of a file are initialized.
fn initialize(disk: &mut [u8], which: usize, length: u64) {
    change(record(disk, which), |bytes| {
        let mut at = number(bytes, 20, 2);
        while bytes[at] != DATA {
            at += number(bytes, at + 4, 4);
        }
        bytes[at + 56..at + 64].copy_from_slice(&length.to_le_bytes());
    });
}

#[test]
fn files_of_the_filesystem_are_kept_whatever_is_initialized() {
    let Some(disk) = make(&["one", "two", "three"]) else { return };
    let healthy = read(&disk, false).unwrap();
    assert!(healthy.notes.is_empty(), "{:?}", healthy.notes);
    // $MFT, $MFTMirr, $LogFile, $AttrDef, $Boot and $UpCase. The names "two" and "three" are in records after the 65th.
    for (which, length) in [(0, 65 << 10), (1, 0), (2, 0), (4, 512), (7, 0), (10, 0)] {
        let mut changed = disk.clone();
        initialize(&mut changed, which, length);
        let contents = read(&changed, false).unwrap();
        assert!(contents.notes.is_empty(), "{:?}", contents.notes);
        assert!(healthy.allocated.subtract(&contents.allocated).is_empty(), "record {which}");
    }
    let mut changed = disk.clone();
    initialize(&mut changed, 2, 0);
    let log = disk.windows(65536).position(|bytes| bytes.iter().all(|byte| *byte == 0xff)).unwrap();
    changed[log..log + 65536].fill(0);
    assert_whole(&changed, "its log has no valid restart page");
}
