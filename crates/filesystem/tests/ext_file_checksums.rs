//! Files of ext4 with metadata checksums: every sound filesystem is read, and nothing is read through an inode or block with a wrong
//! checksum.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;
use std::path::Path;

use images::{MIB, run};
use platter_filesystem::{FileContents, FileInode, FileKind, FileTree, Found, open_files};
use platter_image::{DiskRead, ErrorKind, Extent, Result};

/// Options of mkfs.ext4, and the size of a block in KiB. The first two have hashed directories of two levels.
const LAYOUTS: &[(usize, &[&str])] = &[
    (1, &[]),
    (1, &["-O", "metadata_csum_seed,casefold,encrypt"]),
    (2, &["-O", "inline_data", "-I", "512"]),
    (4, &["-I", "128"]),
    (4, &["-O", "64bit,large_dir,ea_inode,bigalloc"]),
    (16, &["-O", "^64bit", "-I", "1024"]),
    (64, &["-O", "^64bit,^flex_bg"]),
    (1, &["-O", "^dir_index"]),
    // Without checksums of inodes and directories.
    (1, &["-O", "^metadata_csum,uninit_bg"]),
    (4, &["-O", "^metadata_csum,^uninit_bg"]),
];
const HASHED_NAMES: usize = 700;

/// Makes a filesystem with attributes in a block, trees of extents, and directories of all kinds; `None` if that is not possible here.
fn make(directory: &Path, block_kib: usize, options: &[&str]) -> Option<Vec<u8>> {
    let (image, tree) = (directory.join("image"), images::tree(directory));
    let many = tree.join("many");
    fs::create_dir_all(&many).unwrap();
    for number in 0..HASHED_NAMES {
        fs::write(many.join(format!("{number:0200}")), "").unwrap();
    }
    let scattered = fs::File::create(tree.join("scattered")).unwrap();
    for place in 0..100 {
        std::os::unix::fs::FileExt::write_all_at(&scattered, b"a piece", place * (128 << 10)).unwrap();
    }
    let (image, block_size) = (image.to_str()?.to_owned(), (block_kib << 10).to_string());
    images::stale(Path::new(&image), 64 * MIB);
    let mut arguments = vec!["-q", "-F", "-E", "nodiscard", "-b", &block_size, "-N", "2048"];
    arguments.extend(["-O", "metadata_csum", "-d", tree.to_str()?]);
    arguments.extend(options.iter().copied().chain([image.as_str()]));
    run("mkfs.ext4", &arguments)?;
    let value = directory.join("value");
    fs::write(&value, [b'v'; 900]).unwrap();
    let long = format!("ea_set -f {} /small user.long", value.to_str()?);
    for command in [&long, "sif /below/tiny extra_isize 0"] {
        run("debugfs", &["-w", "-R", command, &image])?;
    }
    // Makes hashed directories.
    run("e2fsck", &["-fyD", &image]);
    run("e2fsck", &["-fn", &image])?;
    Some(fs::read(image).unwrap())
}

/// Reads everything of a file, and of everything below a directory; returns the number of files, and the errors.
fn read_all(files: &mut dyn FileTree, number: u64, errors: &mut Vec<String>) -> u64 {
    let mut read = || -> Result<Vec<u64>> {
        let inode = files.inode(number)?;
        files.attributes(&inode)?;
        match inode.metadata().kind {
            FileKind::Directory => {
                let listing = files.list(&inode)?.complete()?;
                Ok((0..listing.len()).filter_map(|at| listing.get(at)).map(|(_, number)| number).collect())
            }
            _ => files.visit_contents(&inode, &mut |_, _| Ok(())).map(|()| Vec::new()),
        }
    };
    let below = match read() {
        Ok(below) => below,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            errors.push(error.with_causes());
            Vec::new()
        }
    };
    1 + below.into_iter().map(|number| read_all(files, number, errors)).sum::<u64>()
}

