//! btrfs in many layouts that mkfs.btrfs makes, checked by `btrfs check`; and damaged ones, which must be kept in full.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;
use std::path::Path;

use crc::{CRC_32_ISCSI, Crc};
use images::{MIB, assert_whole, random, read, run, stale};
use platter_filesystem::{Found, open_files};
use platter_image::{ErrorKind, Extent};

/// Name, options of mkfs.btrfs.
const LAYOUTS: &[(&str, &[&str])] = &[
    ("plain", &[]),
    ("single", &["-m", "single"]),
    ("data twice", &["-d", "dup"]),
    ("mixed", &["--mixed"]),
    ("small nodes", &["-n", "4096"]),
    ("large nodes", &["-n", "65536"]),
    ("xxhash", &["--csum", "xxhash"]),
    ("sha256", &["--csum", "sha256"]),
    ("old", &["-O", "^no-holes,^skinny-metadata,^extref", "-R", "^free-space-tree"]),
];

static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
const SUPERBLOCK: usize = 65536;

/// Makes a filesystem with some files over stale bytes; `None` if that is not possible here.
fn make(directory: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let image = directory.join("image");
    let tree = images::tree(directory);
    stale(&image, 128 * MIB);
    let mut arguments = vec!["-q", "-f", "-K", "-L", "label", "--rootdir", tree.to_str()?];
    arguments.extend(options);
    arguments.push(image.to_str()?);
    run("mkfs.btrfs", &arguments)?;
    // It makes the file shorter or longer.
    let mut disk = fs::read(&image).unwrap();
    disk.resize(disk.len().max(128 * MIB as usize), images::STALE);
    Some(disk)
}

#[test]
fn every_layout_survives_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let mut made = 0;
    for (name, options) in LAYOUTS {
        let Some(disk) = make(directory.path(), options) else { continue };
        made += 1;
        let contents = read(&disk, false).unwrap();
        assert_eq!(contents.notes, Vec::<String>::new(), "{name}");
        assert_eq!((contents.filesystem.as_str(), contents.label.as_deref()), ("btrfs", Some("label")));
        assert!(contents.allocated.total() < 16 * MIB, "{name}: {} bytes", contents.allocated.total());
        let files = images::bytes_of_files(&disk, &contents);
        for file in ["large", "small"] {
            let bytes = fs::read(directory.path().join("tree").join(file)).unwrap();
            let is_there = files.windows(bytes.len()).any(|window| window == bytes);
            assert!(is_there, "{name}: {file} is in no run");
        }
        images::copy(&disk, &contents, &copy);
        let checked = run("btrfs", &["check", "--readonly", "--check-data-csum", copy.to_str().unwrap()]);
        assert!(checked.is_some(), "{name}: btrfs check finds errors in the copy");
    }
    if made == 0 {
        eprintln!("skipped: mkfs.btrfs is not installed");
        return;
    }
    assert!(made >= LAYOUTS.len() / 2, "only {made} filesystems could be made");
}

