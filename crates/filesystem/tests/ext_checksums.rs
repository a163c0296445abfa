//! ext4 with metadata checksums: extents that were never written are dropped, unless a checksum that covers them is wrong.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use images::{MIB, read, run};

/// Name, size in MiB, options of mkfs.ext4.
const LAYOUTS: &[(&str, u64, &[&str])] = &[
    ("1k", 24, &["-b", "1024"]),
    ("4k", 32, &["-b", "4096"]),
    ("64k", 96, &["-b", "65536"]),
    ("seed", 24, &["-b", "1024", "-O", "metadata_csum_seed"]),
    ("old inodes", 24, &["-b", "1024", "-I", "128"]),
    ("large inodes", 24, &["-b", "1024", "-I", "1024"]),
    ("short descriptors", 24, &["-b", "1024", "-O", "^64bit"]),
    ("inline", 24, &["-b", "1024", "-O", "inline_data"]),
    ("clusters", 64, &["-b", "1024", "-O", "bigalloc", "-C", "16384"]),
];

/// The blocks of the scattered file, each apart from the next.
const SCATTERED: u64 = 1000;
/// Preallocated and never written.
const UNWRITTEN: u64 = 4 * MIB;

/// Makes a filesystem with files in an inode, in a tree, and without contents; `None` if that is not possible here.
fn make(directory: &Path, mib: u64, options: &[&str]) -> Option<Vec<u8>> {
    let (image, tree) = (directory.join("image"), images::tree(directory));
    let scattered = File::create(tree.join("scattered")).unwrap();
    let step = if options.contains(&"65536") { 131_072 } else { 8192 };
    for place in (0..SCATTERED).take(if step > 8192 { 500 } else { 1000 }) {
        scattered.write_all_at(b"a block of its own", place * step).unwrap();
    }
    File::create(tree.join("reserved")).unwrap();
    images::stale(&image, mib * MIB);
    let image = image.to_str()?;
    let mut arguments = vec!["-q", "-F", "-E", "nodiscard", "-O", "metadata_csum", "-d", tree.to_str()?];
    arguments.extend(options.iter().copied().chain([image]));
    run("mkfs.ext4", &arguments)?;
    let block_size = u64::from(read(&fs::read(image).unwrap(), false).unwrap().block_size);
    run("debugfs", &["-w", "-R", &format!("fallocate /reserved 0 {}", UNWRITTEN / block_size - 1), image])?;
    run("e2fsck", &["-fn", image])?;
    Some(fs::read(image).unwrap())
}

/// Every place where an entry of an extent tree says that blocks were written, in all nodes without a level below.
fn written(disk: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    for at in (0..disk.len() - 12).step_by(4).filter(|at| disk[*at..].starts_with(&[0x0a, 0xf3])) {
        let word = |at: usize| u16::from_le_bytes([disk[at], disk[at + 1]]);
        let (entries, capacity, depth) = (word(at + 2), word(at + 4), word(at + 6));
        if depth == 0 && entries > 0 && entries <= capacity && disk[at + 8..at + 12] == [0; 4] {
            let lengths = (1..=usize::from(entries)).map(|entry| at + 12 * entry + 4);
            found.extend(lengths.filter(|at| disk.get(*at..*at + 2).is_some() && word(*at) < 0x8000));
        }
    }
    found
}

#[test]
fn extents_are_dropped_if_their_checksums_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let (copy, mut made) = (directory.path().join("copy"), 0);
    for (name, mib, options) in LAYOUTS {
        let Some(mut disk) = make(directory.path(), *mib, options) else { continue };
        made += 1;
        let contents = read(&disk, false).unwrap();
        assert_eq!(contents.notes, Vec::<String>::new(), "{name}");
        let clean = contents.allocated.total();
        images::copy(&disk, &contents, &copy);
        assert!(run("e2fsck", &["-fn", copy.to_str().unwrap()]).is_some(), "{name}: the copy is damaged");
        let places = written(&disk);
        assert!(places.len() > 400, "{name}: {} extents", places.len());
        let step = places.len() / 6;
        let mut reasons =
            [("of its extent tree has a wrong checksum", 0), ("never written, but its checksum is wrong", 0)];
        for at in places.iter().step_by(step).chain(&places[..8]) {
            disk[at + 1] ^= 0x80;
            let contents = read(&disk, false).unwrap();
            disk[at + 1] ^= 0x80;
            // A journal, a directory or a link is kept, whatever its extents say.
            assert!(contents.allocated.total() >= clean, "{name}: offset {at}");
            for (reason, count) in &mut reasons {
                *count += usize::from(contents.notes.iter().any(|note| note.contains(*reason)));
            }
        }
        assert!(reasons.iter().all(|(_, count)| *count > 0), "{name}: {reasons:?}");
    }
    if made == 0 {
        eprintln!("skipped: mkfs.ext4 is not installed");
        return;
    }
    assert!(made >= LAYOUTS.len() / 2, "only {made} filesystems could be made");
}

/// A mount does not clear the mark of errors.
#[test]
fn a_refusal_says_what_helps() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    images::stale(&image, 8 * MIB);
    if run("mkfs.ext4", &["-q", "-F", "-O", "^metadata_csum", image.to_str().unwrap()]).is_none() {
        return;
    }
    let good = fs::read(&image).unwrap();
    for (state, remedy) in
        [(3, "having errors. Run e2fsck on it;"), (0, "unmounted. Mount and unmount it, or run e2fsck")]
    {
        let mut disk = good.clone();
        disk[1024 + 0x3a] = state;
        let error = read(&disk, false).unwrap_err();
        assert_eq!(error.kind(), platter_image::ErrorKind::Refused);
        assert!(error.to_string().contains(remedy), "{error}");
        let forced = read(&disk, true).unwrap();
        assert_eq!(forced.allocated.total(), disk.len() as u64);
    }
}
