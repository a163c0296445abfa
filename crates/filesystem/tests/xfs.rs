//! XFS in all layouts that mkfs.xfs makes, checked against xfs_db and xfs_repair; and damaged ones, which must be kept in full.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;
use std::path::Path;

use crc::{CRC_32_ISCSI, Crc};
use images::{MIB, assert_whole, random, read, run, stale};
use platter_image::{ErrorKind, Extent, Extents};

/// Name, size in MiB, options of mkfs.xfs.
const LAYOUTS: &[(&str, u64, &[&str])] = &[
    ("5", 64, &[]),
    ("4", 64, &["-m", "crc=0"]),
    ("4, exact counts", 64, &["-m", "crc=0", "-l", "lazy-count=0"]),
    ("4, 512", 64, &["-m", "crc=0", "-b", "size=512"]),
    ("4, old inodes", 64, &["-m", "crc=0", "-i", "size=256,attr=1,projid32bit=0"]),
    ("1k", 64, &["-b", "size=1024"]),
    ("16k", 64, &["-b", "size=16384"]),
    ("64k", 128, &["-b", "size=65536", "-m", "rmapbt=1"]),
    ("4k sectors", 64, &["-s", "size=4096"]),
    ("2k inodes", 64, &["-i", "size=2048"]),
    ("reverse map", 64, &["-m", "rmapbt=1,reflink=1,bigtime=1,inobtcount=1"]),
    ("wide counts", 64, &["-i", "nrext64=1"]),
    ("plain", 64, &["-m", "finobt=0,reflink=0,bigtime=0,inobtcount=0", "-i", "sparse=0"]),
    ("many groups", 160, &["-d", "agcount=10"]),
];

/// Makes a filesystem with some files over stale bytes; `None` if that is not possible here.
fn make(directory: &Path, mib: u64, options: &[&str]) -> Option<Vec<u8>> {
    let (image, proto) = (directory.join("image"), directory.join("proto"));
    let tree = images::tree(directory);
    let file = |name: &str| format!("{name} ---644 0 0 {}\n", tree.join(name).display());
    let tiny = tree.join("below/tiny");
    let text = format!(
        "none\n0 0\nd--755 0 0\n{}{}below d--755 0 0\ntiny ---644 0 0 {}\n$\n$\n",
        file("large"),
        file("small"),
        tiny.display()
    );
    fs::write(&proto, text).unwrap();
    stale(&image, mib * MIB);
    let mut arguments = vec!["-q", "-f", "-K", "-L", "label", "-p", proto.to_str()?];
    arguments.extend(options);
    arguments.push(image.to_str()?);
    run("mkfs.xfs", &arguments)?;
    Some(fs::read(&image).unwrap())
}

/// The free extents, according to xfs_db.
fn free(image: &Path, disk: &[u8]) -> Extents {
    let word = |at: usize| u64::from(u32::from_be_bytes(disk[at..at + 4].try_into().unwrap()));
    let (block_size, group_blocks) = (word(4), word(84));
    let listing = run("xfs_db", &["-r", "-c", "freesp -d", image.to_str().unwrap()]).unwrap();
    let numbers = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok();
    let rows = listing.lines().filter_map(numbers).filter(|row| row.len() == 3);
    let extents =
        rows.map(|row| Extent::new((row[0] * group_blocks + row[1]) * block_size, row[2] * block_size));
    Extents::from_unsorted(extents.collect())
}

#[test]
fn every_layout_agrees_with_its_own_tools() {
    let directory = tempfile::tempdir().unwrap();
    let (image, copy) = (directory.path().join("image"), directory.path().join("copy"));
    let mut made = 0;
    for (name, mib, options) in LAYOUTS {
        let Some(disk) = make(directory.path(), *mib, options) else { continue };
        made += 1;
        let contents = read(&disk, false).unwrap();
        assert_eq!(contents.notes, Vec::<String>::new(), "{name}");
        assert_eq!((contents.filesystem.as_str(), contents.label.as_deref()), ("xfs", Some("label")));
        let in_use = free(&image, &disk).complement(Extent::new(0, mib * MIB));
        assert_eq!(contents.allocated.subtract(&in_use), Extents::new(), "{name}: free space is kept");
        let start = Extents::from_unsorted(vec![Extent::new(0, u64::from(contents.block_size).min(4096))]);
        assert!(
            start.subtract(&contents.allocated).is_empty(),
            "{name}: a boot sector of Syslinux is dropped"
        );
        // The blocks of the free list, and the rest of the block with headers.
        let groups = u64::from(u32::from_be_bytes(disk[88..92].try_into().unwrap()));
        let dropped = in_use.subtract(&contents.allocated).total() / u64::from(contents.block_size);
        assert!(dropped <= groups * 13, "{name}: {dropped} blocks in use are dropped");
        let files = images::bytes_of_files(&disk, &contents);
        for file in ["large", "small", "below/tiny"] {
            let bytes = fs::read(directory.path().join("tree").join(file)).unwrap();
            let is_there = files.windows(bytes.len()).any(|window| window == bytes);
            assert!(is_there, "{name}: {file} is in no run");
        }
        images::copy(&disk, &contents, &copy);
        let force = if groups == 1 { "force_geometry" } else { "bhash=100" };
        let checked = run("xfs_repair", &["-n", "-f", "-o", force, copy.to_str().unwrap()]);
        assert!(checked.is_some(), "{name}: xfs_repair finds errors in the copy");
    }
    if made == 0 {
        eprintln!("skipped: mkfs.xfs is not installed");
        return;
    }
    assert!(made >= LAYOUTS.len() / 2, "only {made} filesystems could be made");
}

