//! A filesystem on a disk: blocks read by number, numbers turned into places.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::superblock::{SUPERBLOCK_LENGTH, SUPERBLOCK_OFFSET, Superblock};

/// An ext filesystem that begins where `extent` does, and fits into it.
pub(super) struct Volume<'d> {
    disk: &'d dyn DiskRead,
    pub(super) extent: Extent,
    pub(super) superblock: Superblock,
}

impl<'d> Volume<'d> {
    /// # Errors
    /// `Corrupt` if there is none that can be trusted; and what reading the disk says.
    pub(super) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_LENGTH];
        if extent.length < SUPERBLOCK_OFFSET + SUPERBLOCK_LENGTH as u64 {
            return Err(Error::corrupt("no superblock"));
        }
        disk.read_exact_at(&mut bytes, extent.offset + SUPERBLOCK_OFFSET)
            .context(|| format!("reading the superblock at {}", extent.offset + SUPERBLOCK_OFFSET))?;
        let superblock = Superblock::parse(&bytes)?;
        if superblock.length() > extent.length {
            return Err(Error::corrupt(format!(
                "it says it has {} bytes, and its place has {}",
                superblock.length(),
                extent.length
            )));
        }
        Ok(Self { disk, extent, superblock })
    }

    /// Whether all of these blocks are in the filesystem.
    pub(super) fn holds(&self, block: u64, count: u64) -> bool {
        block >= self.superblock.first_data_block
            && block.checked_add(count).is_some_and(|end| end <= self.superblock.blocks)
    }

    /// Where blocks of the filesystem stand on the disk.
    pub(super) fn place(&self, block: u64, count: u64) -> Extent {
        let size = u64::from(self.superblock.block_size);
        Extent::new(self.extent.offset + block * size, count * size)
    }

    /// The block of the filesystem that stands at `offset` of the disk.
    pub(super) fn block_at(&self, offset: u64) -> u64 {
        (offset - self.extent.offset) / u64::from(self.superblock.block_size)
    }

    /// Reads from the start of `block` on.
    ///
    /// # Errors
    /// `Corrupt` if that is not in the filesystem; and what reading the disk says.
    pub(super) fn read(&self, block: u64, buffer: &mut [u8]) -> Result<()> {
        let count = (buffer.len() as u64).div_ceil(u64::from(self.superblock.block_size));
        if !self.holds(block, count) {
            return Err(Error::corrupt(format!("a block number, {block}, is not in the filesystem")));
        }
        let offset = self.place(block, count).offset;
        self.disk
            .read_exact_at(buffer, offset)
            .context(|| format!("reading filesystem block {block} at {offset}"))
    }
}
