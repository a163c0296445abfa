//! Checksums of bitmaps, inodes, and blocks of extent trees, directories and attributes, if the filesystem has them
//! (`metadata_csum`).
//!
//! Those of inodes, extent trees and directories start from the seed of the filesystem, the inode's number and its generation, so a
//! block that belongs to another inode has a wrong checksum, too. That of a block of attributes, which inodes share, contains the
//! block's number. Blocks of indirect numbers have none.

use super::inodes::Inode;
use super::superblock::Superblock;
use super::{directory, features};
use crate::checksum::crc32c;
use crate::fields::{le16, le32};

/// The part of an inode that every version of ext has.
const OLD_INODE_LENGTH: usize = 128;
const GENERATION: usize = 0x64;
/// The lower half of an inode's checksum.
const LOW: usize = 0x7c;
/// The upper half, after the old part. It exists if the inode states that it has at least four more bytes.
const HIGH: usize = 2;
const HIGH_END: u16 = 4;

/// Whether the used part of a bitmap is what its group says. In 32-byte descriptors, only half of the checksum is stored.
pub(super) fn is_bitmap_correct(superblock: &Superblock, bitmap: &[u8], stored: u32) -> bool {
    if !superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        return true;
    }
    let mask = if superblock.descriptor_size >= 64 { u32::MAX } else { 0xffff };
    crc32c(superblock.seed, &[bitmap]) & mask == stored
}

/// Whether an inode is what its checksum says.
pub(super) fn is_inode_correct(superblock: &Superblock, inode: Inode<'_>) -> bool {
    // Only filesystems made by Linux have checksums here.
    if !superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) || !superblock.is_of_linux {
        return true;
    }
    let (old, more) = inode.bytes().split_at(OLD_INODE_LENGTH);
    let sum = crc32c(seed(superblock, inode), &[&old[..LOW], &[0; 2], &old[LOW + 2..]]);
    let low = u32::from(le16(old, LOW));
    if le16(more, 0) < HIGH_END {
        return crc32c(sum, &[more]) & 0xffff == low;
    }
    let sum = crc32c(sum, &[&more[..HIGH], &[0; 2], &more[HIGH + 2..]]);
    sum == low | u32::from(le16(more, HIGH)) << 16
}

/// Whether a block of an inode's extent tree is what its checksum says.
pub(super) fn is_node_correct(superblock: &Superblock, inode: Inode<'_>, node: &[u8]) -> bool {
    if !superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        return true;
    }
    // After the header of 12 bytes and as many entries of 12 bytes as fit.
    let end = 12 * (1 + usize::from(le16(node, 4)));
    let summed = node.get(..end).filter(|_| end + 4 <= node.len());
    summed.is_some_and(|summed| crc32c(seed(superblock, inode), &[summed]) == le32(node, end))
}

/// The entry at the end of a directory's block that holds its checksum: no inode, a length of 12 bytes, no name, and a type that no
/// file has.
const DIRECTORY_TAIL: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xde];
const DIRECTORY_TAIL_LENGTH: usize = 12;
/// The offsets of the index in the root of a hashed directory, after the entries `.` and `..` and a header, and in other nodes of it,
/// after an unused entry.
const INDEX_OF_ROOT: usize = 32;
const INDEX_OF_NODE: usize = 8;
/// The length of an entry of an index; the first has the number of entries that fit and that are used instead of a hash.
const INDEX_ENTRY: usize = 8;
/// After the entries that fit: 4 bytes without use, and the checksum.
const INDEX_TAIL: usize = 8;

/// Whether a block of a directory is what its checksum says: one of names, or of the index of a hashed directory. In the latter, only
/// used entries are covered; all else is in an unused entry of the directory. A block of names that became the root of an index
/// keeps the mark of its end there, so the checksum decides which of them it is.
pub(super) fn is_directory_block_correct(superblock: &Superblock, inode: Inode<'_>, block: &[u8]) -> bool {
    if !superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        return true;
    }
    let seed = seed(superblock, inode);
    let (names, tail) = block.split_at(block.len() - DIRECTORY_TAIL_LENGTH);
    if tail.starts_with(&DIRECTORY_TAIL) && crc32c(seed, &[names]) == le32(tail, DIRECTORY_TAIL.len()) {
        return true;
    }
    let Some(start) = start_of_index(block) else { return false };
    let (limit, count) = (usize::from(le16(block, start)), usize::from(le16(block, start + 2)));
    let end = start + limit * INDEX_ENTRY;
    let used = block.get(..start + count * INDEX_ENTRY).filter(|_| count <= limit);
    let (Some(used), Some(tail)) = (used, block.get(end..end + INDEX_TAIL)) else { return false };
    crc32c(seed, &[used, &tail[..4], &[0; 4]]) == le32(tail, 4)
}

/// Where the index in a block of a hashed directory begins; `None` if it has none.
fn start_of_index(block: &[u8]) -> Option<usize> {
    let first = directory::entry_length(block, block.len());
    if first == block.len() {
        return Some(INDEX_OF_NODE);
    }
    let dots = 12;
    let is_root = first == dots && directory::entry_length(&block[dots..], block.len()) == block.len() - dots;
    is_root.then_some(INDEX_OF_ROOT)
}

/// Whether the block of attributes with that number is what its checksum says.
pub(super) fn is_attribute_block_correct(superblock: &Superblock, number: u64, block: &[u8]) -> bool {
    const CHECKSUM: usize = 16;
    if !superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        return true;
    }
    let (before, after) = (&block[..CHECKSUM], &block[CHECKSUM + 4..]);
    crc32c(superblock.seed, &[&number.to_le_bytes(), before, &[0; 4], after]) == le32(block, CHECKSUM)
}

fn seed(superblock: &Superblock, inode: Inode<'_>) -> u32 {
    crc32c(superblock.seed, &[&inode.number().to_le_bytes(), &inode.bytes()[GENERATION..GENERATION + 4]])
}
