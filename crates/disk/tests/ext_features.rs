//! ext filesystems with all features that mke2fs offers, checked against e2fsprogs: exact allocation maps,
//! contents of files, and a copy with nothing but the surveyed bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod oracle;

use std::fs;
use std::path::Path;

use oracle::STALE;
use platter_disk::{Source, SurveyOptions, survey};
use platter_image::{DiskRead, ErrorKind, Extent, Extents};

/// Name, size in MiB, options of mke2fs.
const FILESYSTEMS: &[(&str, u64, &[&str])] = &[
    ("ext2 1k", 24, &["-t", "ext2", "-b", "1024"]),
    ("ext2 4k", 24, &["-t", "ext2", "-b", "4096"]),
    ("revision 0", 24, &["-t", "ext2", "-b", "1024", "-r", "0"]),
    ("every group has a backup", 24, &["-t", "ext2", "-b", "1024", "-O", "^sparse_super,^resize_inode"]),
    ("ext3", 32, &["-t", "ext3", "-b", "1024"]),
    ("ext4", 48, &["-t", "ext4", "-b", "4096"]),
    ("ext4 1k", 48, &["-t", "ext4", "-b", "1024"]),
    ("ext4 2k without journal", 32, &["-t", "ext4", "-b", "2048", "-O", "^has_journal"]),
    ("ext4 64k", 96, &["-t", "ext4", "-b", "65536"]),
    ("bigalloc", 48, &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"]),
    ("bigalloc 1k", 48, &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"]),
    ("32 bit", 32, &["-t", "ext4", "-b", "1024", "-O", "^64bit"]),
    ("uninit_bg", 64, &["-t", "ext4", "-b", "1024", "-O", "^64bit,^metadata_csum,uninit_bg"]),
    ("uninit_bg 64 bit", 64, &["-t", "ext4", "-b", "1024", "-O", "64bit,^metadata_csum,uninit_bg"]),
    ("64 bit, no checksums", 64, &["-t", "ext4", "-b", "1024", "-O", "64bit,^metadata_csum,^uninit_bg"]),
    ("meta_bg", 64, &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]),
    ("meta_bg 32 bit", 300, &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^64bit"]),
    (
        "meta_bg bigalloc 1k",
        64,
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,bigalloc", "-C", "4096"],
    ),
    ("no flex_bg", 64, &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"]),
    ("large flexible groups", 128, &["-t", "ext4", "-b", "1024", "-G", "64"]),
    ("sparse_super2", 64, &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"]),
    (
        "one backup",
        64,
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"],
    ),
    ("checksum seed", 48, &["-t", "ext4", "-O", "metadata_csum,metadata_csum_seed"]),
    ("inline data", 48, &["-t", "ext4", "-O", "inline_data", "-I", "512"]),
    ("small inodes", 48, &["-t", "ext4", "-I", "128"]),
    ("casefold, encrypt, verity", 48, &["-t", "ext4", "-O", "casefold,encrypt,verity,stable_inodes"]),
    ("quota, project", 48, &["-t", "ext4", "-O", "quota,project"]),
    ("mmp", 48, &["-t", "ext4", "-O", "mmp"]),
    ("orphan file", 48, &["-t", "ext4", "-O", "orphan_file"]),
    ("large_dir, ea_inode, fast_commit", 48, &["-t", "ext4", "-O", "large_dir,ea_inode,fast_commit"]),
];

fn look(image: &Path) -> (Source, platter_disk::Survey) {
    let source = Source::open(image, None).unwrap();
    let survey = survey(&source, None, &SurveyOptions::default()).unwrap();
    (source, survey)
}

#[test]
fn every_feature_survives_a_copy() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let tree = directory.path().join("tree");
    oracle::populate(&tree);
    let expected = oracle::files(&tree);
    let mut made = 0;
    for (name, mib, options) in FILESYSTEMS {
        let image = directory.path().join("image");
        let Some(()) = oracle::make(&image, mib << 20, options, Some(&tree)) else { continue };
        made += 1;
        // Delete some files, so that free blocks have old contents.
        oracle::debugfs(&image, "rm many/file-77\nrm many/file-99\n");
        let (block_size, free) = oracle::free(&image);
        let (source, survey) = look(&image);
        let [part] = survey.parts.as_slice() else { panic!("{name}: {:?}", survey.parts.len()) };
        assert!(part.filesystem.starts_with("ext"), "{name}: {}", part.filesystem);
        assert_eq!(part.notes, Vec::<String>::new(), "{name}");
        let in_use = free.complement(Extent::new(0, source.length()));
        assert_eq!(part.region.allocated.subtract(&in_use), Extents::new(), "{name}: free space is kept");
        let mut dropped = in_use.subtract(&part.region.allocated);
        if name.contains("bigalloc") {
            // Its bitmaps count clusters, and a block of one may be nobody's.
            dropped = dropped.subtract(&oracle::unowned(&image, &dropped, block_size));
        }
        assert_eq!(dropped, Extents::new(), "{name}: space in use is dropped");
        let has_journal = oracle::has_journal(&image);
        assert_eq!(part.region.zeroed.total() > 0, has_journal, "{name}: the body of its journal");

        let files: Vec<_> = expected
            .iter()
            .filter(|(path, _)| {
                !path.ends_with("file-77") && !path.ends_with("file-99") && !path.ends_with("hard-link")
            })
            .filter(|(_, contents)| !options.contains(&"inline_data") || contents.len() > 400)
            .cloned()
            .collect();
        let ours = oracle::pieces_of_runs(&part.region.files, &source, block_size);
        let theirs = oracle::pieces_of_files(&files, block_size);
        let lost = theirs.iter().filter(|(piece, count)| ours.get(*piece) < Some(count)).count();
        assert_eq!(lost, 0, "{name}: blocks of files that are in no run");
        let more = ours.iter().filter(|(piece, count)| theirs.get(*piece) < Some(count)).count();
        // Quota files, the orphan file and large attributes are files that the test did not create.
        assert!(more <= 40, "{name}: {more} blocks of runs that are in no file");

        let copy = directory.path().join("copy");
        oracle::install(&survey, &image, &copy);
        oracle::check(&copy, &image);
        let dumped = directory.path().join("dumped");
        oracle::dump(&copy, &dumped);
        let all: Vec<_> = if options.contains(&"inline_data") {
            // debugfs does not read all of them correctly, not even from the original.
            let from_original = directory.path().join("from-original");
            oracle::dump(&image, &from_original);
            oracle::files(&from_original)
        } else {
            expected
                .iter()
                .filter(|(path, _)| !path.ends_with("file-77") && !path.ends_with("file-99"))
                .cloned()
                .collect()
        };
        assert_eq!(oracle::files(&dumped).len(), all.len(), "{name}");
        assert!(oracle::files(&dumped) == all, "{name}: a file came back different");
        fs::remove_dir_all(&dumped).unwrap();
    }
    assert!(made >= FILESYSTEMS.len() / 2, "only {made} filesystems could be made");
}

/// Backup superblocks and descriptors are restored, in initialised groups and others.
#[test]
fn backups_are_kept() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let image = directory.path().join("image");
    oracle::make(&image, 256 << 20, &["-t", "ext4", "-b", "1024", "-O", "^64bit"], None).unwrap();
    let (_, survey) = look(&image);
    let copy = directory.path().join("copy");
    oracle::install(&survey, &image, &copy);
    let (original, copy) = (fs::read(&image).unwrap(), fs::read(&copy).unwrap());
    for group in [0, 1, 3, 5, 7, 9, 25, 27] {
        // A superblock, and one block with the descriptors of 32 groups.
        let blocks = (group * 8192 + 1) * 1024..(group * 8192 + 3) * 1024;
        assert_eq!(
            original[blocks.start + 56..blocks.start + 58],
            [0x53, 0xef],
            "there is one in group {group}"
        );
        assert!(original[blocks.clone()] == copy[blocks], "group {group}");
    }
}

/// Preallocated blocks that were never written are dropped; everything around them is kept.
#[test]
fn preallocation_is_not_data() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    for options in [
        &["-t", "ext4", "-b", "4096"] as &[&str],
        &["-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "65536"],
    ] {
        let image = directory.path().join("image");
        let tree = directory.path().join("tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("file"), [b'x'; 20000]).unwrap();
        let Some(()) = oracle::make(&image, 48 << 20, options, Some(&tree)) else { continue };
        oracle::debugfs(&image, "fallocate file 5 300\n");
        let tree = oracle::run("debugfs", &["-R", "ex file", image.to_str().unwrap()]);
        // Level, entries, logical, physical, length, flags; of leaves only, whose level is "0/ 0".
        let listing = oracle::text(&tree);
        let unwritten: u64 = listing
            .lines()
            .filter(|line| line.contains("Uninit") && line.trim_start().starts_with("0/"))
            .map(|line| line.split_whitespace().rev().nth(1).unwrap().parse::<u64>().unwrap())
            .sum();
        assert!(unwritten > 200, "{listing}");
        let (_, free) = oracle::free(&image);
        let (source, survey) = look(&image);
        let in_use = free.complement(Extent::new(0, source.length()));
        let mut dropped = in_use.subtract(&survey.parts[0].region.allocated);
        if options.contains(&"bigalloc") {
            dropped = dropped.subtract(&oracle::unowned(&image, &dropped, 4096));
        }
        assert_eq!(dropped.total(), unwritten * 4096, "{options:?}: {listing}");
        let copy = directory.path().join("copy");
        oracle::install(&survey, &image, &copy);
        oracle::check(&copy, &image);
        let dumped = directory.path().join("dumped");
        oracle::dump(&copy, &dumped);
        let contents = fs::read(dumped.join("file")).unwrap();
        assert!(contents == vec![b'x'; 20000]);
        fs::remove_dir_all(&dumped).unwrap();
    }
}

/// A heavily fragmented file is cut along the grid, because 1 KiB blocks would cost more than they hold.
/// Other files are cut along the file.
#[test]
fn fragments_are_cut_along_the_grid() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let (image, tree) = (directory.path().join("image"), directory.path().join("tree"));
    fs::create_dir_all(&tree).unwrap();
    let contents: Vec<u8> = (0..400_000).map(|at| (at / 3 % 253) as u8 + 1).collect();
    for name in ["whole", "pieces", "few-pieces"] {
        fs::write(tree.join(name), &contents).unwrap();
    }
    oracle::make(&image, 16 << 20, &["-t", "ext4", "-b", "1024"], Some(&tree)).unwrap();
    let punch = |name: &str, every: usize, until: usize| -> String {
        (0..until).step_by(every).map(|block| format!("punch {name} {block} {block}\n")).collect()
    };
    oracle::debugfs(&image, &format!("{}{}", punch("pieces", 2, 390), punch("few-pieces", 2, 10)));
    let (_, survey) = look(&image);
    assert_eq!(survey.parts[0].notes, Vec::<String>::new());
    let lengths: Vec<u64> = survey.parts[0].region.files.iter().map(|run| run.extent().length).collect();
    assert!(lengths.iter().any(|length| *length > 100 << 10), "{lengths:?}");
    let short = lengths.iter().filter(|length| **length == 1024).count();
    assert_eq!(short, 4, "of the file that has few");
}

/// An untrustworthy filesystem is kept in full; one that needs recovery is refused unless forced.
#[test]
fn damaged_filesystems_are_kept_in_full_or_refused() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let image = directory.path().join("image");
    oracle::make(&image, 32 << 20, &["-t", "ext4", "-b", "4096"], None).unwrap();
    let good = fs::read(&image).unwrap();
    let whole = |bytes: &Vec<u8>, reason: &str| {
        let survey = survey(bytes, None, &SurveyOptions::default()).unwrap();
        assert_eq!(survey.used(), bytes.len() as u64, "{reason}");
        let notes: Vec<String> = survey.all_notes().collect();
        assert!(notes.iter().any(|note| note.contains(reason)), "{reason}: {notes:?}");
    };
    let damaged = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= value;
        bytes
    };
    whole(&damaged(1024 + 0x78, 1), "superblock has a wrong checksum");
    whole(&damaged(4096 + 0x0c, 1), "descriptor of group 0 has a wrong checksum");
    let bitmap = u32::from_le_bytes(good[4096..4100].try_into().unwrap()) as usize * 4096;
    whole(&damaged(bitmap + 100, 1), "bitmap of group 0 has a wrong checksum");
    let mut short = good.clone();
    short.truncate(20 << 20);
    whole(&short, "its place has");

    // Without checksums, wrong counts are detected.
    oracle::make(&image, 32 << 20, &["-t", "ext2", "-b", "4096"], None).unwrap();
    let mut plain = fs::read(&image).unwrap();
    let bitmap = u32::from_le_bytes(plain[4096..4100].try_into().unwrap()) as usize * 4096;
    plain[bitmap + 900] ^= 1;
    whole(&plain, "free clusters according to its bitmap");
    plain[bitmap + 900] ^= 1;
    plain[1024 + 0x62] |= 0x80;
    whole(&plain, "incompatible feature bits 0x800000");
    plain[1024 + 0x62] &= !0x80;
    plain[1024 + 0x3a] = 0;
    let refused = survey(&plain, None, &SurveyOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("not unmounted"), "{refused}");
    let insisted = survey(&plain, None, &SurveyOptions { force: true, ..SurveyOptions::default() }).unwrap();
    assert_eq!(insisted.used(), plain.len() as u64);
    assert!(plain.contains(&STALE), "free space has old contents");
}

