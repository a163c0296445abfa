//! Blocks that the disks of this machine hold, other than at their own places.
//!
//! A place is only a hint: its bytes are hashed whenever they are used.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::{BlockId, DiskRead, Domain, Extent, Kind};

use super::delta::{Delta, MEMORY_MAX};

/// Where a block is.
#[derive(Debug)]
enum Source {
    Memory(Box<[u8]>),
    /// On the target, or on another disk.
    Disk {
        disk: Option<u32>,
        place: Extent,
    },
}

/// Found blocks.
#[derive(Default)]
pub(super) struct LocalBlocks {
    /// The domain of the ids.
    pub(super) domain: Domain,
    sources: HashMap<BlockId, Source>,
    /// Bytes in memory.
    length: usize,
    /// Disks other than the target.
    others: Vec<Box<dyn DiskRead>>,
    copied: AtomicU64,
}

impl LocalBlocks {
    pub(super) fn has(&self, id: &BlockId) -> bool {
        self.sources.contains_key(id)
    }

    pub(super) fn in_order(&self) -> Vec<BlockId> {
        let place = |source: &Source| match source {
            Source::Memory(_) => (None, 0),
            Source::Disk { disk, place } => (*disk, place.offset),
        };
        let mut sources: Vec<_> = self.sources.iter().map(|(id, source)| (place(source), *id)).collect();
        sources.sort_unstable();
        sources.into_iter().map(|(_, id)| id).collect()
    }

    /// Bytes of blocks that were read from here.
    pub(super) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Keeps a block in memory, if there is room.
    pub(super) fn keep(&mut self, id: BlockId, bytes: &[u8]) -> bool {
        if bytes.is_empty() || self.length + bytes.len() > MEMORY_MAX {
            return false;
        }
        self.length += bytes.len();
        if let Some(Source::Memory(old)) = self.sources.insert(id, Source::Memory(bytes.into())) {
            self.length -= old.len();
        }
        true
    }

    /// Remembers a place of a block on the target, or on another disk.
    pub(super) fn add_place(&mut self, id: BlockId, disk: Option<u32>, place: Extent) {
        self.sources.entry(id).or_insert(Source::Disk { disk, place });
    }

    /// The number of the next disk that is added.
    pub(super) fn next_disk(&self) -> u32 {
        self.others.len() as u32
    }

    pub(super) fn add_disk(&mut self, disk: Box<dyn DiskRead>) {
        self.others.push(disk);
    }

    /// Gives `use_bytes` the verified bytes of a block, if they are here.
    fn with<R>(
        &self,
        id: &BlockId,
        target: &dyn DiskRead,
        use_bytes: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Option<R> {
        match self.sources.get(id)? {
            Source::Memory(bytes) => use_bytes(bytes),
            Source::Disk { disk, place } => {
                let disk = match disk {
                    None => target,
                    Some(at) => &**self.others.get(*at as usize)?,
                };
                let mut bytes = vec![0; usize::try_from(place.length).ok()?];
                disk.read_exact_at(&mut bytes, place.offset).ok()?;
                let named = self.domain.id_of(Kind::Data, &bytes);
                named.is_ok_and(|found| found == *id).then(|| use_bytes(&bytes)).flatten()
            }
        }
    }
}

impl fmt::Debug for LocalBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalBlocks({} blocks, {} bytes in memory)", self.sources.len(), self.length)
    }
}

/// A delta, and the target on which it was found.
#[derive(Clone, Copy)]
pub struct Local<'a> {
    delta: &'a Delta,
    target: &'a dyn DiskRead,
}

impl fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.delta.fmt(f)
    }
}

impl<'a> Local<'a> {
    /// A delta of this target.
    pub fn new(delta: &'a Delta, target: &'a dyn DiskRead) -> Self {
        Self { delta, target }
    }

    /// Bytes that are already in their places.
    pub fn held_length(&self) -> u64 {
        self.delta.held.total()
    }

    /// Whether all of an extent is held.
    pub fn holds(&self, extent: Extent) -> bool {
        self.delta.held.clip(extent).next() == Some(extent)
    }

    /// The blocks that were found elsewhere, in the order in which they are best copied.
    pub fn found(&self) -> Vec<BlockId> {
        self.delta.blocks.in_order()
    }

    /// The parts of an extent that are not held.
    pub(super) fn rest_of(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let held: Vec<Extent> = self.delta.held.clip(extent).collect();
        let starts = std::iter::once(extent.offset).chain(held.clone().into_iter().map(|held| held.end()));
        let ends = held.into_iter().map(|held| held.offset).chain(std::iter::once(extent.end()));
        starts.zip(ends).map(|(start, end)| Extent::between(start, end)).filter(|part| part.length > 0)
    }

    /// Whether a block was found here.
    pub(super) fn has(&self, id: &BlockId) -> bool {
        self.delta.blocks.has(id)
    }

    /// Fills `bytes` with the block's bytes from `offset`; `false` if that is not possible, and then the contents of
    /// `bytes` are unspecified.
    pub(super) fn read(&self, id: &BlockId, offset: usize, bytes: &mut [u8]) -> bool {
        let copy = |block: &[u8]| {
            bytes.copy_from_slice(block.get(offset..offset.checked_add(bytes.len())?)?);
            Some(bytes.len())
        };
        let copied = self.delta.blocks.with(id, self.target, copy);
        self.delta.blocks.copied.fetch_add(copied.unwrap_or(0) as u64, Ordering::Relaxed);
        copied.is_some()
    }

    /// Gives `write` the verified bytes of a block that was found.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn copy<E>(&self, id: &BlockId, write: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let written = self.delta.blocks.with(id, self.target, |bytes| Some((bytes.len(), write(bytes))));
        let Some((length, written)) = written else { return Ok(()) };
        self.delta.blocks.copied.fetch_add(length as u64, Ordering::Relaxed);
        written
    }
}
