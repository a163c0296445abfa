//! Block groups: their descriptors, verified, and where copies of the superblock and the descriptors are.

use platter_image::{Error, Result};

use super::features;
use super::superblock::Superblock;
use super::volume::Volume;
use crate::checksum::{crc16, crc32c};
use crate::fields::{le16, le32};

const FLAG_INODES_UNINITIALISED: u16 = 1;
const FLAG_BLOCKS_UNINITIALISED: u16 = 2;

/// The descriptor of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    /// Number of free clusters.
    pub(super) free: u32,
    /// The checksum of the block bitmap; only its lower half in 32-byte descriptors.
    pub(super) bitmap_checksum: u32,
    /// The same of the inode bitmap.
    pub(super) inode_bitmap_checksum: u32,
    /// Inodes at the start of the table that were ever used; the rest was not even zeroed.
    pub(super) inodes: u32,
    /// Its bitmap was never written: only its metadata is in use.
    pub(super) is_blank: bool,
}

/// Reads the descriptors of all groups.
///
/// # Errors
/// `Corrupt` if a checksum is wrong or a block number is invalid; errors of reading the disk.
pub(super) fn read(volume: &Volume<'_>) -> Result<Vec<Group>> {
    let superblock = &volume.superblock;
    let mut groups = Vec::with_capacity(superblock.groups as usize);
    let mut block = vec![0; superblock.block_size as usize];
    for index in 0..descriptor_blocks(superblock) {
        volume.read(descriptor_place(superblock, index), &mut block)?;
        for descriptor in block.chunks_exact(superblock.descriptor_size as usize) {
            if groups.len() as u64 == superblock.groups {
                break;
            }
            groups.push(parse(volume, groups.len() as u32, descriptor)?);
        }
    }
    Ok(groups)
}

/// Checks that no two groups share bitmaps or inode tables. So each of them is read once, however many groups there are.
///
/// # Errors
/// `Corrupt` if two groups name the same block.
pub(super) fn check_disjoint(volume: &Volume<'_>, groups: &[Group]) -> Result<()> {
    let table = volume.superblock.inode_table_blocks();
    let named =
        |group: &Group| [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.inode_table, table)];
    let mut places: Vec<(u64, u64)> = groups.iter().flat_map(named).collect();
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        Some(pair) => Err(Error::corrupt(format!(
            "block {} is a bitmap or in an inode table of two groups, or twice of one",
            pair[1].0
        ))),
        None => Ok(()),
    }
}

fn parse(volume: &Volume<'_>, number: u32, bytes: &[u8]) -> Result<Group> {
    let superblock = &volume.superblock;
    check(superblock, number, bytes)?;
    let is_long = bytes.len() >= 64;
    let wide = |low: usize, high: usize| {
        u64::from(le32(bytes, low)) | if is_long { u64::from(le32(bytes, high)) << 32 } else { 0 }
    };
    let half = |low: usize, high: usize| {
        u32::from(le16(bytes, low)) | if is_long { u32::from(le16(bytes, high)) << 16 } else { 0 }
    };
    let flags = if superblock.features.has_group_checksums() { le16(bytes, 0x12) } else { 0 };
    let unused = if superblock.features.has_group_checksums() { half(0x1c, 0x32) } else { 0 };
    let group = Group {
        block_bitmap: wide(0, 0x20),
        inode_bitmap: wide(4, 0x24),
        inode_table: wide(8, 0x28),
        free: half(0xc, 0x2c),
        bitmap_checksum: half(0x18, 0x38),
        inode_bitmap_checksum: half(0x1a, 0x3a),
        inodes: if flags & FLAG_INODES_UNINITIALISED != 0 {
            0
        } else {
            superblock.inodes_per_group.saturating_sub(unused)
        },
        is_blank: flags & FLAG_BLOCKS_UNINITIALISED != 0,
    };
    let blocks = [
        (group.block_bitmap, 1),
        (group.inode_bitmap, 1),
        (group.inode_table, superblock.inode_table_blocks()),
    ];
    if !blocks.iter().all(|(block, count)| volume.holds(*block, *count)) {
        return Err(Error::corrupt(format!(
            "the descriptor of group {number} names blocks that do not exist"
        )));
    }
    Ok(group)
}

