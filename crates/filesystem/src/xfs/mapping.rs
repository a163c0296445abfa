//! How a fork of an inode names its blocks: a list of extents in the inode, or a B-tree of them.
//!
//! An extent has 16 bytes: a flag for unwritten, the offset in the file (54 bits), the first block (52), the number of
//! blocks (21). The root of a tree is in the inode, other nodes fill a block. The level decreases by one at each step, and
//! all trees together have no more nodes than the filesystem has blocks.

use platter_image::{Error, Extent, Result};

use super::volume::{Volume, is_checksum_correct};
use crate::fields::{be16, be64, has};

const EXTENT_LENGTH: usize = 16;
const KEY_LENGTH: usize = 8;
const POINTER_LENGTH: usize = 8;
/// More levels cannot occur.
const LEVELS_MAX: u16 = 16;

/// Something that an inode claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Contents from `file_offset` on are at `place`, both in bytes.
    Run { file_offset: u64, place: Extent, is_written: bool },
    /// A node of the tree.
    Node(Extent),
}

/// Called with everything that a fork claims.
pub(super) type Visit<'v> = &'v mut dyn FnMut(Piece) -> Result<()>;

/// Walks the forks of inodes, within a budget of nodes.
pub(super) struct Mapper<'v, 'd> {
    volume: &'v Volume<'d>,
    nodes_left: u64,
}

impl<'v, 'd> Mapper<'v, 'd> {
    pub(super) fn new(volume: &'v Volume<'d>) -> Self {
        Self::with_budget(volume, volume.superblock.blocks)
    }

    /// With a limit of nodes that are read.
    pub(super) fn with_budget(volume: &'v Volume<'d>, nodes_left: u64) -> Self {
        Self { volume, nodes_left }
    }

    /// The nodes that may still be read.
    pub(super) fn budget(&self) -> u64 {
        self.nodes_left
    }

    /// Passes the extents of a fork that is a list.
    ///
    /// # Errors
    /// `Corrupt` if they are not what they must be; errors of `visit`.
    pub(super) fn list(&self, fork: &[u8], count: u64, visit: Visit<'_>) -> Result<()> {
        if count > (fork.len() / EXTENT_LENGTH) as u64 {
            return Err(Error::corrupt(format!("it has {count} extents in {} bytes", fork.len())));
        }
        let mut end = 0;
        fork.chunks_exact(EXTENT_LENGTH)
            .take(count as usize)
            .try_for_each(|record| self.extent(record, &mut end, visit))
    }

    /// Passes the extents and nodes of a fork that is the root of a tree.
    ///
    /// # Errors
    /// Those of [`Self::list`]; errors of reading the disk.
    pub(super) fn tree(&mut self, root: &[u8], visit: Visit<'_>) -> Result<()> {
        let (level, records) = (be16(root, 0), usize::from(be16(root, 2)));
        let room = root.len().saturating_sub(4) / (KEY_LENGTH + POINTER_LENGTH);
        if !(1..=LEVELS_MAX).contains(&level) || records > room {
            return Err(Error::corrupt(format!(
                "the root of its extents has level {level} and {records} records"
            )));
        }
        let mut end = 0;
        (0..records).try_for_each(|index| {
            self.node(be64(root, 4 + room * KEY_LENGTH + index * POINTER_LENGTH), level - 1, &mut end, visit)
        })
    }

    fn node(&mut self, block: u64, level: u16, end: &mut u64, visit: Visit<'_>) -> Result<()> {
        let volume = self.volume;
        let wrong = |what: &str| Error::corrupt(format!("block {block} of the tree of its extents {what}"));
        self.nodes_left = self
            .nodes_left
            .checked_sub(1)
            .ok_or_else(|| wrong("is one of more nodes than there are blocks"))?;
        let place = volume.place(block, 1).ok_or_else(|| wrong("is outside of the filesystem"))?;
        visit(Piece::Node(place))?;
        let mut bytes = vec![0; place.length as usize];
        volume.read(place.offset, &mut bytes)?;
        let has_checksums = volume.superblock.has_checksums;
        let (magic, start) = if has_checksums { (b"BMA3", 72) } else { (b"BMAP", 24) };
        if !has(&bytes, 0, magic) {
            return Err(wrong("has a wrong magic number"));
        }
        if has_checksums && !is_checksum_correct(&bytes, 64) {
            return Err(wrong("has a wrong checksum"));
        }
        let records = usize::from(be16(&bytes, 6));
        let entry = if level == 0 { EXTENT_LENGTH } else { KEY_LENGTH + POINTER_LENGTH };
        let room = (bytes.len() - start) / entry;
        if be16(&bytes, 4) != level || records > room || records == 0 {
            return Err(wrong(&format!(
                "has level {} and {records} records, but should have level {level}",
                be16(&bytes, 4)
            )));
        }
        if level == 0 {
            let mut extents = bytes[start..].chunks_exact(EXTENT_LENGTH).take(records);
            return extents.try_for_each(|record| self.extent(record, end, visit));
        }
        (0..records).try_for_each(|index| {
            self.node(be64(&bytes, start + room * KEY_LENGTH + index * POINTER_LENGTH), level - 1, end, visit)
        })
    }

    /// Passes one extent; `end` is that of the last one in the file, in blocks.
    fn extent(&self, record: &[u8], end: &mut u64, visit: Visit<'_>) -> Result<()> {
        let (high, low) = (be64(record, 0), be64(record, 8));
        let file_block = high << 1 >> 10;
        let (block, count) = ((high & 0x1ff) << 43 | low >> 21, low & 0x1f_ffff);
        let place = self.volume.place(block, count).filter(|_| count > 0 && file_block >= *end);
        let place = place.ok_or_else(|| {
            Error::corrupt(format!(
                "its extent of {count} blocks at block {block} is empty, outside of the filesystem or out of order"
            ))
        })?;
        *end = file_block + count;
        let file_offset = file_block.saturating_mul(self.volume.block_size());
        visit(Piece::Run { file_offset, place, is_written: high >> 63 == 0 })
    }
}