fn put(disk: &mut [u8], at: usize, value: u32) {
    disk[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn get(disk: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(disk[at..at + 4].try_into().unwrap())
}

/// Both trees of free space, and all counts, agree that a block in use is free.
#[test]
fn trees_that_lie_are_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut disk) = make(directory.path(), 64, &["-m", "crc=0", "-b", "size=4096"]) else { return };
    let sector = get(&disk, 100) as usize & 0xffff;
    let header = sector;
    for root in [get(&disk, header + 16), get(&disk, header + 20)] {
        let leaf = root as usize * 4096;
        let records = usize::from(u16::from_be_bytes(disk[leaf + 6..leaf + 8].try_into().unwrap()));
        let longest =
            (0..records).map(|index| leaf + 16 + index * 8).max_by_key(|at| get(&disk, at + 4)).unwrap();
        let (start, count) = (get(&disk, longest), get(&disk, longest + 4));
        put(&mut disk, longest, start - 1);
        put(&mut disk, longest + 4, count + 1);
    }
    let (free, longest) = (get(&disk, header + 52), get(&disk, header + 56));
    put(&mut disk, header + 52, free + 1);
    assert_whole(&disk, "its header");
    put(&mut disk, header + 56, longest + 1);
    assert_whole(&disk, "is free according to the trees of free space");
}

#[test]
fn damaged_filesystems_are_kept_in_full_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Some(good) = make(directory.path(), 64, &["-m", "rmapbt=1", "-b", "size=4096"]) else { return };
    let changed = |at: usize| {
        let mut disk = good.clone();
        disk[at] ^= 1;
        disk
    };
    assert_whole(&changed(108), "superblock at offset 0 has a wrong checksum");
    assert_whole(
        &changed(512 + 60),
        "header of group 0 at offset 512 of the filesystem has a wrong checksum",
    );
    let root = get(&good, 512 + 16) as usize * 4096;
    assert_whole(&changed(root + 60), "tree of group 0, block 1, has a wrong checksum");
    let mut short = good.clone();
    short.truncate(48 << 20);
    assert_whole(&short, "its place has");

    // Needs repair, with a correct checksum.
    let mut broken = good.clone();
    let features = get(&good, 216) | 0x10;
    put(&mut broken, 216, features);
    broken[224..228].fill(0);
    let sum = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&broken[..512]);
    broken[224..228].copy_from_slice(&sum.to_le_bytes());
    let error = read(&broken, false).unwrap_err().to_string();
    assert!(error.contains("needing repair. Run xfs_repair on it;") && !error.contains("ount"), "{error}");

    let mut without_log = good.clone();
    put(&mut without_log, 96, 0);
    without_log[224..228].fill(0);
    let sum = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&without_log[..512]);
    without_log[224..228].copy_from_slice(&sum.to_le_bytes());
    let error = read(&without_log, true).map(|contents| contents.notes.join("\n"));
    assert!(error.as_ref().is_ok_and(|notes| notes.contains("its log")), "{error:?}");

    // The unmount record of a new log is at its start.
    let log = log_of(&good);
    let mut gap = good.clone();
    gap[log + 1000 * 512 + 3] = good[log + 7];
    let error = read(&gap, false).unwrap_err().to_string();
    assert!(error.contains("the end of its log was not found"), "{error}");
    let mut dirty = good.clone();
    dirty[log + 512 + 9] = 0;
    let error = read(&dirty, false).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("was not unmounted"), "{error}");
    assert!(error.to_string().contains(". Mount and unmount it;"), "{error}");
    assert_eq!(read(&dirty, true).unwrap().allocated.total(), dirty.len() as u64);
    dirty[log..log + 512].fill(0);
    assert_eq!(read(&dirty, false).unwrap_err().kind(), ErrorKind::Refused, "there is no record");
}

