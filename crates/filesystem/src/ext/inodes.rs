//! Inodes, read from their tables in sequence and in large pieces; none is kept.

use platter_image::{Error, Result};

use super::groups::Group;
use super::volume::Volume;
use crate::fields::{le16, le32};

/// How many bytes of an inode table are read at once; rounded to whole blocks, at least one.
const READ_LENGTH: u64 = 1 << 20;

/// The root directory's inode.
pub(super) const ROOT: u32 = 2;

const MODE_TYPE: u16 = 0xf000;
const MODE_REGULAR: u16 = 0x8000;
const MODE_DIRECTORY: u16 = 0x4000;
const MODE_SYMBOLIC_LINK: u16 = 0xa000;

const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_ATTRIBUTE_VALUE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;

/// A symbolic link shorter than this many bytes is stored in its inode.
const FAST_LINK_LENGTH: u32 = 60;

/// An inode as stored in its table: at least 128 bytes.
#[derive(Clone, Copy)]
pub(super) struct Inode<'b> {
    number: u32,
    bytes: &'b [u8],
}

/// How an inode names its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    Extents,
    Indirect,
    /// It has no blocks: all its data is in the inode.
    None,
}

impl<'b> Inode<'b> {
    pub(super) fn new(number: u32, bytes: &'b [u8]) -> Self {
        debug_assert!(bytes.len() >= 128);
        Self { number, bytes }
    }

    /// Its number, which starts at 1.
    pub(super) fn number(self) -> u32 {
        self.number
    }

    fn mode(self) -> u16 {
        le16(self.bytes, 0) & MODE_TYPE
    }

    /// Whether a name refers to it.
    pub(super) fn is_in_use(self) -> bool {
        le16(self.bytes, 0) != 0 && le16(self.bytes, 0x1a) != 0
    }

    pub(super) fn is_regular(self) -> bool {
        self.mode() == MODE_REGULAR
    }

    pub(super) fn is_directory(self) -> bool {
        self.mode() == MODE_DIRECTORY
    }

    /// Whether its contents are the value of an extended attribute.
    pub(super) fn has_attribute_value(self) -> bool {
        le32(self.bytes, 0x20) & FLAG_ATTRIBUTE_VALUE != 0
    }

    pub(super) fn has_inline_data(self) -> bool {
        le32(self.bytes, 0x20) & FLAG_INLINE_DATA != 0
    }

    /// All its bytes.
    pub(super) fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// Size of its contents in bytes. The upper half counts only if `is_wide`.
    pub(super) fn size(self, is_wide: bool) -> u64 {
        let high = if is_wide { u64::from(le32(self.bytes, 0x6c)) << 32 } else { 0 };
        u64::from(le32(self.bytes, 4)) | high
    }

    pub(super) fn mapping(self) -> Mapping {
        let is_fast_link = self.mode() == MODE_SYMBOLIC_LINK && le32(self.bytes, 4) < FAST_LINK_LENGTH;
        if self.has_inline_data()
            || !matches!(self.mode(), MODE_REGULAR | MODE_DIRECTORY | MODE_SYMBOLIC_LINK)
        {
            Mapping::None
        } else if le32(self.bytes, 0x20) & FLAG_EXTENTS != 0 {
            Mapping::Extents
        } else if is_fast_link {
            Mapping::None
        } else {
            Mapping::Indirect
        }
    }

    /// The root of its extent tree, or its block numbers: 60 bytes.
    pub(super) fn block_area(self) -> &'b [u8] {
        &self.bytes[0x28..0x64]
    }

    /// The block of its extended attributes, if it has one. Block numbers have more than 32 bits only if
    /// `is_64bit`.
    pub(super) fn attribute_block(self, is_64bit: bool) -> Option<u64> {
        let high = if is_64bit { u64::from(le16(self.bytes, 0x76)) << 32 } else { 0 };
        let block = u64::from(le32(self.bytes, 0x68)) | high;
        (block != 0).then_some(block)
    }
}

/// Calls `visit` with the number and inode of every inode that was ever used, including deleted ones.
///
/// # Errors
/// Errors of `visit` and of reading the disk.
pub(super) fn for_each(
    volume: &Volume<'_>,
    groups: &[Group],
    mut visit: impl FnMut(u32, Inode<'_>) -> Result<()>,
) -> Result<()> {
    let superblock = &volume.superblock;
    let (block_size, inode_size) = (u64::from(superblock.block_size), u64::from(superblock.inode_size));
    let blocks_at_once = (READ_LENGTH / block_size).max(1);
    let mut buffer = vec![0; (blocks_at_once * block_size) as usize];
    for (number, group) in (0_u32..).zip(groups) {
        let mut inode_number = number * superblock.inodes_per_group + 1;
        let mut left = u64::from(group.inodes);
        let mut block = group.inode_table;
        while left > 0 {
            let blocks = (left * inode_size).div_ceil(block_size).min(blocks_at_once);
            let piece = &mut buffer[..(blocks * block_size) as usize];
            volume.read(block, piece)?;
            let inodes = (piece.len() as u64 / inode_size).min(left);
            for bytes in piece.chunks_exact(inode_size as usize).take(inodes as usize) {
                visit(inode_number, Inode::new(inode_number, bytes))?;
                inode_number += 1;
            }
            left -= inodes;
            block += blocks;
        }
    }
    Ok(())
}

/// Reads one inode by its number.
///
/// # Errors
/// `Corrupt` if it does not exist; errors of reading the disk.
pub(super) fn read_one(volume: &Volume<'_>, groups: &[Group], number: u32) -> Result<Vec<u8>> {
    let superblock = &volume.superblock;
    let index = number.checked_sub(1).ok_or_else(|| Error::corrupt("inode number 0 does not exist"))?;
    let group = groups
        .get((index / superblock.inodes_per_group) as usize)
        .ok_or_else(|| Error::corrupt(format!("inode {number} does not exist")))?;
    let offset = u64::from(index % superblock.inodes_per_group) * u64::from(superblock.inode_size);
    let block_size = u64::from(superblock.block_size);
    let mut block = vec![0; superblock.block_size as usize];
    volume.read(group.inode_table + offset / block_size, &mut block)?;
    let start = (offset % block_size) as usize;
    Ok(block[start..start + superblock.inode_size as usize].to_vec())
}