/// Checks a descriptor's checksum, if the filesystem has them.
fn check(superblock: &Superblock, number: u32, bytes: &[u8]) -> Result<()> {
    let own = le16(bytes, 0x1e);
    let number_bytes = number.to_le_bytes();
    let (before, after) = (&bytes[..0x1e], &bytes[0x20..]);
    let expected = if superblock.features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        crc32c(superblock.seed, &[&number_bytes, before, &[0; 2], after]) as u16
    } else if superblock.features.ro_compat(features::RO_COMPAT_GDT_CSUM) {
        crc16(&[&superblock.uuid_bytes, &number_bytes, before, after])
    } else {
        return Ok(());
    };
    if own != expected {
        return Err(Error::corrupt(format!("the descriptor of group {number} has a wrong checksum")));
    }
    Ok(())
}

fn descriptors_per_block(superblock: &Superblock) -> u64 {
    u64::from(superblock.block_size / superblock.descriptor_size)
}

fn descriptor_blocks(superblock: &Superblock) -> u64 {
    superblock.groups.div_ceil(descriptors_per_block(superblock))
}

/// Number of descriptor blocks that follow each superblock; the others are in their meta groups.
fn descriptor_blocks_together(superblock: &Superblock) -> u64 {
    let all = descriptor_blocks(superblock);
    if superblock.features.incompat(features::INCOMPAT_META_BG) {
        superblock.first_meta_group.min(all)
    } else {
        all
    }
}

/// The block of the primary superblock.
fn superblock_block(superblock: &Superblock) -> u64 {
    u64::from(superblock.block_size == 1024)
}

/// The block with the descriptors of block index `index`.
fn descriptor_place(superblock: &Superblock, index: u64) -> u64 {
    if index < descriptor_blocks_together(superblock) {
        return superblock_block(superblock) + 1 + index;
    }
    let group = index * descriptors_per_block(superblock);
    // With small blocks and clusters, the first group starts with a block before the superblock.
    let shift = superblock_block(superblock) - superblock.first_data_block;
    let before = if group == 0 { shift } else { 0 };
    superblock.group_blocks(group).0 + u64::from(has_superblock(superblock, group)) + before
}

/// Whether a group starts with a copy of the superblock.
fn has_superblock(superblock: &Superblock, group: u64) -> bool {
    let is_power_of = |base: u64| {
        let mut power = base;
        while power < group {
            power *= base;
        }
        power == group
    };
    if group == 0 {
        true
    } else if superblock.features.compat(features::COMPAT_SPARSE_SUPER2) {
        superblock.backup_groups.iter().any(|backup| u64::from(*backup) == group)
    } else if superblock.features.ro_compat(features::RO_COMPAT_SPARSE_SUPER) {
        group == 1 || [3, 5, 7].into_iter().any(is_power_of)
    } else {
        true
    }
}

/// Number of blocks at the start of a group that hold copies of the superblock and descriptors; 0 for most
/// groups.
pub(super) fn copies(superblock: &Superblock, group: u64) -> u64 {
    let per_block = descriptors_per_block(superblock);
    let together = descriptor_blocks_together(superblock);
    let is_meta = superblock.features.incompat(features::INCOMPAT_META_BG)
        && group >= superblock.first_meta_group.saturating_mul(per_block);
    let has_superblock = has_superblock(superblock, group);
    let before = if group == 0 { superblock_block(superblock) - superblock.first_data_block } else { 0 };
    let place_in_meta_group = group % per_block;
    let descriptors = if is_meta {
        let has_descriptors = place_in_meta_group <= 1 || place_in_meta_group == per_block - 1;
        u64::from(has_descriptors)
    } else if has_superblock {
        together + superblock.reserved_descriptor_blocks
    } else {
        0
    };
    before + u64::from(has_superblock) + descriptors
}
