//! A filesystem on a disk: reads blocks by number, checks their checksums, and converts numbers to offsets.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::superblock::{SECTOR_LENGTH_MIN, Superblock};
use crate::checksum::crc32c;
use crate::fields::le32;
use crate::reader::check_fits;

/// An XFS filesystem that begins at the start of `extent` and fits into it.
pub(super) struct Volume<'d> {
    disk: &'d dyn DiskRead,
    pub(super) extent: Extent,
    pub(super) superblock: Superblock,
}

impl<'d> Volume<'d> {
    /// # Errors
    /// `Corrupt` if there is no trustworthy filesystem; errors of reading the disk.
    pub(super) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let read = |length: usize| {
            let mut bytes = vec![0; length];
            if extent.length < length as u64 {
                return Err(Error::corrupt("there is no superblock at offset 0"));
            }
            disk.read_exact_at(&mut bytes, extent.offset)
                .context(|| format!("reading the superblock at offset {}", extent.offset))?;
            Ok(bytes)
        };
        let mut superblock = Superblock::parse(&read(SECTOR_LENGTH_MIN)?)?;
        if superblock.sector_size as usize > SECTOR_LENGTH_MIN {
            superblock = Superblock::parse(&read(superblock.sector_size as usize)?)?;
        }
        check_fits(superblock.length(), extent)?;
        Ok(Self { disk, extent, superblock })
    }

    pub(super) fn block_size(&self) -> u64 {
        self.superblock.block_size.into()
    }

    /// Where these blocks of a group are on the disk; `None` if they are not all in the group.
    pub(super) fn place_in_group(&self, group: u32, block: u32, count: u64) -> Option<Extent> {
        let end = u64::from(block).checked_add(count)?;
        let is_inside = group < self.superblock.groups
            && end <= u64::from(self.superblock.blocks_of_group(group))
            && count > 0;
        let first = u64::from(group) * u64::from(self.superblock.group_blocks) + u64::from(block);
        is_inside
            .then(|| Extent::new(self.extent.offset + first * self.block_size(), count * self.block_size()))
    }

    /// Where blocks are on the disk, given the group and the number inside it in one number; `None` if they are not
    /// all in one group.
    pub(super) fn place(&self, block: u64, count: u64) -> Option<Extent> {
        let bits = self.superblock.group_bits;
        let group = u32::try_from(block >> bits).ok()?;
        self.place_in_group(group, (block & ((1 << bits) - 1)) as u32, count)
    }

    /// The offset of a group's sector on the disk. The group must exist.
    pub(super) fn sector(&self, group: u32, sector: u64) -> u64 {
        let first = u64::from(group) * u64::from(self.superblock.group_blocks) * self.block_size();
        self.extent.offset + first + sector * u64::from(self.superblock.sector_size)
    }

    /// Names a place on the disk for messages: the offset in the filesystem.
    pub(super) fn at(&self, offset: u64) -> String {
        format!("at offset {} of the filesystem", offset.saturating_sub(self.extent.offset))
    }

    /// Fills `buffer` from `offset` of the disk, which must be in the filesystem.
    ///
    /// # Errors
    /// Errors of reading the disk.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.disk
            .read_exact_at(buffer, offset)
            .context(|| format!("reading filesystem metadata at offset {offset}"))
    }
}

/// Whether the little-endian CRC-32C at `place` is that of all other bytes, with zeros in its place.
pub(super) fn is_checksum_correct(bytes: &[u8], place: usize) -> bool {
    let Some((before, rest)) = bytes.split_at_checked(place) else { return false };
    let after = rest.get(4..).unwrap_or_default();
    !crc32c(!0, &[before, &[0; 4], after]) == le32(bytes, place)
}
