//! A filesystem on a disk: reads blocks by number, and converts block numbers to offsets.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::superblock::{SUPERBLOCK_LENGTH, SUPERBLOCK_OFFSET, Superblock};
use crate::reader::check_fits;

/// An ext filesystem that begins at the start of `extent` and fits into it.
pub(super) struct Volume<'d> {
    pub(super) disk: &'d dyn DiskRead,
    pub(super) extent: Extent,
    pub(super) superblock: Superblock,
}

impl<'d> Volume<'d> {
    /// # Errors
    /// `Corrupt` if there is no trustworthy filesystem; errors of reading the disk.
    pub(super) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_LENGTH];
        if extent.length < SUPERBLOCK_OFFSET + SUPERBLOCK_LENGTH as u64 {
            return Err(Error::corrupt("there is no superblock"));
        }
        disk.read_exact_at(&mut bytes, extent.offset + SUPERBLOCK_OFFSET)
            .context(|| format!("reading the superblock at offset {}", extent.offset + SUPERBLOCK_OFFSET))?;
        let superblock = Superblock::parse(&bytes)?;
        check_fits(superblock.length(), extent)?;
        Ok(Self { disk, extent, superblock })
    }

    /// Whether all of these blocks are in the filesystem.
    pub(super) fn holds(&self, block: u64, count: u64) -> bool {
        block >= self.superblock.first_data_block
            && block.checked_add(count).is_some_and(|end| end <= self.superblock.blocks)
    }

    /// Where these blocks are on the disk.
    pub(super) fn place(&self, block: u64, count: u64) -> Extent {
        let size = u64::from(self.superblock.block_size);
        Extent::new(self.extent.offset + block * size, count * size)
    }

    /// The block of the filesystem at `offset` of the disk.
    pub(super) fn block_at(&self, offset: u64) -> u64 {
        (offset - self.extent.offset) / u64::from(self.superblock.block_size)
    }

    /// Fills `buffer` from the start of `block`.
    ///
    /// # Errors
    /// `Corrupt` if the blocks are not in the filesystem; errors of reading the disk.
    pub(super) fn read(&self, block: u64, buffer: &mut [u8]) -> Result<()> {
        let count = (buffer.len() as u64).div_ceil(u64::from(self.superblock.block_size));
        if !self.holds(block, count) {
            return Err(Error::corrupt(format!("block {block} is outside of the filesystem")));
        }
        let offset = self.place(block, count).offset;
        self.disk
            .read_exact_at(buffer, offset)
            .context(|| format!("reading filesystem block {block} at offset {offset}"))
    }
}
