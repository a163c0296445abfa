//! The superblock: geometry and features. All numbers are big-endian, except checksums.

use platter_image::{Error, Result};

use super::volume::is_checksum_correct;
use crate::fields::{be16, be32, be64, has, text, uuid};

/// The shortest and longest sector, in bytes.
pub(super) const SECTOR_LENGTH_MIN: usize = 512;
const SECTOR_LENGTH_MAX: u32 = 32 << 10;

/// The offset of the checksum in the superblock.
const CHECKSUM: usize = 224;
/// The fewest blocks in an allocation group.
const GROUP_BLOCKS_MIN: u32 = 64;

const VERSION_LAZY_COUNTS: u32 = 0x2;
/// What `features2` may contain: lazy counters, attributes of version 2, parent pointers, wide project numbers,
/// checksums, file types.
const FEATURES2_KNOWN: u32 = 0x2 | 0x8 | 0x10 | 0x80 | 0x100 | 0x200;
const VERSION_DIRECTORIES_2: u16 = 0x2000;
const VERSION_MORE: u16 = 0x8000;

const RO_COMPAT_FREE_INODES: u32 = 1;
const RO_COMPAT_REVERSE_MAP: u32 = 2;
const RO_COMPAT_REFLINK: u32 = 4;
/// Free inode tree, reverse map, reflink, counts of inode tree blocks.
const RO_COMPAT_KNOWN: u32 = 0xf;

const FEATURES2_FILE_TYPES: u32 = 0x200;
const INCOMPAT_FILE_TYPES: u32 = 1;
const INCOMPAT_SPARSE_INODES: u32 = 2;
const INCOMPAT_NEEDS_REPAIR: u32 = 0x10;
const INCOMPAT_WIDE_COUNTS: u32 = 0x20;
/// File types, sparse inodes, another UUID in metadata, wide times, wide extent counts, exchanged ranges, parent
/// pointers.
const INCOMPAT_KNOWN: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80;
/// Attributes in the log, which matter to a log with changes only.
const LOG_INCOMPAT_KNOWN: u32 = 0x1;

/// The fields of a superblock that the reader uses. [`Superblock::parse`] has checked that they are consistent.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) block_size: u32,
    pub(super) sector_size: u32,
    /// Blocks of the filesystem.
    pub(super) blocks: u64,
    /// Blocks of each group but the last.
    pub(super) group_blocks: u32,
    pub(super) groups: u32,
    /// Bits of a block number that are the number inside the group.
    pub(super) group_bits: u32,
    pub(super) inode_size: u32,
    /// Inodes in a block, as a power of two.
    pub(super) block_inode_bits: u32,
    pub(super) root_inode: u64,
    /// Bytes of a block of a directory.
    pub(super) directory_block_size: u32,
    /// Entries of directories have a type.
    pub(super) has_file_types: bool,
    /// The files of quotas and of realtime space; invalid numbers for missing ones.
    pub(super) own_inodes: [u64; 5],
    /// The first block of the log.
    pub(super) log_start: u64,
    pub(super) log_blocks: u32,
    pub(super) free_blocks: u64,
    /// The number of free blocks is only correct after an unmount.
    pub(super) has_lazy_counts: bool,
    /// Version 5.
    pub(super) has_checksums: bool,
    pub(super) has_free_inode_tree: bool,
    pub(super) has_reverse_map: bool,
    pub(super) has_reflink: bool,
    pub(super) has_sparse_inodes: bool,
    pub(super) has_wide_counts: bool,
    /// Why it is not read, although it may be consistent.
    pub(super) unsupported: Option<String>,
    pub(super) needs_repair: bool,
    pub(super) label: Option<String>,
    pub(super) uuid: Option<String>,
}

