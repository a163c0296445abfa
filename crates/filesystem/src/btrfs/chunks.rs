//! Chunks: which logical addresses are where on the device.

use platter_image::{Error, Extent, Extents, Result};

use super::node::Key;
use crate::fields::{le16, le64};
use crate::reader::unsupported;

/// The key types of chunks, and of the extents of a device.
pub(super) const CHUNK_ITEM: u8 = 228;
pub(super) const DEVICE_EXTENT: u8 = 204;

const CHUNK_LENGTH: usize = 48;
const STRIPE_LENGTH: usize = 32;
/// Data, system, metadata.
const KINDS: u64 = 1 | 2 | 4;
/// Twice on the same device.
const DUP: u64 = 32;
/// More chunks are not read: a chunk usually has 256 MiB or more.
const CHUNKS_MAX: usize = 1 << 20;

/// A range of logical addresses, and where it is in the filesystem: in one place, or in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) flags: u64,
    places: [u64; 2],
    copies: u8,
}

impl Chunk {
    /// The offsets of its copies in the filesystem.
    pub(super) fn places(&self) -> &[u64] {
        &self.places[..usize::from(self.copies)]
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.length)
    }

    /// Decodes a chunk; returns its length in bytes, too.
    ///
    /// # Errors
    /// `Corrupt` if it is impossible or on another device; [`unsupported`] if it has a profile that is not read.
    fn parse(address: u64, bytes: &[u8], device: u64, device_length: u64) -> Result<(Self, usize)> {
        let wrong = |what: String| Error::corrupt(format!("the chunk at address {address} {what}"));
        let (length, flags) = (le64(bytes, 0), le64(bytes, 24));
        let copies = le16(bytes, 44);
        let profile = flags & !KINDS;
        if !matches!((profile, copies), (0, 1) | (DUP, 2)) {
            let what = format!("has profile {profile:#x} with {copies} stripes, which is not read");
            return Err(unsupported(format!("the chunk at address {address} {what}")));
        }
        let stored = CHUNK_LENGTH + usize::from(copies) * STRIPE_LENGTH;
        if bytes.len() < stored {
            return Err(wrong("is cut off".to_owned()));
        }
        let mut chunk = Self { address, length, flags, places: [0; 2], copies: copies as u8 };
        let stripes = bytes[CHUNK_LENGTH..stored].chunks_exact(STRIPE_LENGTH);
        for (place, stripe) in chunk.places.iter_mut().zip(stripes) {
            if le64(stripe, 0) != device {
                return Err(wrong(format!("is on device {}, not {device}", le64(stripe, 0))));
            }
            *place = le64(stripe, 8);
            let is_inside = place.checked_add(length).is_some_and(|end| end <= device_length);
            if !is_inside || length == 0 || !(*place | length | address).is_multiple_of(4096) {
                return Err(wrong(format!("has {length} bytes at offset {place} of {device_length}")));
            }
        }
        if address.checked_add(length).is_none() {
            return Err(wrong("ends past the last address".to_owned()));
        }
        Ok((chunk, stored))
    }
}

/// All chunks, ascending by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    list: Vec<Chunk>,
}

impl Chunks {
    /// The chunks in the superblock.
    ///
    /// # Errors
    /// `Corrupt` if one is impossible, or they overlap.
    pub(super) fn of_superblock(mut stored: &[u8], device: u64, length: u64) -> Result<Self> {
        let mut list = Vec::new();
        while !stored.is_empty() {
            let key = Key::parse(stored);
            let rest = stored.get(Key::LENGTH..).unwrap_or_default();
            if key.kind != CHUNK_ITEM {
                return Err(Error::corrupt("the system chunks in the superblock cannot be read"));
            }
            let (chunk, used) = Chunk::parse(key.offset, rest, device, length)?;
            list.push(chunk);
            stored = &rest[used..];
        }
        Self::checked(list)
    }

    /// Adds the chunk of an item of the chunk tree.
    ///
    /// # Errors
    /// `Corrupt` if it is impossible, or there are too many.
    pub(super) fn add(&mut self, address: u64, bytes: &[u8], device: u64, length: u64) -> Result<()> {
        if self.list.len() >= CHUNKS_MAX {
            return Err(Error::corrupt(format!("it has more than {CHUNKS_MAX} chunks")));
        }
        self.list.push(Chunk::parse(address, bytes, device, length)?.0);
        Ok(())
    }

    /// Checks that chunks overlap neither by address nor on the device, once all were added.
    ///
    /// # Errors
    /// `Corrupt` if they do.
    pub(super) fn finish(self) -> Result<Self> {
        let checked = Self::checked(self.list)?;
        let mut places = checked.device_extents();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|pair| pair[0].end() > pair[1].offset) {
            return Err(Error::corrupt(format!(
                "two chunks overlap on the device at offset {}",
                pair[1].offset
            )));
        }
        Ok(checked)
    }

    fn checked(mut list: Vec<Chunk>) -> Result<Self> {
        list.sort_unstable_by_key(|chunk| chunk.address);
        match list.windows(2).find(|pair| pair[0].end() > pair[1].address) {
            Some(pair) => Err(Error::corrupt(format!("two chunks overlap at address {}", pair[1].address))),
            None => Ok(Self { list }),
        }
    }

    /// All chunks.
    pub(super) fn as_slice(&self) -> &[Chunk] {
        &self.list
    }

    /// The places of all chunks in the filesystem.
    pub(super) fn device_extents(&self) -> Vec<Extent> {
        let extents = |chunk: &Chunk| {
            chunk.places().iter().map(|place| Extent::new(*place, chunk.length)).collect::<Vec<_>>()
        };
        self.list.iter().flat_map(extents).collect()
    }

    /// The chunk that contains all of these addresses.
    pub(super) fn find(&self, address: u64, length: u64) -> Option<&Chunk> {
        let after = self.list.partition_point(|chunk| chunk.address <= address);
        let chunk = self.list.get(after.checked_sub(1)?)?;
        address.checked_add(length).is_some_and(|end| end <= chunk.end()).then_some(chunk)
    }

    /// Where these addresses are in the filesystem, in one copy of their chunk.
    pub(super) fn place(chunk: &Chunk, copy: usize, address: u64, length: u64) -> Extent {
        Extent::new(chunk.places[copy] + (address - chunk.address), length)
    }

    /// Where all of these extents of addresses are in the filesystem. Each extent may span chunks.
    pub(super) fn places(&self, addresses: &Extents) -> Extents {
        let mut places = Vec::new();
        for chunk in &self.list {
            for extent in addresses.clip(Extent::new(chunk.address, chunk.length)) {
                let copies = 0..usize::from(chunk.copies);
                places.extend(copies.map(|copy| Self::place(chunk, copy, extent.offset, extent.length)));
            }
        }
        Extents::from_unsorted(places)
    }
}
