//! The headers of an allocation group: its free space, its inodes, and its list of free blocks. Each is a sector.

use platter_image::{Error, Result};

use super::volume::{Volume, is_checksum_correct};
use crate::fields::{be32, has};

/// The sectors of a group: superblock, free space, inodes, free list.
const FREE_SPACE_SECTOR: u64 = 1;
const INODES_SECTOR: u64 = 2;
const FREE_LIST_SECTOR: u64 = 3;

/// Number of these sectors.
pub(super) const HEADERS: u64 = 4;

/// The first entry of the free list, with checksums.
const FREE_LIST_HEADER: usize = 36;
/// No block.
const NO_BLOCK: u32 = u32::MAX;

/// The root of a tree: its block in the group, and its number of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) block: u32,
    pub(super) levels: u32,
}

/// The fields of a group's headers that the reader uses.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) number: u32,
    pub(super) blocks: u32,
    /// Free extents by place, and by length.
    pub(super) by_place: Root,
    pub(super) by_length: Root,
    pub(super) reverse_map: Option<Root>,
    pub(super) reference_counts: Option<Root>,
    pub(super) inodes: Root,
    pub(super) free_inodes: Option<Root>,
    /// Free blocks in the trees, and the longest free extent.
    pub(super) free_blocks: u32,
    pub(super) longest: u32,
    /// Free blocks that are reserved for the trees.
    pub(super) free_list: Vec<u32>,
    pub(super) inodes_allocated: u32,
}

impl Group {
    /// Reads the headers of a group.
    ///
    /// # Errors
    /// `Corrupt` if one is not what it must be; errors of reading the disk.
    pub(super) fn read(volume: &Volume<'_>, number: u32) -> Result<Self> {
        let superblock = &volume.superblock;
        let blocks = superblock.blocks_of_group(number);
        let space = header(volume, number, FREE_SPACE_SECTOR, b"XAGF", 216)?;
        let inodes = header(volume, number, INODES_SECTOR, b"XAGI", 312)?;
        for (what, bytes) in [("free space", &space), ("inode", &inodes)] {
            if be32(bytes, 4) != 1 || be32(bytes, 8) != number || be32(bytes, 12) != blocks {
                return Err(Error::corrupt(format!(
                    "the {what} header of group {number} has version {}, number {} and length {}, not 1, {number} and {blocks}",
                    be32(bytes, 4),
                    be32(bytes, 8),
                    be32(bytes, 12)
                )));
            }
        }
        let root =
            |bytes: &[u8], block, levels| Root { block: be32(bytes, block), levels: be32(bytes, levels) };
        Ok(Self {
            number,
            blocks,
            by_place: root(&space, 16, 28),
            by_length: root(&space, 20, 32),
            reverse_map: superblock.has_reverse_map.then(|| root(&space, 24, 36)),
            reference_counts: superblock.has_reflink.then(|| root(&space, 88, 92)),
            inodes: root(&inodes, 20, 24),
            free_inodes: superblock.has_free_inode_tree.then(|| root(&inodes, 328, 332)),
            free_blocks: be32(&space, 52),
            longest: be32(&space, 56),
            free_list: free_list(volume, number, [be32(&space, 40), be32(&space, 44), be32(&space, 48)])?,
            inodes_allocated: be32(&inodes, 16),
        })
    }
}

fn header(volume: &Volume<'_>, group: u32, sector: u64, magic: &[u8], checksum: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; volume.superblock.sector_size as usize];
    let offset = volume.sector(group, sector);
    volume.read(offset, &mut bytes)?;
    let wrong = |what| Error::corrupt(format!("the header of group {group} {} {what}", volume.at(offset)));
    if !has(&bytes, 0, magic) {
        return Err(wrong("has a wrong magic number"));
    }
    if volume.superblock.has_checksums && !is_checksum_correct(&bytes, checksum) {
        return Err(wrong("has a wrong checksum"));
    }
    Ok(bytes)
}

/// The blocks in the free list: a ring with the given first and last entry, and number of entries.
fn free_list(volume: &Volume<'_>, group: u32, [first, last, count]: [u32; 3]) -> Result<Vec<u32>> {
    let (bytes, start) = if volume.superblock.has_checksums {
        let bytes = header(volume, group, FREE_LIST_SECTOR, b"XAFL", 32)?;
        if be32(&bytes, 4) != group {
            return Err(Error::corrupt(format!(
                "the free list of group {group} belongs to group {}",
                be32(&bytes, 4)
            )));
        }
        (bytes, FREE_LIST_HEADER)
    } else {
        // Without checksums, it has no header.
        (header(volume, group, FREE_LIST_SECTOR, b"", 0)?, 0)
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    let size = ((bytes.len() - start) / 4) as u32;
    let length = if first <= last { last - first + 1 } else { size.saturating_sub(first) + last + 1 };
    if first >= size || last >= size || length != count {
        return Err(Error::corrupt(format!(
            "the free list of group {group} has the impossible range {first} to {last} for {count} blocks"
        )));
    }
    let entries = (0..count).map(|index| be32(&bytes, start + ((first + index) % size) as usize * 4));
    let entries: Vec<u32> = entries.collect();
    if entries.contains(&NO_BLOCK) {
        return Err(Error::corrupt(format!("the free list of group {group} has an empty entry")));
    }
    Ok(entries)
}
