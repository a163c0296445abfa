//! The chunks of 64 inodes that a group has, according to its tree of inodes.

use platter_image::{Error, Result};

use super::group::Group;
use super::short_tree::{Kind, ShortTree};
use super::volume::Volume;
use crate::fields::{be16, be32, be64};

pub(super) const INODES: Kind =
    Kind { name: "inode", magics: [b"IABT", b"IAB3"], key_length: 4, record_length: 16 };
pub(super) const FREE_INODES: Kind =
    Kind { name: "free inode", magics: [b"FIBT", b"FIB3"], key_length: 4, record_length: 16 };

/// Inodes in a chunk.
pub(super) const CHUNK: u32 = 64;
/// Inodes that one bit of the mask of holes stands for.
const HOLE: u32 = 4;

/// A chunk of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The number of its first inode in the group.
    pub(super) first: u32,
    /// Inodes that have a place on the disk, and those that are in use: a bit for each.
    pub(super) present: u64,
    pub(super) used: u64,
}

/// Passes every chunk of a group to `visit`.
///
/// # Errors
/// `Corrupt` if the tree contradicts itself or the header of the group; errors of reading the disk and of `visit`.
pub(super) fn for_each(
    volume: &Volume<'_>,
    group: &Group,
    visit: &mut dyn FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    let superblock = &volume.superblock;
    let inodes = u64::from(group.blocks) << superblock.block_inode_bits;
    let (mut end, mut allocated) = (0, 0);
    ShortTree::new(volume, group.number, INODES).records(group.inodes, &mut |record| {
        let first = be32(record, 0);
        let holes = if superblock.has_sparse_inodes { be16(record, 4) } else { 0 };
        let present =
            (0..u64::BITS).filter(|bit| holes >> (bit / HOLE) & 1 == 0).fold(0, |all, bit| all | 1 << bit);
        if u64::from(first) < end
            || u64::from(first) + u64::from(CHUNK) > inodes.next_multiple_of(CHUNK.into())
        {
            return Err(Error::corrupt(format!(
                "the inode tree of group {} is not in order, or leaves the group, at inode {first}",
                group.number
            )));
        }
        end = u64::from(first) + u64::from(CHUNK);
        allocated += u64::from(u64::count_ones(present));
        visit(Chunk { first, present, used: present & !be64(record, 8) })
    })?;
    if allocated != u64::from(group.inodes_allocated) {
        return Err(Error::corrupt(format!(
            "group {} has {allocated} inodes according to its tree, but {} according to its header",
            group.number, group.inodes_allocated
        )));
    }
    Ok(())
}