/// Mends the checksum of a block of 4096 bytes.
fn mend(block: &mut [u8]) {
    let sum = CRC32C.checksum(&block[32..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Changes a field of the superblock.
fn with(good: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut disk = good.to_vec();
    disk[SUPERBLOCK + offset..][..bytes.len()].copy_from_slice(bytes);
    mend(&mut disk[SUPERBLOCK..SUPERBLOCK + 4096]);
    disk
}

/// The offsets of all tree blocks that are owned by a tree.
fn blocks(disk: &[u8], tree: u64) -> Vec<usize> {
    let uuid = &disk[SUPERBLOCK + 32..SUPERBLOCK + 48];
    let is_one = |at: &usize| disk[at + 32..at + 48] == *uuid && disk[at + 88..at + 96] == tree.to_le_bytes();
    (0..disk.len()).step_by(4096).filter(|at| *at != SUPERBLOCK).filter(is_one).collect()
}

#[test]
fn what_cannot_be_trusted_is_kept_in_full_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Some(good) = make(directory.path(), &["-n", "4096", "-m", "single"]) else { return };
    assert_whole(&with(&good, 136, &2_u64.to_le_bytes()), "has 2 devices");
    assert_whole(&with(&good, 188 + 1, &[0x10]), "zoned");
    assert_whole(&with(&good, 188 + 1, &[0x40]), "unknown incompatible features: 0x4000");
    assert_whole(&with(&good, 180, &[0x13]), "unknown read-only compatible features: 0x10");
    assert_whole(&with(&good, 56 + 4, &[1]), "seed");
    assert_whole(&with(&good, 196, &[3]), "checksums of type 3");
    for (offset, bytes) in [(136, &[2][..]), (180, &[0x13]), (196, &[3])] {
        let disk = with(&good, offset, bytes);
        let opened = open_files(&Found::Filesystem("btrfs"), &disk, Extent::new(0, disk.len() as u64));
        assert_eq!(opened.unwrap().map(|_| ()).unwrap_err().kind(), ErrorKind::Refused, "{offset}");
    }
    assert_whole(&with(&good, 120, &[1]), "its superblock says");
    let mut unmended = good.clone();
    unmended[SUPERBLOCK + 700] ^= 1;
    assert_whole(&unmended, "superblock at offset 65536 has a wrong checksum");
    for (offset, bytes, remedy) in
        [(96, 4096_u64, ". Mount and unmount it;"), (56, 5, ". Run `btrfs check` on it;")]
    {
        let error = read(&with(&good, offset, &bytes.to_le_bytes()), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(remedy), "{error}");
    }
    let mut damaged = good.clone();
    for block in blocks(&good, 5) {
        damaged[block + 2000] ^= 1;
    }
    assert_whole(&damaged, "has a wrong checksum");
}

/// What is wrong with the root directory according to its files.
fn fault(disk: &Vec<u8>) -> Option<String> {
    let opened = open_files(&Found::Filesystem("btrfs"), disk, Extent::new(0, disk.len() as u64)).unwrap();
    let mut files = opened.unwrap();
    let root = files.root();
    let listing = files.inode(root).and_then(|root| files.list(&root));
    listing.err().map(|error| error.to_string())
}

/// A node with several parents would be visited for each of them: five levels of them make that endless. Items that overlap are more
/// bytes than there are.
#[test]
fn nodes_and_items_are_in_one_place() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("tree")).unwrap();
    for number in 0..300 {
        fs::write(directory.path().join(format!("tree/file-{number}")), "text").unwrap();
    }
    let Some(good) = make(directory.path(), &["-n", "4096", "-m", "single"]) else { return };
    assert_eq!(fault(&good), None);
    let changed = |level: u8, change: &dyn Fn(&mut [u8])| {
        let mut disk = good.clone();
        let has_two = |at: &usize| good[at + 100] == level && good[at + 96] > 1;
        for at in blocks(&good, 5).into_iter().filter(has_two) {
            change(&mut disk[at..at + 4096]);
            mend(&mut disk[at..at + 4096]);
        }
        fault(&disk).unwrap()
    };
    // Pointers begin at 101 and have 33 bytes: the key, then the address and the generation at 17.
    let error = changed(1, &|node| {
        for index in 1..usize::from(node[96]) {
            node.copy_within(101 + 17..101 + 33, 101 + 33 * index + 17);
        }
    });
    assert!(error.contains("has another first key than the pointer to it"), "{error}");
    let error = changed(1, &|node| {
        node.copy_within(101..101 + 17, 134);
        node[134 + 9] += 1;
    });
    assert!(error.contains("has keys of the node after it"), "{error}");
    // The second item is at 126: the key, then offset and length at 17.
    let error = changed(0, &|leaf| leaf.copy_within(101 + 17..101 + 25, 126 + 17));
    assert!(error.contains("items that overlap"), "{error}");
}

