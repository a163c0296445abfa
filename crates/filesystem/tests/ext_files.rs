//! The files of ext filesystems. Hostile filesystems must not cause endless loops, panics or endless work.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

use platter_filesystem::ext::Files;
use platter_filesystem::{FileContents, FileInode, FileKind};
use platter_image::{DiskRead, ErrorKind, Extent};

const MIB: u64 = 1 << 20;

/// An 8 MiB filesystem with 1 KiB blocks; `None` if `mke2fs` is missing.
fn filesystem(options: &[&str]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (tree, file) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir_all(tree.join("directory/below")).unwrap();
    std::fs::write(tree.join("directory/file"), vec![7; 5000]).unwrap();
    std::fs::write(tree.join("tiny"), b"tiny").unwrap();
    std::os::unix::fs::symlink("directory/file", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("long/".repeat(20), tree.join("long-link")).unwrap();
    std::fs::File::create(&file).unwrap().set_len(8 * MIB).unwrap();
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-b", "1024", "-d", tree.to_str().unwrap()])
        .args(options)
        .arg(&file)
        .status();
    match made {
        Ok(status) if status.success() => Some(std::fs::read(&file).unwrap()),
        _ => None,
    }
}

fn open(disk: &Vec<u8>) -> Files<'_> {
    Files::open(disk, Extent::new(0, disk.length())).unwrap()
}

fn names(files: &mut Files<'_>, directory: &FileInode) -> Vec<(String, u64)> {
    let listing = files.list(directory).unwrap();
    let name = |place| {
        let (name, inode) = listing.get(place).unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), inode)
    };
    (0..listing.len()).map(name).collect()
}

fn find(files: &mut Files<'_>, path: &str) -> FileInode {
    let mut inode = files.inode(files.root()).unwrap();
    for part in path.split('/') {
        let found = names(files, &inode).into_iter().find(|(name, _)| name == part).unwrap();
        inode = files.inode(found.1).unwrap();
    }
    inode
}

#[test]
fn files_are_read() {
    for options in [&["-t", "ext2"][..], &["-t", "ext4"], &["-t", "ext4", "-O", "inline_data"]] {
        let Some(disk) = filesystem(options) else { return };
        let mut files = open(&disk);
        let root = files.inode(files.root()).unwrap();
        let listed: Vec<String> = names(&mut files, &root).into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed, ["directory", "link", "long-link", "lost+found", "tiny"], "{options:?}");
        let file = find(&mut files, "directory/file");
        assert_eq!((file.metadata().size, file.metadata().kind), (5000, FileKind::Regular));
        let FileContents::Runs(runs) = files.contents(&file).unwrap() else {
            panic!("5000 bytes in an inode")
        };
        assert_eq!(runs.iter().map(|run| run.place.length).sum::<u64>(), 5120);
        let link = find(&mut files, "link");
        assert_eq!(files.target(&link).unwrap(), b"directory/file");
        let link = find(&mut files, "long-link");
        assert_eq!(files.target(&link).unwrap(), "long/".repeat(20).as_bytes());
    }
}

/// Where an inode is stored on a disk.
fn place_of_inode(disk: &[u8], inode: &FileInode) -> usize {
    let found = disk.windows(inode.bytes().len()).position(|bytes| bytes == inode.bytes());
    found.unwrap()
}

/// An extent tree whose node is its own child: the walk ends because the depth decreases, and the tree is
/// refused.
#[test]
fn cyclic_extent_trees_are_refused() {
    let Some(mut disk) = filesystem(&["-t", "ext4", "-O", "^metadata_csum,^has_journal"]) else { return };
    let (at, block) = {
        let mut files = open(&disk);
        let file = find(&mut files, "directory/file");
        let FileContents::Runs(runs) = files.contents(&file).unwrap() else { return };
        (place_of_inode(&disk, &file) + 0x28, runs[0].place.offset / 1024)
    };
    let node = |depth: u8, entries: u8| {
        let mut bytes = vec![0x0a, 0xf3, entries, 0, 84, 0, depth, 0, 0, 0, 0, 0];
        for _ in 0..entries {
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&(block as u32).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        bytes
    };
    for (depth, below) in [(5, 4), (1, 1), (9, 8)] {
        let root = node(depth, 4);
        disk[at..at + root.len()].copy_from_slice(&root);
        let child = node(below, 80);
        disk[block as usize * 1024..][..child.len()].copy_from_slice(&child);
        let mut files = open(&disk);
        let file = find(&mut files, "directory/file");
        assert_eq!(files.contents(&file).unwrap_err().kind(), ErrorKind::Corrupt, "depth {depth}");
    }
}

/// Inode numbers that do not exist, are not in use, or were never used.
#[test]
fn invalid_inode_numbers_are_refused() {
    let Some(disk) = filesystem(&["-t", "ext4"]) else { return };
    let files = open(&disk);
    for number in [0, 1000, 60_000, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(files.inode(number).unwrap_err().kind(), ErrorKind::Corrupt, "inode {number}");
    }
}

/// A filesystem that was not unmounted is refused: its newest files are only in its journal.
#[test]
fn a_filesystem_that_needs_recovery_is_refused() {
    let Some(mut disk) = filesystem(&["-t", "ext4", "-O", "^metadata_csum"]) else { return };
    disk[1024 + 0x60] |= 4;
    let refused = Files::open(&disk, Extent::new(0, 8 * MIB)).err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::Refused));
}