fn open(disk: &Vec<u8>) -> Box<dyn FileTree + '_> {
    open_files(&Found::Filesystem("ext"), disk, Extent::new(0, disk.length())).unwrap().unwrap()
}

fn errors(disk: &Vec<u8>) -> (u64, Vec<String>) {
    let (mut files, mut errors) = (open(disk), Vec::new());
    let root = files.root();
    (read_all(&mut *files, root, &mut errors), errors)
}

fn find(files: &mut dyn FileTree, path: &str) -> FileInode {
    platter_filesystem::resolve(files, path.as_bytes(), false).unwrap()
}

/// Damage: the offset of a byte, and what is said of it.
fn damages(disk: &Vec<u8>, block_size: usize) -> Vec<(usize, &'static str)> {
    let mut files = open(disk);
    let inode = find(&mut *files, "/large");
    let at = disk.windows(inode.bytes().len()).position(|bytes| bytes == inode.bytes()).unwrap();
    // The first block of its contents becomes another.
    let mut found = vec![(at + 0x28 + 20, "")];
    let scattered = find(&mut *files, "/scattered");
    // The number of the first block below the root of its tree.
    let number = u32::from_le_bytes(scattered.bytes()[0x38..0x3c].try_into().unwrap());
    assert_eq!(scattered.bytes()[0x2e], 1, "levels of the tree");
    found.push((number as usize * block_size + 20, "of its extent tree"));
    let many = find(&mut *files, "/many");
    let FileContents::Runs(runs) = files.contents(&many).unwrap() else { return found };
    let blocks = runs.iter().flat_map(|run| (run.place.offset..run.place.end()).step_by(block_size));
    // The root and the nodes of an index of names are entries as long as their block; some of the others.
    let is_node = |at: usize| u16::from_le_bytes([disk[at + 4], disk[at + 5]]) as usize == block_size;
    let blocks = blocks.enumerate().map(|(number, at)| (number, at as usize));
    let blocks = blocks.filter(|(number, at)| number % 64 == 0 || is_node(*at));
    found.extend(blocks.map(|(_, at)| (at, "of its directory")));
    let attributes = disk.chunks_exact(block_size).position(|block| block.starts_with(&[0, 0, 2, 0xea]));
    found.extend(attributes.map(|number| (number * block_size + block_size - 3, "of its attributes")));
    found
}

#[test]
fn nothing_is_read_through_what_has_a_wrong_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let mut made = 0;
    for (block_kib, options) in LAYOUTS {
        let Some(mut disk) = make(directory.path(), *block_kib, options) else {
            eprintln!("cannot be made here: {options:?}");
            continue;
        };
        made += 1;
        let (files, found) = errors(&disk);
        assert!(found.is_empty() && files > HASHED_NAMES as u64, "{options:?}: {found:?}");
        if options.iter().any(|option| option.starts_with("^metadata_csum")) {
            continue;
        }
        let damages = damages(&disk, block_kib << 10);
        let kinds = ["", "of its extent tree", "of its directory", "of its attributes"];
        for kind in kinds.iter().take(if *block_kib < 64 { 4 } else { 3 }) {
            assert!(damages.iter().any(|(_, what)| what == kind), "{options:?}: no damage {kind}");
        }
        for (at, what) in damages {
            disk[at] ^= 1;
            let (left, found) = errors(&disk);
            disk[at] ^= 1;
            let is_named = |error: &String| {
                error.starts_with("inode ") && error.contains(what) && error.contains("has a wrong checksum")
            };
            assert!(found.len() == 1 && is_named(&found[0]), "{options:?}, {what:?}, offset {at}: {found:?}");
            let expected = if what == "of its directory" { files - HASHED_NAMES as u64 } else { files };
            assert_eq!(left, expected, "{options:?}, {what:?}, offset {at}");
        }
    }
    if made == 0 {
        eprintln!("skipped: mkfs.ext4 is not installed");
        return;
    }
    assert!(made >= LAYOUTS.len() - 2, "only {made} filesystems could be made");
}
