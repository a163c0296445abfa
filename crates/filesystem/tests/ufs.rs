//! UFS1 and UFS2 in many layouts, made by makefs, and read by GRUB after everything else was overwritten; and damaged ones.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;
use std::path::Path;

use images::{MIB, assert_whole, damage, random, read, run};
use platter_filesystem::Contents;
use platter_image::{ErrorKind, Extent};

/// Version, block size, fragment size, MiB, other options of makefs.
const LAYOUTS: &[(u32, u32, u32, u64, &str)] = &[
    (1, 8192, 1024, 16, ""),
    (1, 4096, 512, 16, "density=1024"),
    (1, 16384, 2048, 96, ""),
    (1, 65536, 65536, 32, ""),
    (2, 8192, 1024, 16, ""),
    (2, 4096, 4096, 16, "density=512"),
    (2, 32768, 4096, 128, ""),
    (2, 65536, 8192, 48, "density=65536"),
];

/// Where makefs writes the superblock of both versions.
const SUPERBLOCK: usize = 8 << 10;

/// Makes a filesystem with some files; `None` if that is not possible here.
fn make(directory: &Path, layout: (u32, u32, u32, u64, &str)) -> Option<Vec<u8>> {
    let (version, block, fragment, mib, more) = layout;
    let tree = images::tree(directory);
    let link = tree.join("link");
    if !link.is_symlink() {
        std::os::unix::fs::symlink("below/tiny", &link).unwrap();
        std::os::unix::fs::symlink("long/".repeat(100), tree.join("long-link")).unwrap();
        // Two levels of pointers, with small blocks.
        let contents: Vec<u8> = (0..6_000_000_u32).map(|at| (at / 3 % 253) as u8).collect();
        fs::write(tree.join("larger"), contents).unwrap();
    }
    let image = directory.join("image");
    let options = format!("version={version},bsize={block},fsize={fragment}");
    let size = format!("{}", mib * MIB);
    let mut arguments = vec!["-t", "ffs", "-B", "le", "-s", &size];
    for option in options.split(',').chain(more.split(',').filter(|option| !option.is_empty())) {
        arguments.extend(["-o", option]);
    }
    arguments.extend([image.to_str()?, tree.to_str()?]);
    run("makefs", &arguments)?;
    Some(fs::read(&image).unwrap())
}

fn number(disk: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(disk[at..at + 4].try_into().unwrap()))
}

/// Bytes that are free, according to the counters of the superblock.
fn free(disk: &[u8], version: u32) -> u64 {
    let (blocks, fragments) = if version == 1 { (196, 204) } else { (1016, 1032) };
    let field = |at| number(disk, SUPERBLOCK + at);
    field(blocks) * field(48) + field(fragments) * field(52)
}

/// Compares the files in an image as GRUB reads them.
fn assert_readable(directory: &Path, image: &Path, layout: &str) {
    let out = directory.join("out");
    for file in ["large", "small", "below/tiny", "larger"] {
        let arguments = [image.to_str().unwrap(), "cp", &format!("(loop0)/{file}"), out.to_str().unwrap()];
        run("grub-fstest", &arguments).unwrap_or_else(|| panic!("{layout}: GRUB does not read {file}"));
        let same = fs::read(&out).unwrap() == fs::read(directory.join("tree").join(file)).unwrap();
        assert!(same, "{layout}: {file} has other contents");
    }
}

#[test]
fn every_layout_agrees_with_grub() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let mut made = 0;
    for layout in LAYOUTS {
        let name = format!("{layout:?}");
        let Some(disk) = make(directory.path(), *layout) else { continue };
        made += 1;
        let contents = read(&disk, false).unwrap();
        assert_eq!(contents.notes, Vec::<String>::new(), "{name}");
        assert_eq!(contents.filesystem, "ufs");
        assert_eq!(contents.allocated.total(), disk.len() as u64 - free(&disk, layout.0), "{name}");
        // The end of a file is often elsewhere, so its bytes follow each other only in small files.
        let files = images::bytes_of_files(&disk, &contents);
        assert!(files.windows(4).any(|window| window == b"tiny"), "{name}: a file is in no run");
        assert!(files.len() > 3_000_001 + 6_000_000 + 5000, "{name}: {} bytes are in runs", files.len());
        images::copy(&disk, &contents, &copy);
        assert_readable(directory.path(), &copy, &name);
    }
    if made == 0 {
        eprintln!("skipped: makefs is not installed");
        return;
    }
    assert_eq!(made, LAYOUTS.len(), "some filesystems could not be made");
}