/// A journal with pending changes is refused even if the superblock does not mention it.
#[test]
fn a_journal_with_pending_changes_is_refused() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let image = directory.path().join("image");
    oracle::make(&image, 32 << 20, &["-t", "ext3", "-b", "1024"], None).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let magic = b"\xc0\x3b\x39\x98\x00\x00\x00\x04";
    let journal = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..].starts_with(magic)).unwrap();
    bytes[journal + 31] = 1;
    let error = survey(&bytes, None, &SurveyOptions::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("journal"), "{error}");
    bytes[journal + 31] = 0;
    bytes[journal] = 0;
    let survey = survey(&bytes, None, &SurveyOptions::default()).unwrap();
    assert!(survey.parts[0].region.zeroed.is_empty());
    assert!(survey.parts[0].notes[0].contains("journal is stored in full"), "{:?}", survey.parts[0].notes);
}

/// Random damage in the metadata (with a fixed seed) never causes a panic or an invalid region.
#[test]
fn damage_never_panics() {
    if !oracle::is_available() {
        return;
    }
    let directory = oracle::directory();
    let tree = directory.path().join("tree");
    oracle::populate(&tree);
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for options in [
        &["-t", "ext2", "-b", "1024"] as &[&str],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^uninit_bg,meta_bg,^resize_inode,bigalloc",
            "-C",
            "4096",
        ],
    ] {
        let image = directory.path().join("image");
        let Some(()) = oracle::make(&image, 12 << 20, options, Some(&tree)) else { continue };
        let good = fs::read(&image).unwrap();
        let force = SurveyOptions { force: true, ..SurveyOptions::default() };
        let sound = survey(&good, None, &force).unwrap();
        let files: Extents =
            sound.parts[0].region.files.iter().map(platter_image::chunking::FileRun::extent).collect();
        let metadata = sound.parts[0].region.allocated.subtract(&files);
        for round in 0..150 {
            let mut bytes = good.clone();
            for _ in 0..1 + random() % 6 {
                let extents = metadata.as_slice();
                // Half of the damage hits the superblock and the descriptors.
                let extent = if random() % 2 == 0 {
                    Extent::new(1024, 3072)
                } else {
                    extents[random() as usize % extents.len()]
                };
                let at = (extent.offset + random() % extent.length) as usize;
                bytes[at] = [0, 0xff, random() as u8, bytes[at] ^ 1 << (random() % 8)][random() as usize % 4];
            }
            if let Err(error) = survey(&bytes, None, &force) {
                panic!("round {round}: {error}");
            }
        }
    }
}
