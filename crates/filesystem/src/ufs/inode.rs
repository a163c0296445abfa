//! An inode: what the reader needs of the two versions of its format.

use platter_image::{Error, Result};

use super::superblock::{Superblock, Version};
use crate::fields::{le16, le32, le64};

/// The pointers in an inode: to blocks, and to blocks of pointers.
const DIRECT: usize = 12;
const INDIRECT: usize = 3;
/// Blocks of extended attributes.
const ATTRIBUTE_BLOCKS: usize = 2;
/// The file is a snapshot of the filesystem.
const FLAG_SNAPSHOT: u32 = 0x0020_0000;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file with contents.
    File,
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe, socket or whiteout: has no contents.
    Other,
}

/// An inode in use.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) length: u64,
    /// How many sectors of 512 bytes it has.
    pub(super) sectors: u64,
    pub(super) direct: [u64; DIRECT],
    pub(super) indirect: [u64; INDIRECT],
    /// Extended attributes, in UFS2: their length and their blocks.
    pub(super) attributes_length: u64,
    pub(super) attributes: [u64; ATTRIBUTE_BLOCKS],
}

impl Inode {
    /// Decodes an inode; `None` if it is free.
    ///
    /// # Errors
    /// `Corrupt` for what the reader does not know.
    pub(super) fn parse(bytes: &[u8], superblock: &Superblock) -> Result<Option<Self>> {
        let mode = le16(bytes, 0);
        let kind = match mode >> 12 {
            0 if mode == 0 => return Ok(None),
            0x8 => Kind::File,
            0x4 => Kind::Directory,
            0xa => Kind::Link,
            0x1 | 0x2 | 0x6 | 0xc | 0xe => Kind::Other,
            _ => return Err(Error::corrupt(format!("its mode is {mode:#o}"))),
        };
        let narrow = |offset| u64::from(le32(bytes, offset));
        let inode = match superblock.version {
            Version::One => Self {
                kind,
                length: le64(bytes, 8),
                sectors: narrow(104),
                direct: std::array::from_fn(|index| narrow(40 + 4 * index)),
                indirect: std::array::from_fn(|index| narrow(88 + 4 * index)),
                attributes_length: 0,
                attributes: [0; ATTRIBUTE_BLOCKS],
            },
            Version::Two => Self {
                kind,
                length: le64(bytes, 16),
                sectors: le64(bytes, 24),
                direct: std::array::from_fn(|index| le64(bytes, 112 + 8 * index)),
                indirect: std::array::from_fn(|index| le64(bytes, 208 + 8 * index)),
                attributes_length: narrow(92),
                attributes: std::array::from_fn(|index| le64(bytes, 96 + 8 * index)),
            },
        };
        let flags = le32(bytes, if superblock.version == Version::One { 100 } else { 88 });
        match flags & FLAG_SNAPSHOT == 0 {
            true => Ok(Some(inode)),
            false => Err(Error::corrupt("it is a snapshot")),
        }
    }

    /// Whether its pointers point to fragments. The target of a short link is in their place, and the number of a device.
    pub(super) fn has_pointers(&self, superblock: &Superblock) -> bool {
        match self.kind {
            Kind::File | Kind::Directory => true,
            Kind::Link if superblock.inline_link_max == 0 => self.sectors > 0,
            Kind::Link => self.length >= superblock.inline_link_max,
            Kind::Other => false,
        }
    }
}
