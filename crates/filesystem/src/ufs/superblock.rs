//! The superblock: geometry, counters and state. All numbers are little-endian.

use platter_image::{Error, Result};

use crate::fields::{le32, le64, text};

/// The bytes of a superblock that are read.
pub(super) const SUPERBLOCK_LENGTH: usize = 1376;
/// Where a superblock may be, in the order in which FreeBSD looks for it.
pub(super) const PLACES: [u64; 4] = [64 << 10, 8 << 10, 0, 256 << 10];
/// A UFS1 superblock at this offset is only a copy.
const NEVER_UFS1: u64 = 64 << 10;

const MAGIC_1: u32 = 0x0001_1954;
const MAGIC_2: u32 = 0x1954_0119;

const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 4096..=65536;
/// Fragments in a block are bits of a byte.
const BLOCK_FRAGMENTS_MAX: u64 = 8;
/// Numbers of inodes have 32 bits; more of them than this would take too much memory.
const INODES_MAX: u64 = 1 << 31;
/// More fragments would take too much memory.
const FRAGMENTS_MAX: u64 = 1 << 33;
/// Bytes of the counters that the summary has for each group.
const COUNTERS_LENGTH: u64 = 16;

/// The filesystem was not unmounted; it needs `fsck_ffs`.
const FLAGS_DIRTY: u32 = 0x1 | 0x4;
/// In the old field for flags: the new field is valid.
const FLAGS_ARE_NEW: u8 = 0x80;
const FORMAT_44BSD: u32 = 2;

/// The version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Pointers of 4 bytes.
    One,
    /// Pointers of 8 bytes.
    Two,
}

/// The fields of a superblock that the reader uses. [`Superblock::parse`] has checked that they are consistent. Places in a group are
/// fragments after its start.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) version: Version,
    /// In bytes, like the following.
    pub(super) block_size: u64,
    pub(super) fragment_size: u64,
    pub(super) block_fragments: u64,
    pub(super) fragments: u64,
    pub(super) groups: u64,
    pub(super) group_fragments: u64,
    pub(super) group_inodes: u64,
    /// UFS1 shifts the metadata of a group by this many fragments for each bit of its number outside of the mask.
    shift: (u64, u64),
    pub(super) copy: u64,
    pub(super) header: u64,
    pub(super) inode_table: u64,
    pub(super) data: u64,
    /// Bytes of a group's header.
    pub(super) header_length: u64,
    /// The first fragment of the counters of all groups, and how many there are.
    pub(super) summary: (u64, u64),
    pub(super) counters: Counters,
    /// The target of a shorter link is in the inode; 0 if it is there whenever the link has no fragments.
    pub(super) inline_link_max: u64,
    pub(super) label: Option<String>,
    pub(super) id: String,
    /// Why it is not read, although it may be consistent.
    pub(super) unsupported: Option<&'static str>,
    /// Why it needs recovery.
    pub(super) dirty: Option<&'static str>,
}

/// Counters of a group, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) directories: u64,
    pub(super) free_blocks: u64,
    pub(super) free_inodes: u64,
    /// Free fragments that are not in free blocks.
    pub(super) free_fragments: u64,
}

impl Counters {
    /// The four counters of 4 bytes at `offset`.
    pub(super) fn parse(bytes: &[u8], offset: usize) -> Self {
        let [directories, free_blocks, free_inodes, free_fragments] =
            [0, 4, 8, 12].map(|field| u64::from(le32(bytes, offset + field)));
        Self { directories, free_blocks, free_inodes, free_fragments }
    }

    /// Adds the counters of a group.
    pub(super) fn add(&mut self, other: &Self) {
        self.directories += other.directories;
        self.free_blocks += other.free_blocks;
        self.free_inodes += other.free_inodes;
        self.free_fragments += other.free_fragments;
    }
}

impl Superblock {
    /// Decodes and checks the superblock that was read from `place`; `None` if this is none, or a copy.
    ///
    /// # Errors
    /// `Corrupt` if it is big-endian, or its numbers contradict each other.
    pub(super) fn parse(bytes: &[u8; SUPERBLOCK_LENGTH], place: u64) -> Result<Option<Self>> {
        let version = match le32(bytes, 1372) {
            MAGIC_1 if place != NEVER_UFS1 => Version::One,
            MAGIC_2 if le64(bytes, 1000) == place => Version::Two,
            magic if [MAGIC_1, MAGIC_2].contains(&magic.swap_bytes()) => {
                return Err(Error::corrupt("it is big-endian"));
            }
            _ => return Ok(None),
        };
        let field = |offset| u64::from(le32(bytes, offset));
        let is_old = version == Version::One;
        let (fragments, summary, counters) = match version {
            Version::One => (field(36), field(152), Counters::parse(bytes, 192)),
            Version::Two => (le64(bytes, 1080), le64(bytes, 1096), wide_counters(bytes)),
        };
        let superblock = Self {
            version,
            block_size: field(48),
            fragment_size: field(52),
            block_fragments: field(56),
            fragments,
            groups: field(44),
            group_fragments: field(188),
            group_inodes: field(184),
            shift: if is_old { (field(24), !field(28)) } else { (0, 0) },
            copy: field(8),
            header: field(12),
            inode_table: field(16),
            data: field(20),
            header_length: field(160),
            summary: (summary, field(156).div_ceil(field(52).max(1))),
            counters,
            inline_link_max: field(1320),
            label: text(&bytes[680..712]).filter(|_| !is_old),
            id: format!("{:08x}{:08x}", le32(bytes, 144), le32(bytes, 148)),
            unsupported: unsupported(bytes, version),
            dirty: dirty(bytes, version),
        };
        match superblock.contradiction(field(156)) {
            None if place + SUPERBLOCK_LENGTH as u64 > superblock.data * superblock.fragment_size => {
                Err(Error::corrupt(format!("the superblock at offset {place} lies in its own data")))
            }
            None => Ok(Some(superblock)),
            Some(what) => {
                Err(Error::corrupt(format!("the superblock at offset {place} is not possible: {what}")))
            }
        }
    }