impl Superblock {
    /// Decodes and checks a superblock. `bytes` is at least a sector; the checksum is checked if they are as long as
    /// the sector that the superblock states.
    ///
    /// # Errors
    /// `Corrupt` if it is not a superblock, its checksum is wrong, or its numbers contradict each other.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        if !has(bytes, 0, b"XFSB") {
            return Err(Error::corrupt("there is no superblock at offset 0"));
        }
        let version = be16(bytes, 100);
        let has_checksums = version & 0xf == 5;
        let features2 = be32(bytes, 200);
        let (read_only, incompat) = if has_checksums { (be32(bytes, 212), be32(bytes, 216)) } else { (0, 0) };
        let superblock = Self {
            block_size: power("block size", be32(bytes, 4), bytes[120], 512, 65536)?,
            sector_size: power("sector size", be16(bytes, 102).into(), bytes[121], 512, SECTOR_LENGTH_MAX)?,
            blocks: be64(bytes, 8),
            group_blocks: be32(bytes, 84),
            groups: be32(bytes, 88),
            group_bits: u32::from(bytes[124]),
            inode_size: power("inode size", be16(bytes, 104).into(), bytes[122], 256, 2048)?,
            block_inode_bits: u32::from(bytes[123]),
            root_inode: be64(bytes, 56),
            directory_block_size: be32(bytes, 4).checked_shl(bytes[192].into()).unwrap_or(0),
            has_file_types: incompat & INCOMPAT_FILE_TYPES != 0
                || !has_checksums && version & VERSION_MORE != 0 && features2 & FEATURES2_FILE_TYPES != 0,
            own_inodes: [64, 72, 160, 168, 232].map(|offset| be64(bytes, offset)),
            log_start: be64(bytes, 48),
            log_blocks: be32(bytes, 96),
            free_blocks: be64(bytes, 144),
            has_lazy_counts: has_checksums
                || version & VERSION_MORE != 0 && features2 & VERSION_LAZY_COUNTS != 0,
            has_checksums,
            has_free_inode_tree: read_only & RO_COMPAT_FREE_INODES != 0,
            has_reverse_map: read_only & RO_COMPAT_REVERSE_MAP != 0,
            has_reflink: read_only & RO_COMPAT_REFLINK != 0,
            has_sparse_inodes: incompat & INCOMPAT_SPARSE_INODES != 0,
            has_wide_counts: incompat & INCOMPAT_WIDE_COUNTS != 0,
            unsupported: unsupported(bytes, version, features2),
            needs_repair: incompat & INCOMPAT_NEEDS_REPAIR != 0,
            label: text(&bytes[108..120]),
            uuid: uuid(bytes, 32),
        };
        superblock.checked(bytes)
    }

    /// Checks the geometry, so that no sum of its values overflows and every loop over it ends.
    fn checked(self, bytes: &[u8]) -> Result<Self> {
        let length = self.sector_size as usize;
        let is_wrong = |bytes| !is_checksum_correct(bytes, CHECKSUM);
        if self.has_checksums && bytes.get(..length).is_some_and(is_wrong) {
            return Err(Error::corrupt("its superblock at offset 0 has a wrong checksum"));
        }
        let wrong = |what: &str, value: u64| {
            Error::corrupt(format!("its superblock has the impossible {what} {value}"))
        };
        if self.sector_size > self.block_size {
            return Err(wrong("sector size", self.sector_size.into()));
        }
        if self.block_size >> self.block_inode_bits.min(31) != self.inode_size {
            return Err(wrong(
                "number of inodes in a block: 2 to the power of",
                self.block_inode_bits.into(),
            ));
        }
        if self.group_blocks < GROUP_BLOCKS_MIN || self.blocks < u64::from(GROUP_BLOCKS_MIN) {
            return Err(wrong("number of blocks in a group:", self.group_blocks.into()));
        }
        if u64::from(self.group_blocks).next_power_of_two() != 1 << self.group_bits.min(63) {
            return Err(wrong("number of bits of a group's block numbers:", self.group_bits.into()));
        }
        let is_length = self.blocks <= 1 << 47;
        if !is_length || self.blocks.div_ceil(self.group_blocks.into()) != u64::from(self.groups) {
            return Err(wrong("number of groups:", self.groups.into()));
        }
        Ok(self)
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// Number of blocks in a group.
    pub(super) fn blocks_of_group(&self, group: u32) -> u32 {
        let before = u64::from(group) * u64::from(self.group_blocks);
        self.blocks.saturating_sub(before).min(self.group_blocks.into()) as u32
    }
}

/// A field and its logarithm, which must agree.
fn power(what: &str, value: u32, logarithm: u8, min: u32, max: u32) -> Result<u32> {
    if (min..=max).contains(&value) && 1_u32.checked_shl(logarithm.into()) == Some(value) {
        return Ok(value);
    }
    Err(Error::corrupt(format!(
        "its superblock has the impossible {what} {value} (2 to the power of {logarithm})"
    )))
}

/// The first thing that the reader does not know.
fn unsupported(bytes: &[u8], version: u16, features2: u32) -> Option<String> {
    let unknown = |what: &str, word: u32| Some(format!("it has unknown {what} features: {word:#x}"));
    if !matches!(version & 0xf, 4 | 5) || version & VERSION_DIRECTORIES_2 == 0 {
        return Some(format!("it has version {}, which is not read", version & 0xf));
    }
    if version & VERSION_MORE != 0 && features2 & !FEATURES2_KNOWN != 0 {
        return unknown("further", features2 & !FEATURES2_KNOWN);
    }
    if version & 0xf == 5 {
        let known = [
            ("read-only compatible", 212, RO_COMPAT_KNOWN),
            ("incompatible", 216, INCOMPAT_KNOWN),
            ("log", 220, LOG_INCOMPAT_KNOWN),
        ];
        for (what, offset, known) in known {
            if be32(bytes, offset) & !known != 0 {
                return unknown(what, be32(bytes, offset) & !known);
            }
        }
    }
    if be64(bytes, 16) != 0 {
        return Some("it has a realtime section on another device, which is not captured with it".to_owned());
    }
    if be64(bytes, 48) == 0 {
        return Some("its log is on another device, which is not captured with it".to_owned());
    }
    (bytes[126] != 0).then(|| "its creation or growth was interrupted".to_owned())
}
