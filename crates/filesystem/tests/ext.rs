//! Hostile ext filesystems, which must cost neither much memory nor much time: few blocks, and holes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_filesystem::{Contents, ExamineOptions, Owners, Trust, examine};
use platter_image::{DiskRead, Extent};

const BLOCK: u64 = 4096;
const GROUP_BLOCKS: u64 = 32768;
const INODES_PER_GROUP: u64 = 64;
const INODE_LENGTH: usize = 256;
/// The blocks at the start of a group: its superblock and descriptors, two bitmaps, its inodes, and some for files.
const COPIES: u64 = 5;
const BITMAP: u64 = COPIES;
const INODES: u64 = COPIES + 2;
const FREE_FOR_FILES: u64 = INODES + 4;
const METADATA: u64 = 64;

const EXTENTS: u32 = 0x40;
const VALUES_IN_INODES: u32 = 0x400;

/// A filesystem of which only some blocks are not holes.
struct Disk {
    blocks: HashMap<u64, Vec<u8>>,
    groups: u64,
    reads: AtomicU64,
}

impl DiskRead for Disk {
    fn length(&self) -> u64 {
        self.groups * GROUP_BLOCKS * BLOCK
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        for (at, byte) in (offset..).zip(buffer) {
            *byte = self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize]);
        }
        Ok(())
    }
}

impl Disk {
    /// A filesystem with this many groups, in which the first 64 blocks of each are marked, and others as `pattern` says.
    fn new(groups: u64, features: u32, pattern: u8) -> Self {
        let mut disk = Self { blocks: HashMap::new(), groups, reads: AtomicU64::new(0) };
        let free = (GROUP_BLOCKS - METADATA) / 8 * u64::from(pattern.count_zeros());
        for group in 0..groups {
            let start = group * GROUP_BLOCKS;
            let bitmap = disk.block(start + BITMAP);
            bitmap.fill(pattern);
            bitmap[..METADATA as usize / 8].fill(0xff);
            let at = BLOCK as usize + group as usize * 32;
            for (field, value) in
                [(0, start + BITMAP), (4, start + BITMAP + 1), (8, start + INODES), (12, free)]
            {
                disk.put(at + field, &(value as u32).to_le_bytes()[..if field == 12 { 2 } else { 4 }]);
            }
        }
        let words: [(usize, u64); 14] = [
            (0, groups * INODES_PER_GROUP),
            (4, groups * GROUP_BLOCKS),
            (0x18, 2),
            (0x1c, 2),
            (0x20, GROUP_BLOCKS),
            (0x24, GROUP_BLOCKS),
            (0x28, INODES_PER_GROUP),
            (0x38, 0x1_ef53),
            (0x4c, 1),
            (0x54, 11),
            (0x58, INODE_LENGTH as u64),
            (0x60, features.into()),
            (0x64, 0),
            (0x68, 7),
        ];
        for (field, value) in words {
            disk.put(1024 + field, &(value as u32).to_le_bytes());
        }
        disk.inode(2, 0x41ed);
        disk
    }

