//! A filesystem on a disk: reads tree blocks by their address, and checks their headers.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::chunks::{CHUNK_ITEM, Chunks};
use super::node::Node;
use super::superblock::{LENGTH, PLACES, Superblock};
use super::walk::Walker;
use crate::reader::check_fits;

/// A btrfs filesystem that begins at the start of `extent` and fits into it.
pub(super) struct Volume<'d> {
    disk: &'d dyn DiskRead,
    pub(super) extent: Extent,
    pub(super) superblock: Superblock,
}

impl<'d> Volume<'d> {
    /// # Errors
    /// `Corrupt` if there is no trustworthy superblock; errors of reading the disk.
    pub(super) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut bytes = [0; LENGTH];
        if extent.length < PLACES[0] + LENGTH as u64 {
            return Err(Error::corrupt("there is no superblock"));
        }
        let at = extent.offset + PLACES[0];
        disk.read_exact_at(&mut bytes, at).context(|| format!("reading the superblock at offset {at}"))?;
        let superblock = Superblock::parse(&bytes)?;
        check_fits(superblock.length, extent)?;
        Ok(Self { disk, extent, superblock })
    }

    /// Reads the tree of chunks.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be trusted; errors of reading the disk.
    pub(super) fn chunks(&self) -> Result<Chunks> {
        let superblock = &self.superblock;
        let (device, length) = (superblock.device, superblock.length);
        let first = Chunks::of_superblock(&superblock.system_chunks, device, length)?;
        let mut chunks = Chunks::default();
        Walker::new(self, &first).walk("chunk", superblock.chunk_tree, &mut |key, item| {
            if key.kind == CHUNK_ITEM { chunks.add(key.offset, item, device, length) } else { Ok(()) }
        })?;
        chunks.finish()
    }

    /// Reads bytes at an offset in the filesystem.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.extent.offset + offset;
        self.disk
            .read_exact_at(bytes, at)
            .context(|| format!("reading contents of the filesystem at offset {at}"))
    }

    /// Reads the tree block at an address, from the first of its copies that is intact.
    ///
    /// # Errors
    /// `Corrupt` if there is none; errors of reading the disk.
    pub(super) fn node(&self, chunks: &Chunks, address: u64) -> Result<Node> {
        let length = u64::from(self.superblock.node_size);
        let chunk = chunks
            .find(address, length)
            .filter(|_| address.is_multiple_of(u64::from(self.superblock.sector_size)));
        let chunk = chunk
            .ok_or_else(|| Error::corrupt(format!("the tree block at address {address} is in no chunk")))?;
        let mut bytes = vec![0; length as usize];
        for copy in 0..chunk.places().len() {
            let at = self.extent.offset + Chunks::place(chunk, copy, address, length).offset;
            self.disk
                .read_exact_at(&mut bytes, at)
                .context(|| format!("reading a tree block of the filesystem at offset {at}"))?;
            let is_own = bytes[32..48] == self.superblock.metadata_uuid;
            if is_own && self.superblock.checksum.is_correct(&bytes) {
                return Ok(Node { bytes });
            }
        }
        Err(Error::corrupt(format!("the tree block at address {address} has a wrong checksum or UUID")))
    }
}