/// The offset of the log.
fn log_of(disk: &[u8]) -> usize {
    let start = u64::from_be_bytes(disk[48..56].try_into().unwrap());
    let (bits, blocks) = (u32::from(disk[124]), u64::from(get(disk, 84)));
    ((start >> bits) * blocks + (start & ((1 << bits) - 1))) as usize * get(disk, 4) as usize
}

/// The tools that write a new log over a used one leave zeros behind its first record.
#[test]
fn logs_that_tools_cleared_have_their_end() {
    let directory = tempfile::tempdir().unwrap();
    let (image, copy) = (directory.path().join("image"), directory.path().join("copy"));
    let paths = [image.to_str().unwrap(), copy.to_str().unwrap()];
    let layouts: [(u64, &[&str]); 4] = [
        (64, &[]),
        (64, &["-l", "su=65536"]),
        (64, &["-l", "su=4096"]),
        (320, &["-m", "crc=0", "-l", "version=1"]),
    ];
    let mut checked = 0;
    for (mib, options) in layouts {
        let Some(_) = make(directory.path(), mib, options) else { return };
        // The third makes a log that was used, as far as the fourth can tell.
        let tools: [(&str, Vec<&str>); 4] = [
            ("xfs_repair", vec!["-f", "-L", "-o", "force_geometry", paths[0]]),
            ("xfs_copy", paths.to_vec()),
            ("xfs_db", vec!["-x", "-c", "logformat -c 3", paths[0]]),
            ("xfs_admin", vec!["-U", "generate", paths[0]]),
        ];
        for (tool, arguments) in tools {
            if run(tool, &arguments).is_none() {
                eprintln!("skipped: {tool} with {options:?} and {mib} MiB");
                continue;
            }
            for path in paths.into_iter().filter(|path| Path::new(path).exists()) {
                let disk = fs::read(path).unwrap();
                let contents =
                    read(&disk, false).unwrap_or_else(|error| panic!("{tool} {options:?} {path}: {error}"));
                assert_eq!(contents.notes, Vec::<String>::new(), "{tool} {options:?}");
                assert!(contents.allocated.total() < disk.len() as u64, "{tool} {options:?}");
            }
        }
        let cleared = fs::read(&image).unwrap();
        let log = log_of(&cleared);
        let pass = get(&cleared, log + 4);
        if pass < 2 {
            // Older formats get a new log, without a previous pass.
            continue;
        }
        let is_refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut disk = cleared.clone();
            change(&mut disk);
            let error = read(&disk, false).unwrap_err();
            assert!(error.to_string().contains("was not unmounted"), "{options:?}: {error}");
        };
        checked += 1;
        let second = log + 512 * 512;
        is_refused(&|disk| disk[log + 300 * 512 + 7] = 1);
        is_refused(&|disk| put(disk, log + 300 * 512, pass - 1));
        is_refused(&|disk| disk[second..second + 512].fill(0));
        is_refused(&|disk| put(disk, second + 36, 1));
        is_refused(&|disk| put(disk, log + 36, 1));
        is_refused(&|disk| put(disk, second + 512, 0));
        is_refused(&|disk| put(disk, log + 1000 * 512, pass));
        is_refused(&|disk| put(disk, log + 1000 * 512, 0));
    }
    assert!(checked > 1, "only {checked} logs were cleared that were used before");
}

/// Random damage in the metadata (with a fixed seed) never causes a panic or an invalid region.
#[test]
fn damage_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-m", "crc=0", "-b", "size=1024"] as &[&str], &["-m", "crc=0"]] {
        let Some(good) = make(directory.path(), 64, options) else { return };
        let contents = read(&good, false).unwrap();
        let files: Extents = contents.files.iter().map(platter_image::chunking::FileRun::extent).collect();
        let metadata = contents.allocated.subtract(&files);
        let extents: Vec<Extent> =
            metadata.iter().copied().filter(|extent| extent.length < 4 * MIB).collect();
        let mut random = random();
        for _ in 0..120 {
            let mut disk = good.clone();
            images::damage(&mut disk, &mut random, &|number| {
                let extent = extents[number as usize % extents.len()];
                // Half of the damage hits the superblock and the headers of the first group.
                let extent = if number >> 32 & 1 == 0 { Extent::new(0, 2048) } else { extent };
                extent.offset + (number >> 33) % extent.length
            });
            read(&disk, true).unwrap();
        }
    }
}
