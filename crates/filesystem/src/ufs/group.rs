//! A group's header: the bitmaps of its free fragments and its inodes in use, and counters that must agree with them.

use platter_image::{Error, Result};

use super::superblock::{Counters, Version};
use super::volume::Volume;
use crate::clusters::ClusterSet;
use crate::fields::{le16, le32};

const MAGIC: u32 = 0x0009_0255;
/// The bytes of a header before its bitmaps.
const FIXED_LENGTH: u64 = 168;

/// What a group's header says.
pub(super) struct Group {
    /// How many inodes of its table have ever been written.
    pub(super) written_inodes: u64,
    pub(super) counters: Counters,
    /// One bit for each inode in use.
    inodes: Vec<u8>,
}

impl Group {
    /// Reads a header. Adds the fragments of the group that are in use to `used`.
    ///
    /// # Errors
    /// `Corrupt` if it contradicts itself or the superblock; errors of reading the disk.
    pub(super) fn read(volume: &Volume<'_>, number: u64, used: &mut ClusterSet) -> Result<Self> {
        let superblock = &volume.superblock;
        let mut bytes = vec![0; superblock.header_length as usize];
        volume.read(superblock.metadata_start(number) + superblock.header, &mut bytes)?;
        let wrong =
            |what: &str| Err(Error::corrupt(format!("the header of group {number} has a wrong {what}")));
        if le32(&bytes, 4) != MAGIC || u64::from(le32(&bytes, 12)) != number {
            return wrong("magic number or number");
        }
        let (first, count) = superblock.group(number);
        if u64::from(le32(&bytes, 20)) != count {
            return wrong("length");
        }
        let (in_use, free) = (u64::from(le32(&bytes, 92)), u64::from(le32(&bytes, 96)));
        let end = superblock.header_length;
        let fits = |start: u64, bits: u64| start >= FIXED_LENGTH && start + bits.div_ceil(8) <= end;
        if !fits(in_use, superblock.group_inodes) || !fits(free, count) {
            return wrong("place of a bitmap");
        }
        let (inodes, written_inodes) = match superblock.version {
            Version::One => (u64::from(le16(&bytes, 18)), superblock.group_inodes),
            Version::Two => (u64::from(le32(&bytes, 116)), u64::from(le32(&bytes, 120))),
        };
        if inodes != superblock.group_inodes || written_inodes > inodes {
            return wrong("number of inodes");
        }
        let bits =
            |start: u64, bits: u64| bytes[start as usize..(start + bits.div_ceil(8)) as usize].to_vec();
        let group = Self {
            written_inodes,
            counters: Counters::parse(&bytes, 24),
            inodes: bits(in_use, superblock.group_inodes),
        };
        let mut counted = free_space(&bits(free, count), count, superblock.block_fragments, |fragment| {
            used.insert(first + fragment);
        });
        counted.directories = group.counters.directories;
        counted.free_inodes = (0..inodes).filter(|index| !group.is_in_use(*index)).count() as u64;
        match counted == group.counters {
            true => Ok(group),
            false => Err(Error::corrupt(format!(
                "group {number} has {counted:?} according to its bitmaps, but {:?} according to its header",
                group.counters
            ))),
        }
    }

    /// Whether the inode with that number in the group is marked as used.
    pub(super) fn is_in_use(&self, index: u64) -> bool {
        self.inodes[(index / 8) as usize] >> (index % 8) & 1 == 1
    }
}

/// Counts free blocks, and free fragments outside of them, and visits all fragments in use.
fn free_space(bitmap: &[u8], count: u64, block_fragments: u64, mut visit_used: impl FnMut(u64)) -> Counters {
    let mut counters = Counters::default();
    let mut start = 0;
    while start < count {
        let block = start..(start + block_fragments).min(count);
        let is_free = |fragment: &u64| bitmap[(fragment / 8) as usize] >> (fragment % 8) & 1 == 1;
        let free = block.clone().filter(is_free).count() as u64;
        match free == block_fragments {
            true => counters.free_blocks += 1,
            false => counters.free_fragments += free,
        }
        block.filter(|fragment| !is_free(fragment)).for_each(&mut visit_used);
        start += block_fragments;
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_and_single_fragments_are_counted() {
        let mut used = Vec::new();
        // Blocks of four fragments: free, in use, half free, and a last one with two.
        let counters = free_space(&[0b0000_1111, 0b1111_0110], 14, 4, |fragment| used.push(fragment));
        let expected = Counters { free_blocks: 1, free_fragments: 2 + 2, ..Counters::default() };
        assert_eq!((counters, used), (expected, vec![4, 5, 6, 7, 8, 11]));
    }
}
