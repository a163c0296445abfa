//! The extent tree: which addresses are allocated; and its agreement with block groups, chunks and the device tree.

use platter_image::{Error, Extent, Extents, Result};

use super::chunks::{Chunk, Chunks, DEVICE_EXTENT};
use super::node::Key;
use super::superblock::Root;
use super::volume::Volume;
use super::walk::Walker;
use crate::fields::le64;

const EXTENT_ITEM: u8 = 168;
const METADATA_ITEM: u8 = 169;
const BLOCK_GROUP_ITEM: u8 = 192;

const FLAG_DATA: u64 = 1;
const FLAG_TREE_BLOCK: u64 = 2;

/// A filesystem with more separate extents is not read: they would take more than 256 MiB of memory.
const EXTENTS_MAX: usize = 1 << 24;

/// The allocated addresses.
#[derive(Debug, Default)]
pub(super) struct Allocated {
    /// Contents of files.
    pub(super) data: Extents,
    /// Tree blocks.
    pub(super) metadata: Extents,
    /// The end of the last extent.
    end: u64,
    /// All block groups: address, length, used bytes, flags.
    groups: Vec<[u64; 4]>,
}

impl Allocated {
    /// Reads the extent tree, and the tree of block groups if there is one.
    ///
    /// # Errors
    /// `Corrupt` if they cannot be trusted; errors of reading the disk.
    pub(super) fn read(
        volume: &Volume<'_>,
        chunks: &Chunks,
        walker: &mut Walker<'_, '_>,
        extent_tree: Root,
        group_tree: Option<Root>,
    ) -> Result<Self> {
        let mut allocated = Self::default();
        let node_size = u64::from(volume.superblock.node_size);
        let sector_size = u64::from(volume.superblock.sector_size);
        walker.walk("extent", extent_tree, &mut |key, item| match key.kind {
            EXTENT_ITEM => allocated.add(key.object, key.offset, le64(item, 16), sector_size),
            METADATA_ITEM => allocated.add(key.object, node_size, le64(item, 16), sector_size),
            BLOCK_GROUP_ITEM if group_tree.is_none() => allocated.add_group(key, item),
            _ => Ok(()),
        })?;
        if let Some(root) = group_tree {
            walker.walk("block group", root, &mut |key, item| match key.kind {
                BLOCK_GROUP_ITEM => allocated.add_group(key, item),
                _ => Ok(()),
            })?;
        }
        allocated.check_groups(volume, chunks)?;
        Ok(allocated)
    }

    fn add(&mut self, address: u64, length: u64, flags: u64, sector_size: u64) -> Result<()> {
        let end = address.checked_add(length).filter(|_| length > 0 && address >= self.end);
        let is_aligned = (address | length).is_multiple_of(sector_size);
        let Some(end) = end.filter(|_| is_aligned) else {
            return Err(Error::corrupt(format!(
                "the extent of {length} bytes at address {address} overlaps another or is not aligned"
            )));
        };
        self.end = end;
        if self.data.as_slice().len() + self.metadata.as_slice().len() >= EXTENTS_MAX {
            return Err(Error::corrupt(format!("it has more than {EXTENTS_MAX} extents, too many to check")));
        }
        match flags & (FLAG_DATA | FLAG_TREE_BLOCK) {
            FLAG_DATA => self.data.push(Extent::new(address, length)),
            FLAG_TREE_BLOCK => self.metadata.push(Extent::new(address, length)),
            _ => {
                return Err(Error::corrupt(format!(
                    "the extent at address {address} has the unknown flags {flags:#x}"
                )));
            }
        }
        Ok(())
    }

    fn add_group(&mut self, key: Key, item: &[u8]) -> Result<()> {
        if self.groups.len() >= EXTENTS_MAX {
            return Err(Error::corrupt(format!("it has more than {EXTENTS_MAX} block groups")));
        }
        self.groups.push([key.object, key.offset, le64(item, 0), le64(item, 16)]);
        Ok(())
    }

    /// Checks that there is a block group for each chunk, and that the extents of each add up to what it says is used.
    fn check_groups(&self, volume: &Volume<'_>, chunks: &Chunks) -> Result<()> {
        let same = |(group, chunk): (&[u64; 4], &Chunk)| {
            group[..2] == [chunk.address, chunk.length] && group[3] == chunk.flags
        };
        let count = chunks.as_slice().len();
        if self.groups.len() != count || !self.groups.iter().zip(chunks.as_slice()).all(same) {
            return Err(Error::corrupt(format!(
                "its {} block groups do not match its {} chunks",
                self.groups.len(),
                count
            )));
        }
        let mut total: u64 = 0;
        for group in &self.groups {
            let range = Extent::new(group[0], group[1]);
            let bytes = |extents: &Extents| extents.clip(range).map(|extent| extent.length).sum::<u64>();
            let used = bytes(&self.data) + bytes(&self.metadata);
            if used != group[2] {
                return Err(Error::corrupt(format!(
                    "the extents of the block group at address {} have {used} bytes, but it says that {} are used",
                    group[0], group[2]
                )));
            }
            total = total.saturating_add(used);
        }
        let listed = self.data.total().saturating_add(self.metadata.total());
        if total != volume.superblock.bytes_used || total != listed {
            return Err(Error::corrupt(format!(
                "its block groups have {total} bytes in use and its extents {listed}, but its superblock says {}",
                volume.superblock.bytes_used
            )));
        }
        Ok(())
    }
}

/// Checks that the extents of the device, in the device tree, are those of the chunks.
///
/// # Errors
/// `Corrupt` if they differ; errors of reading the disk.
pub(super) fn check_device(
    chunks: &Chunks,
    walker: &mut Walker<'_, '_>,
    device_tree: Root,
    device: u64,
) -> Result<()> {
    let mut of_chunks = chunks.device_extents();
    of_chunks.sort_unstable();
    let mut next = of_chunks.iter();
    let mut differs = false;
    walker.walk("device", device_tree, &mut |key, item| {
        if key.kind == DEVICE_EXTENT {
            let extent = Extent::new(key.offset, le64(item, 24));
            differs |= key.object != device || next.next() != Some(&extent);
        }
        Ok(())
    })?;
    match differs || next.next().is_some() {
        true => Err(Error::corrupt("the extents in its device tree are not those of its chunks")),
        false => Ok(()),
    }
}

/// Whether all of an extent is in the set.
pub(super) fn covers(set: &Extents, address: u64, length: u64) -> bool {
    let set = set.as_slice();
    let after = set.partition_point(|extent| extent.offset <= address);
    let extent = after.checked_sub(1).and_then(|index| set.get(index));
    extent.is_some_and(|extent| address.checked_add(length).is_some_and(|end| end <= extent.end()))
}
