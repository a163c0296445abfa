//! Checksums of bitmaps, inodes and blocks of extent trees, if the filesystem has them (`metadata_csum`).
//!
//! The latter two start from the seed of the filesystem, the inode's number and its generation, so a block that belongs to another
//! inode has a wrong checksum, too.

use super::features;
use super::inodes::Inode;
use super::superblock::Superblock;
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

fn seed(superblock: &Superblock, inode: Inode<'_>) -> u32 {
    crc32c(superblock.seed, &[&inode.number().to_le_bytes(), &inode.bytes()[GENERATION..GENERATION + 4]])
}
