//! System calls on contents: positions of holes, zeroed ranges, concurrent readers, other writers.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::thread;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::memory::{Done, MemoryFile, MemoryTree, UNIT, pattern};
use crate::mounted::{Mounted, is_possible};

fn read_write(mounted: &Mounted, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(mounted.at(name)).unwrap()
}

#[test]
fn places_of_data_and_holes() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mut bytes = pattern(16 * UNIT);
    bytes[2 * UNIT..5 * UNIT].fill(0);
    bytes[12 * UNIT..].fill(0);
    tree.put("live", MemoryFile::of(bytes.clone()));
    tree.put("fixed", MemoryFile::fixed(bytes, 2));
    let mounted = Mounted::of(&tree);
    for name in ["live", "fixed"] {
        let file = File::open(mounted.at(name)).unwrap();
        let unit = UNIT as u64;
        for (from, place) in [
            (SeekFrom::Data(0), Ok(0)),
            (SeekFrom::Hole(0), Ok(2 * unit)),
            (SeekFrom::Hole(3 * unit + 7), Ok(3 * unit + 7)),
            (SeekFrom::Data(3 * unit + 7), Ok(5 * unit)),
            (SeekFrom::Hole(5 * unit), Ok(12 * unit)),
            (SeekFrom::Data(12 * unit), Err(rustix::io::Errno::NXIO)),
            (SeekFrom::Hole(13 * unit), Ok(13 * unit)),
            (SeekFrom::Hole(16 * unit), Err(rustix::io::Errno::NXIO)),
            (SeekFrom::End(-1), Ok(16 * unit - 1)),
        ] {
            assert_eq!(seek(&file, from), place, "{name} {from:?}");
        }
    }
    // The end counts as a hole.
    tree.put("full", MemoryFile::of(pattern(100)));
    assert_eq!(seek(File::open(mounted.at("full")).unwrap(), SeekFrom::Hole(3)), Ok(100));
    mounted.finish();
}

#[test]
fn ranges_made_zero() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let live = tree.put("live", MemoryFile { is_fixed_length: true, ..MemoryFile::of(pattern(8 * UNIT)) });
    tree.put("free", MemoryFile::of(pattern(UNIT)));
    let mounted = Mounted::of(&tree);
    let file = read_write(&mounted, "live");
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 5000, 9000).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 20_000, 100).unwrap();
    // The range is cut at the end of the file.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 7 * UNIT as u64, 1 << 30).unwrap();
    let mut expected = pattern(8 * UNIT);
    for range in [5000..14_000, 20_000..20_100, 7 * UNIT..8 * UNIT] {
        expected[range].fill(0);
    }
    assert_eq!(live.contents(), expected);
    let zeroes: Vec<_> = live.log().into_iter().filter(|done| matches!(done, Done::Zero(..))).collect();
    assert_eq!(zeroes, [Done::Zero(5000, 9000), Done::Zero(20_000, 100), Done::Zero(7 * 4096, 4096)]);
    let mut seen = Vec::new();
    (&file).read_to_end(&mut seen).unwrap();
    assert_eq!(seen, expected);
    fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
    fallocate(&file, keep, 0, 8 * UNIT as u64).unwrap();
    assert!(fallocate(&file, keep, 0, 8 * UNIT as u64 + 1).is_err());
    assert!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, UNIT as u64).is_err());
    assert!(
        fallocate(&file, FallocateFlags::ZERO_RANGE, 7 * UNIT as u64, 2 * UNIT as u64).is_err(),
        "a disk cannot grow"
    );
    let file = read_write(&mounted, "free");
    fallocate(&file, FallocateFlags::empty(), 0, 3 * UNIT as u64).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 * UNIT as u64);
    drop(file);
    mounted.finish();
}

#[test]
fn writes_through_another_export_are_visible() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let live = tree.put("live", MemoryFile::of(vec![1; 2 * UNIT]));
    let mounted = Mounted::of(&tree);
    let file = File::open(mounted.at("live")).unwrap();
    let mut buffer = vec![0; UNIT];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, vec![1; UNIT]);
    // Through another export.
    live.bytes.write()[..UNIT].fill(2);
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, vec![2; UNIT], "in an open file");
    live.bytes.write().fill(3);
    live.bytes.write().resize(3 * UNIT, 3);
    assert_eq!(
        std::fs::read(mounted.at("live")).unwrap(),
        vec![3; 3 * UNIT],
        "in a file that is opened again"
    );
    assert_eq!(file.metadata().unwrap().len(), 3 * UNIT as u64, "in its length");
    mounted.finish();
}

