//! Extent trees: how ext4 inodes name their blocks.
//!
//! A node has a 12-byte header (magic, entries, capacity, depth, generation) and 12-byte entries. The root is
//! in the inode; a deeper node fills a block. The depth decreases by one at each step, so a tree cannot
//! contain a cycle.
//!
//! Whether an extent was written is one bit, which nothing else in the filesystem confirms. So with checksums, every
//! block of a tree must have a correct one, and so must an inode with unwritten extents.

use super::checksums;
use super::inodes::Inode;
use super::walker::{Piece, Walker};
use crate::fields::{le16, le32};
use platter_image::{Error, Result};

const MAGIC: u16 = 0xf30a;
const ENTRY_LENGTH: usize = 12;
const DEPTH_MAX: u16 = 5;
/// An extent with a larger length field is unwritten; its length is the field minus this.
const WRITTEN_LENGTH_MAX: u16 = 32768;

/// Passes every node and extent of an inode's tree to `visit`. Returns `false` if some of it is invalid.
///
/// # Errors
/// `Corrupt` when a checksum is wrong, or the filesystem claims more blocks than it has; errors of reading the disk.
pub(super) fn walk(
    walker: &mut Walker<'_, '_>,
    inode: Inode<'_>,
    visit: &mut dyn FnMut(Piece),
) -> Result<bool> {
    let area = inode.block_area();
    let depth = le16(area, 6);
    if depth > DEPTH_MAX {
        return Ok(false);
    }
    let mut has_unwritten = false;
    let is_sound = walk_node(walker, inode, area, depth, &mut |piece| {
        has_unwritten |= matches!(piece, Piece::Run { is_written: false, .. });
        visit(piece);
    })?;
    if has_unwritten && !checksums::is_inode_correct(walker.superblock(), inode) {
        return Err(Error::corrupt("some of its extents were never written, but its checksum is wrong"));
    }
    Ok(is_sound)
}

fn walk_node(
    walker: &mut Walker<'_, '_>,
    inode: Inode<'_>,
    node: &[u8],
    depth: u16,
    visit: &mut dyn FnMut(Piece),
) -> Result<bool> {
    let entries = le16(node, 2);
    let capacity = node.len() / ENTRY_LENGTH - 1;
    if le16(node, 0) != MAGIC || le16(node, 6) != depth || usize::from(entries) > capacity {
        return Ok(false);
    }
    let entries = node.chunks_exact(ENTRY_LENGTH).skip(1).take(usize::from(entries));
    let mut is_sound = true;
    for entry in entries {
        is_sound &= if depth == 0 {
            visit_extent(walker, entry, visit)?
        } else {
            let block = u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32;
            match walker.enter(block, usize::from(depth), visit)? {
                Some(child) => {
                    if !checksums::is_node_correct(walker.superblock(), inode, &child) {
                        return Err(Error::corrupt(format!(
                            "block {block} of its extent tree has a wrong checksum"
                        )));
                    }
                    let is_sound = walk_node(walker, inode, &child, depth - 1, visit)?;
                    walker.leave(child, usize::from(depth));
                    is_sound
                }
                None => false,
            }
        };
    }
    Ok(is_sound)
}

fn visit_extent(walker: &mut Walker<'_, '_>, entry: &[u8], visit: &mut dyn FnMut(Piece)) -> Result<bool> {
    let length = le16(entry, 4);
    let (blocks, is_written) = if length > WRITTEN_LENGTH_MAX {
        (u64::from(length - WRITTEN_LENGTH_MAX), false)
    } else {
        (u64::from(length), true)
    };
    let block = u64::from(le16(entry, 6)) << 32 | u64::from(le32(entry, 8));
    let file_block = u64::from(le32(entry, 0));
    walker.claim(Piece::Run { file_block, block, blocks, is_written }, visit)
}