/// The extent tree misses an extent, and all counts agree with it.
#[test]
fn an_extent_tree_that_lies_is_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut disk) = make(directory.path(), &["--mixed", "-n", "4096", "-m", "single", "-d", "single"])
    else {
        return;
    };
    let number = |disk: &[u8], at: usize| u64::from_le_bytes(disk[at..at + 8].try_into().unwrap());
    let mut lost = 0;
    for block in blocks(&disk, 2) {
        let items = u32::from_le_bytes(disk[block + 96..block + 100].try_into().unwrap()) as usize;
        for item in (0..items).map(|index| block + 101 + index * 25) {
            // An extent of data that is not the only one loses its second half.
            if disk[item + 8] == 168 && number(&disk, item + 9) > 8192 && lost == 0 {
                lost = number(&disk, item + 9) / 8192 * 4096;
                let kept = number(&disk, item + 9) - lost;
                disk[item + 9..item + 17].copy_from_slice(&kept.to_le_bytes());
            }
        }
        for item in (0..items).map(|index| block + 101 + index * 25) {
            if disk[item + 8] == 192 && lost > 0 {
                let used =
                    block + 101 + u32::from_le_bytes(disk[item + 17..item + 21].try_into().unwrap()) as usize;
                let counted = number(&disk, used);
                if counted > lost {
                    disk[used..used + 8].copy_from_slice(&(counted - lost).to_le_bytes());
                }
            }
        }
        mend(&mut disk[block..block + 4096]);
    }
    assert!(lost > 0, "there is an extent");
    let used = number(&disk, SUPERBLOCK + 120) - lost;
    let disk = with(&disk, 120, &used.to_le_bytes());
    assert_whole(&disk, "which is free according to the extent tree");
}

/// The kernel hibernates into unwritten extents of a swap file and leaves them unwritten.
#[test]
fn a_hibernated_system_in_a_swap_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut disk) = make(directory.path(), &["-n", "4096", "-m", "single"]) else { return };
    let number = |disk: &[u8], at: usize| u64::from_le_bytes(disk[at..at + 8].try_into().unwrap());
    let large = fs::read(directory.path().join("tree/large")).unwrap();
    let start = disk.windows(4096).position(|window| *window == large[..4096]).unwrap();
    let mut flags_at = Vec::new();
    for block in blocks(&disk, 5) {
        let items = u32::from_le_bytes(disk[block + 96..block + 100].try_into().unwrap()) as usize;
        let of_item = |disk: &[u8], item: usize| {
            block + 101 + u32::from_le_bytes(disk[item + 17..item + 21].try_into().unwrap()) as usize
        };
        for item in (0..items).map(|index| block + 101 + index * 25) {
            let at = of_item(&disk, item);
            match disk[item + 8] {
                // Its inode, and its extents but the first.
                1 if number(&disk, at + 16) == large.len() as u64 => flags_at.push((block, at + 64)),
                108 if number(&disk, item + 9) > 0 => disk[at + 20] = 2,
                _ => {}
            }
        }
        mend(&mut disk[block..block + 4096]);
    }
    let is_read = |disk: &Vec<u8>| read(disk, false).map(|contents| contents.notes);
    assert!(is_read(&disk).unwrap().is_empty(), "unwritten extents are dropped");
    for magic in ["SWAPSPACE2", "S1SUSPEND\0"] {
        disk[start + 4086..start + 4096].copy_from_slice(magic.as_bytes());
        assert!(is_read(&disk).unwrap().is_empty(), "{magic}, not written in place");
    }
    assert!(!flags_at.is_empty(), "there is an inode");
    for (block, at) in flags_at {
        disk[at] |= 2;
        mend(&mut disk[block..block + 4096]);
    }
    let error = is_read(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("hibernated"), "{error}");
    assert_eq!(read(&disk, true).unwrap().allocated.total(), disk.len() as u64, "forced");
    disk[start + 4086..start + 4096].copy_from_slice(b"SWAPSPACE2");
    assert!(is_read(&disk).unwrap().is_empty(), "a swap area of a system that was shut down");
}

/// Random damage in tree blocks (with a fixed seed, and mended checksums) never causes a panic or an invalid region.
#[test]
fn damage_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut good) = make(directory.path(), &["--mixed", "-n", "4096", "-m", "single", "-d", "single"])
    else {
        return;
    };
    good.truncate(24 << 20);
    let all: Vec<usize> =
        (0..12).flat_map(|tree| blocks(&good, tree)).chain([SUPERBLOCK, SUPERBLOCK]).collect();
    let good = with(&good, 209, &(24 * MIB).to_le_bytes());
    let mut random = random();
    for _ in 0..300 {
        let mut disk = good.clone();
        let block = all[random() as usize % all.len()];
        let extent = Extent::new(block as u64, 4096);
        // Headers and keys are at the start.
        let length = if random().is_multiple_of(2) { 400 } else { extent.length };
        images::damage(&mut disk, &mut random, &|number| extent.offset + 32 + number % (length - 32));
        mend(&mut disk[block..block + 4096]);
        read(&disk, true).unwrap();
    }
}