#[test]
fn contents_that_never_change_are_cached() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let fixed = tree.put("fixed", MemoryFile::fixed(pattern(1 << 20), 3));
    let mounted = Mounted::of(&tree);
    for _ in 0..3 {
        assert_eq!(std::fs::read(mounted.at("fixed")).unwrap(), pattern(1 << 20));
    }
    let bytes: u64 =
        fixed.log().iter().map(|done| if let Done::Read(_, length) = done { *length } else { 0 }).sum();
    assert_eq!(bytes, 1 << 20, "each byte was read once: {:?}", fixed.log());
    mounted.finish();
}

#[test]
fn many_readers_at_once() {
    if !is_possible() {
        return;
    }
    const LENGTH: usize = 4 << 20;
    let tree = Arc::new(MemoryTree::new());
    tree.put("fixed", MemoryFile::fixed(pattern(LENGTH), 4));
    tree.put("live", MemoryFile::of(pattern(LENGTH)));
    let mounted = Mounted::of(&tree);
    let expected = pattern(LENGTH);
    thread::scope(|scope| {
        for reader in 0..12_usize {
            let (expected, mounted) = (&expected, &mounted);
            scope.spawn(move || {
                let file = File::open(mounted.at(["fixed", "live"][reader % 2])).unwrap();
                let mut at = reader * 98_317 % LENGTH;
                for round in 0..60_usize {
                    let length = (reader * 7919 + round * 40_961) % 300_000 % (LENGTH - at) + 1;
                    let mut buffer = vec![0; length];
                    file.read_exact_at(&mut buffer, at as u64).unwrap();
                    assert!(buffer == expected[at..at + length], "{reader}: {length} bytes at {at}");
                    at = (at + length * 3 + 1) % LENGTH;
                }
            });
        }
    });
    mounted.finish();
}

#[test]
fn many_writers_at_once() {
    if !is_possible() {
        return;
    }
    const PART: usize = 64 << 10;
    let tree = Arc::new(MemoryTree::new());
    let live = tree.put("live", MemoryFile { is_fixed_length: true, ..MemoryFile::of(vec![0; 16 * PART]) });
    let mounted = Mounted::of(&tree);
    thread::scope(|scope| {
        for writer in 0..16_u8 {
            let file = read_write(&mounted, "live");
            scope.spawn(move || {
                for step in 0..16_u64 {
                    let bytes = vec![writer + 1; PART / 16];
                    let offset = u64::from(writer) * PART as u64 + step * (PART / 16) as u64;
                    file.write_all_at(&bytes, offset).unwrap();
                }
            });
        }
    });
    for (writer, part) in live.contents().chunks(PART).enumerate() {
        assert!(part.iter().all(|byte| *byte == writer as u8 + 1), "{writer}");
    }
    mounted.finish();
}

#[test]
fn closed_once_and_cut_off_by_its_own_handle() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mounted = Mounted::of(&tree);
    std::fs::write(mounted.at("made"), "abc").unwrap();
    std::fs::write(mounted.at("made"), "x").unwrap();
    let expected = [Done::Write(0, 3), Done::Close, Done::Length(0), Done::Write(0, 1), Done::Close];
    assert_eq!(tree.file("made").log(), expected);
    mounted.finish();
}

#[test]
fn a_file_without_a_name() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mounted = Mounted::of(&tree);
    let mut file = File::create(mounted.at("gone")).unwrap();
    file.write_all(b"still here").unwrap();
    std::fs::remove_file(mounted.at("gone")).unwrap();
    file.write_all(b", and more").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20);
    assert!(!mounted.at("gone").exists());
    drop(file);
    mounted.finish();
}

#[test]
fn plain_files_are_read_by_the_kernel() {
    if !is_possible() || !crate::mounted::is_root() {
        return;
    }
    let mut plain = tempfile::tempfile().unwrap();
    plain.write_all(&pattern(300_000)).unwrap();
    let tree = Arc::new(MemoryTree::new());
    let file = MemoryFile { plain: Some(plain), ..MemoryFile::fixed(pattern(300_000), 5) };
    let file = tree.put("plain", file);
    let mounted = Mounted::of(&tree);
    let (first, second) =
        (File::open(mounted.at("plain")).unwrap(), File::open(mounted.at("plain")).unwrap());
    let mut bytes = Vec::new();
    for mut opened in [&first, &second] {
        bytes.clear();
        opened.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, pattern(300_000));
    }
    assert_eq!(first.metadata().unwrap().size(), 300_000);
    let refused = mounted.events().into_iter().find(|event| event.contains("PassthroughRefused"));
    match refused {
        Some(event) => println!("skipped: {event}"),
        None => assert_eq!(file.log(), [], "the kernel sent no request to the server"),
    }
    drop((first, second));
    mounted.finish();
}