    /// Returns the first contradiction between fields. The fields used in the calculations were checked before.
    fn contradiction(&self, summary_length: u64) -> Option<&'static str> {
        let (size, fragment) = (self.block_size, self.fragment_size);
        if !BLOCK_SIZES.contains(&size) || !size.is_power_of_two() {
            return Some("its block size");
        }
        let is_fragment = fragment.is_power_of_two() && (512..=size).contains(&fragment);
        if !is_fragment || size / fragment > BLOCK_FRAGMENTS_MAX || self.block_fragments != size / fragment {
            return Some("its fragment size");
        }
        if self.groups == 0 || self.group_fragments == 0 || self.fragments > FRAGMENTS_MAX {
            return Some("the number of its groups");
        }
        if self.fragments.div_ceil(self.group_fragments) != self.groups {
            return Some("the length of its groups");
        }
        let inodes_fragment = fragment / self.inode_length();
        let table = self.group_inodes.div_ceil(inodes_fragment.max(1));
        let in_order = [self.copy, self.header, self.inode_table, self.data].is_sorted_by(|a, b| a < b);
        if !in_order
            || self.shift.0 > self.group_fragments
            || inodes_fragment == 0
            || self.data - self.inode_table < table
        {
            return Some("the places in its groups");
        }
        if self.group_inodes == 0 || self.inodes() > INODES_MAX {
            return Some("the number of its inodes");
        }
        if self.header_length > size || (self.inode_table - self.header) * fragment < self.header_length {
            return Some("the length of its groups' headers");
        }
        (summary_length < self.groups * COUNTERS_LENGTH).then_some("the length of its counters")
    }

    /// Bytes of an inode.
    pub(super) fn inode_length(&self) -> u64 {
        match self.version {
            Version::One => 128,
            Version::Two => 256,
        }
    }

    /// Bytes of a pointer.
    pub(super) fn pointer_length(&self) -> u64 {
        match self.version {
            Version::One => 4,
            Version::Two => 8,
        }
    }

    /// How many inodes there are.
    pub(super) fn inodes(&self) -> u64 {
        self.groups * self.group_inodes
    }

    /// The length of the filesystem in bytes.
    pub(super) fn length(&self) -> u64 {
        self.fragments * self.fragment_size
    }

    /// The fragments of a group: the first, and how many.
    pub(super) fn group(&self, number: u64) -> (u64, u64) {
        let first = number * self.group_fragments;
        (first, self.group_fragments.min(self.fragments - first))
    }

    /// The fragment from which the places of a group's metadata are counted.
    pub(super) fn metadata_start(&self, number: u64) -> u64 {
        let (step, mask) = self.shift;
        self.group(number).0 + step * (number & mask)
    }

    /// The fragments that hold so many bytes.
    pub(super) fn fragments_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.fragment_size)
    }
}

fn wide_counters(bytes: &[u8]) -> Counters {
    let [directories, free_blocks, free_inodes, free_fragments] =
        [1008, 1016, 1024, 1032].map(|field| le64(bytes, field));
    Counters { directories, free_blocks, free_inodes, free_fragments }
}

fn unsupported(bytes: &[u8], version: Version) -> Option<&'static str> {
    if version == Version::One && le32(bytes, 1324) != FORMAT_44BSD {
        return Some("its directories have the format of 4.2BSD");
    }
    let has_snapshots = version == Version::Two && bytes[1116..1196].iter().any(|byte| *byte != 0);
    has_snapshots.then_some("it has snapshots")
}

fn dirty(bytes: &[u8], version: Version) -> Option<&'static str> {
    let (clean, old_flags) = (bytes[209], bytes[211]);
    let has_new_flags = version == Version::Two || old_flags & FLAGS_ARE_NEW != 0;
    let flags = if has_new_flags { le32(bytes, 1312) } else { old_flags.into() };
    if clean != 1 || flags & FLAGS_DIRTY != 0 {
        return Some("it was not unmounted");
    }
    let is_pending = version == Version::Two && (le64(bytes, 1104) != 0 || le32(bytes, 1112) != 0);
    is_pending.then_some("it has removed files whose space was not freed")
}