/// Sets four bytes of an image.
fn put(disk: &mut [u8], at: usize, value: u32) {
    disk[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn what_is_not_consistent_is_stored_in_full() {
    let directory = tempfile::tempdir().unwrap();
    let Some(sound) = make(directory.path(), (2, 16384, 2048, 32, "")) else {
        eprintln!("skipped: makefs is not installed");
        return;
    };
    let (start, fragment) = (SUPERBLOCK, 2048);
    let header = number(&sound, start + 12) as usize * fragment;
    let inodes = number(&sound, start + 16) as usize * fragment;
    let free_map = header + number(&sound, header + 96) as usize;
    let inode_map = header + number(&sound, header + 92) as usize;
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut disk = sound.clone();
        change(&mut disk);
        disk
    };
    let root = inodes + 2 * 256;
    // The root's first block, marked as free in a whole block, with counters that agree.
    let block = number(&sound, root + 112) as usize;
    let lie = changed(&|disk| {
        let first = block / 8 * 8;
        let free_before = disk[free_map + first / 8].count_ones();
        disk[free_map + first / 8] = 0xff;
        for (blocks, fragments) in [(header + 28, header + 36), (start + 1016, start + 1032)] {
            put(disk, blocks, number(&sound, blocks) as u32 + 1);
            put(disk, fragments, number(&sound, fragments) as u32 - free_before);
        }
    });
    assert_whole(&lie, "is in use, but marked as free");
    assert_whole(
        &changed(&|disk| disk[free_map + block / 8] ^= 1 << (block % 8)),
        "according to its bitmaps",
    );
    assert_whole(&changed(&|disk| disk[inode_map] ^= 1 << 2), "according to its bitmaps");
    assert_whole(&changed(&|disk| put(disk, header + 24, 9)), "directories");
    assert_whole(&changed(&|disk| put(disk, start + 1016, 1)), "superblock says");
    assert_whole(&changed(&|disk| put(disk, root + 24, 1)), "sectors");
    assert_whole(&changed(&|disk| put(disk, root + 256 + 112, block as u32)), "has two owners");
    assert_whole(&changed(&|disk| put(disk, root + 88, 0x0020_0000)), "snapshot");
    assert_whole(&changed(&|disk| put(disk, start + 1116, 7)), "snapshots");
    assert_whole(&changed(&|disk| put(disk, block * fragment, 60)), "which is free");
    assert_whole(&changed(&|disk| put(disk, block * fragment, 1 << 30)), "names inode");
    let twice = changed(&|disk| disk.copy_within(start..start + 1376, 256 << 10));
    let twice_there = {
        let mut disk = twice;
        disk[(256 << 10) + 1000..(256 << 10) + 1008].copy_from_slice(&(256_u64 << 10).to_le_bytes());
        disk
    };
    assert_whole(&twice_there, "lies in its own data");
    for dirty in [changed(&|disk| disk[start + 209] = 0), changed(&|disk| put(disk, start + 1312, 1))] {
        assert_eq!(read(&dirty, false).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(read(&dirty, true).unwrap().allocated.total(), dirty.len() as u64);
    }
    let big_endian = changed(&|disk| disk[start + 1372..start + 1376].reverse());
    assert_whole(&big_endian, "it is big-endian");
    let gone = changed(&|disk| put(disk, start + 56, 3));
    assert_whole(&gone, "is not possible: its fragment size");
}

/// A file with a hole, which makefs does not make.
#[test]
fn holes_have_no_fragments() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut disk) = make(directory.path(), (2, 16384, 2048, 32, "")) else { return };
    let before = read(&disk, false).unwrap();
    let field = |disk: &[u8], at| number(disk, SUPERBLOCK + at) as usize;
    let (header, inodes) = (field(&disk, 12) * 2048, field(&disk, 16) * 2048);
    let free_map = header + number(&disk, header + 96) as usize;
    let larger =
        (0..64).map(|index| inodes + index * 256).find(|at| number(&disk, at + 16) == 6_000_000).unwrap();
    let pointer = larger + 112 + 3 * 8;
    let block = number(&disk, pointer) as usize;
    put(&mut disk, pointer, 0);
    disk[free_map + block / 8] = 0xff;
    for at in [header + 28, SUPERBLOCK + 1016] {
        let free = number(&disk, at) as u32;
        put(&mut disk, at, free + 1);
    }
    assert_whole(&disk, "sectors");
    let sectors = number(&disk, larger + 24) as u32;
    put(&mut disk, larger + 24, sectors - 32);
    let contents = read(&disk, false).unwrap();
    assert_eq!(contents.notes, Vec::<String>::new());
    assert_eq!(contents.allocated.total() + 16384, before.allocated.total());
    assert_eq!(contents.files.len(), before.files.len() + 1, "the file is in two pieces");
}

/// Damage either is found, or changes nothing that was kept.
#[test]
fn damage_never_drops_what_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    for layout in [(1, 8192, 1024, 16, ""), (2, 8192, 1024, 16, "")] {
        let Some(sound) = make(directory.path(), layout) else { return };
        let before = read(&sound, false).unwrap();
        let mut random = random();
        let mut kept = 0;
        for _ in 0..1500 {
            let mut disk = sound.clone();
            // Superblocks, headers of groups, inodes and the first directories are in the first parts of groups.
            damage(&mut disk, &mut random, &|number| number % (disk_head(&before) as u64));
            match read(&disk, false) {
                Ok(contents) => {
                    let lost = before.allocated.subtract(&contents.allocated);
                    assert!(lost.is_empty(), "{layout:?}: {lost:?} is lost");
                    kept += usize::from(contents.allocated.total() < disk.len() as u64);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{error}"),
            }
        }
        assert!(kept > 0, "{layout:?}: no damage was without effect");
    }
}

/// How many bytes from the start are in use without a gap.
fn disk_head(contents: &Contents) -> usize {
    contents.allocated.iter().next().map_or(1, Extent::end) as usize
}
