//! NTFS volumes of mkntfs and ntfscp, changed so that their parts contradict each other: what may be read is kept.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;

use images::{MIB, assert_whole, read, run, stale};
use platter_image::ErrorKind;

const CLUSTER: usize = 4096;
const RECORD: usize = 1024;
const DATA: u8 = 0x80;
const ROOT: usize = 5;
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

/// Changes a name in the root directory's index, or in the file's record, to one of the same length.
fn rename(disk: &mut [u8], is_index: bool, from: &str, to: &str) {
    let [from, to] =
        [from, to].map(|name| name.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    let mut found = 0;
    for at in (0..disk.len()).step_by(RECORD) {
        let length = match &disk[at..at + 4] {
            b"INDX" if is_index => CLUSTER,
            b"FILE" if is_index == (number(disk, at + 44, 4) == ROOT) => RECORD,
            _ => continue,
        };
        change(&mut disk[at..at + length], |bytes| {
            if let Some(place) = bytes.windows(from.len()).position(|bytes| bytes == from) {
                bytes[place..place + to.len()].copy_from_slice(&to);
                found += 1;
            }
        });
    }
    assert_eq!(found, 1);
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

/// Changes to which record a name in the root directory's index belongs.
fn refer(disk: &mut [u8], from: u8, to: u8) {
    let mut found = 0;
    for at in (0..disk.len()).step_by(CLUSTER) {
        if disk[at..at + 4] == *b"INDX" {
            change(&mut disk[at..at + CLUSTER], |bytes| {
                let places = (64..CLUSTER - 90).step_by(8);
                let is_entry = |at: &usize| {
                    number(bytes, *at, 6) == usize::from(from) && number(bytes, at + 16, 6) == ROOT
                };
                let entries: Vec<usize> = places.filter(is_entry).collect();
                entries.iter().for_each(|at| bytes[*at] = to);
                found += entries.len();
            });
        }
    }
    assert_eq!(found, 1);
}

/// Gives a file a second name, which is in another record.
fn move_name(disk: &mut [u8], file: usize, other: u8) {
    change(record(disk, other.into()), |bytes| bytes[32..38].copy_from_slice(&[file as u8, 0, 0, 0, 0, 0]));
    change(record(disk, file), |bytes| {
        let first = number(bytes, 20, 2);
        let at = first + number(bytes, first + 4, 4);
        let mut list = vec![0; 24 + 3 * 32];
        (list[0], list[4], list[16], list[20]) = (0x20, 24 + 3 * 32, 3 * 32, 24);
        for (entry, (kind, part)) in
            list[24..].chunks_exact_mut(32).zip([(0x30, file as u8), (0x30, other), (DATA, file as u8)])
        {
            (entry[0], entry[4], entry[16]) = (kind, 32, part);
        }
        let used = number(bytes, 24, 2);
        bytes.copy_within(at..used, at + list.len());
        bytes[at..at + list.len()].copy_from_slice(&list);
        bytes[24..26].copy_from_slice(&((used + list.len()) as u16).to_le_bytes());
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

/// The first file that is made is in this record, the next one in the following.
const FIRST: u8 = 64;

#[test]
fn page_files_are_those_of_record_and_root_directory() {
    let Some(disk) = make(&["pagefile.sys", "swapfile.sys", "precious.doc", "early.doc"]) else { return };
    let zeroed = |disk: &Vec<u8>| {
        let contents = read(disk, false).unwrap();
        let contradicted = contents.notes.iter().filter(|note| note.contains("its contents are stored"));
        (contents.zeroed.total() / FILE_LENGTH, contradicted.count())
    };
    assert_eq!(zeroed(&disk), (2, 0));
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change, (u64, usize)); 7] = [
        ("another name by the index", |disk| rename(disk, true, "pagefile.sys", "valuable.sys"), (1, 1)),
        ("another name by the record", |disk| rename(disk, false, "pagefile.sys", "valuable.sys"), (1, 0)),
        ("exchanged names", exchange_names, (0, 2)),
        ("a second name after it", |disk| refer(disk, FIRST + 2, FIRST), (1, 1)),
        ("a second name before it", |disk| refer(disk, FIRST + 3, FIRST), (1, 1)),
        ("two files of one name", two_of_a_name, (1, 2)),
        ("a second name in another record", |disk| move_name(disk, FIRST.into(), FIRST + 2), (1, 1)),
    ];
    for (what, change, expected) in changes {
        let mut changed = disk.clone();
        change(&mut changed);
        assert_eq!(zeroed(&changed), expected, "{what}");
    }
}

fn exchange_names(disk: &mut [u8]) {
    for (from, to) in
        [("pagefile.sys", "exchange.sys"), ("swapfile.sys", "pagefile.sys"), ("exchange.sys", "swapfile.sys")]
    {
        rename(disk, true, from, to);
    }
}

fn two_of_a_name(disk: &mut [u8]) {
    rename(disk, true, "precious.doc", "PAGEFILE.SYS");
    rename(disk, false, "precious.doc", "PAGEFILE.SYS");
}

#[test]
fn a_hibernated_system_is_found_by_record_and_by_root_directory() {
    let Some(disk) = make(&["hiberfil.abc"]) else { return };
    assert!(read(&disk, false).is_ok());
    for (names, is_index) in [("the index", true), ("the record", false)] {
        let mut changed = disk.clone();
        rename(&mut changed, is_index, "hiberfil.abc", "hiberfil.sys");
        let error = read(&changed, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{names}: {error}");
        assert!(error.to_string().contains("hibernated"), "{names}: {error}");
    }
}

#[test]
fn a_volume_with_an_invalid_root_directory_is_kept_whole() {
    let Some(mut disk) = make(&["one"]) else { return };
    let mut found = 0;
    for at in (0..disk.len()).step_by(CLUSTER) {
        if disk[at..at + 4] == *b"INDX" && number(&disk, at + 64 + 16, 6) == ROOT {
            disk[at] = b'X';
            found += 1;
        }
    }
    assert_eq!(found, 1);
    assert_whole(
        &disk,
        "record 5 of its master file table: node 0 of the directory's index has a wrong mark",
    );
}