    fn block(&mut self, number: u64) -> &mut Vec<u8> {
        self.blocks.entry(number).or_insert_with(|| vec![0; BLOCK as usize])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let (block, start) = (at as u64 / BLOCK, at % BLOCK as usize);
        self.block(block)[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes an inode of the first group; returns its place.
    fn inode(&mut self, number: usize, mode: u16) -> usize {
        let at = INODES as usize * BLOCK as usize + (number - 1) * INODE_LENGTH;
        self.put(at, &mode.to_le_bytes());
        self.put(at + 0x1a, &1_u16.to_le_bytes());
        at
    }

    fn examine(&self) -> Contents {
        let extent = Extent::new(0, self.length());
        let owners = Owners::find(self, extent).unwrap();
        self.reads.store(0, Ordering::Relaxed);
        examine(self, extent, &owners, Trust::Sole, ExamineOptions::default()).unwrap()
    }

    fn assert_whole(&self, reason: &str) {
        let contents = self.examine();
        assert_eq!(contents.allocated.total(), self.length(), "{reason}");
        assert!(contents.notes.iter().any(|note| note.contains(reason)), "{reason}: {:?}", contents.notes);
    }
}

/// The head of a node of an extent tree, and its entries.
fn node(depth: u8, entries: &[[u32; 3]]) -> Vec<u8> {
    let mut bytes = vec![0x0a, 0xf3, entries.len() as u8, 0, 4, 0, depth, 0, 0, 0, 0, 0];
    bytes.extend(entries.iter().flatten().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Every second block is marked, in bitmaps of 1 MiB for 32 GiB: more would take gigabytes of memory.
#[test]
fn used_space_in_many_pieces_is_limited() {
    let few = Disk::new(255, 0, 0x55).examine();
    assert_eq!(few.notes, Vec::<String>::new());
    assert_eq!(few.allocated.as_slice().len(), 255 * (1 + (GROUP_BLOCKS - METADATA) as usize / 2) - 255);
    Disk::new(260, 0, 0x55).assert_whole("in more than 4194304 pieces");
}

/// All groups name the bitmap or the inodes of the first one: few blocks would be millions of pieces and inodes.
#[test]
fn groups_that_share_metadata_are_found_out() {
    for field in [0, 8] {
        let mut disk = Disk::new(64, 0, 0);
        let shared = disk.block(1)[field..field + 4].to_vec();
        for group in 1..64 {
            disk.put(BLOCK as usize + group * 32 + field, &shared);
        }
        disk.assert_whole("is a bitmap or in an inode table of two groups");
    }
}

/// Files name the same block of a tree: it would be read for each of them, and all its extents kept.
#[test]
fn a_tree_block_has_one_parent() {
    let leaf: Vec<[u32; 3]> = (0..200).map(|at| [at, 1, 1000 + 2 * at]).collect();
    let root = node(1, &[[0, FREE_FOR_FILES as u32, 0]]);
    for (files, is_sound) in [(1, true), (2, false)] {
        let mut disk = Disk::new(1, EXTENTS, 0xff);
        disk.put((FREE_FOR_FILES * BLOCK) as usize, &node(0, &leaf));
        for number in 0..files {
            let at = disk.inode(12 + number, 0x81a4);
            disk.put(at + 0x20, &0x8_0000_u32.to_le_bytes());
            disk.put(at + 0x28, &root);
        }
        match is_sound {
            true => assert_eq!(disk.examine().notes, Vec::<String>::new()),
            false => disk.assert_whole("inode 13: block 11 is claimed twice, as a block of a tree"),
        }
    }
}

/// Hundreds of files share a block of attributes, whose values are in an inode: it is read once.
#[test]
fn a_block_of_attributes_is_read_once() {
    let attribute = |inode: u8| [[1, 1, 0, 0, inode, 0, 0, 0, 5, 0, 0, 0], [0; 12]].concat()[..16].to_vec();
    let disk = |files: usize, value: u8| {
        let mut disk = Disk::new(4, EXTENTS | VALUES_IN_INODES, 0xff);
        let block = (FREE_FOR_FILES * BLOCK) as usize;
        disk.put(block, &[0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0]);
        let mut entry = attribute(value);
        entry.extend(b"a\0\0\0");
        disk.put(block + 32, &entry.repeat(100));
        for number in 11..11 + files {
            let at = disk.inode(number, 0x81a4);
            disk.put(at + 0x20, &0x8_0000_u32.to_le_bytes());
            disk.put(at + 0x28, &node(0, &[]));
            disk.put(at + 0x68, &(FREE_FOR_FILES as u32).to_le_bytes());
        }
        disk
    };
    let reads = |files| {
        let disk = disk(files, 11);
        assert_eq!(disk.examine().notes, Vec::<String>::new());
        disk.reads.load(Ordering::Relaxed)
    };
    assert_eq!(reads(50), reads(1));
    disk(50, 63).assert_whole("the attributes in block 11: a value is in inode 63, which is not in use");
}
