//! The lengths of blocks, which a check reads from the headers of frames. The index does not have them. They take about 1 byte
//! per block and 12 per frame while the check runs.

use std::collections::HashMap;

use platter_image::frame::FrameHeader;
use platter_image::{Kind, SECTOR};

use platter_records::PackId;

/// Maps the places of blocks to their lengths.
#[derive(Debug, Default)]
pub(crate) struct BlockLengths(HashMap<PackId, PackLengths>);

#[derive(Debug, Default)]
struct PackLengths {
    /// For each frame, in ascending order: its offset, and the index of its first block in `sectors`.
    frames: Vec<(u64, u32)>,
    sectors: Vec<u8>,
}

impl BlockLengths {
    /// Adds the blocks of a frame. Frames of a pack must be added in ascending order of their offsets.
    pub(crate) fn note(&mut self, pack: PackId, offset: u64, header: &FrameHeader) {
        let lengths = self.0.entry(pack).or_default();
        lengths.frames.push((offset, lengths.sectors.len() as u32));
        // Other kinds of blocks get length 0: a recipe must not refer to them.
        let sectors =
            |length: u32| if header.kind == Kind::Data { (u64::from(length) / SECTOR) as u8 } else { 0 };
        lengths.sectors.extend(header.blocks.iter().map(|block| sectors(block.length)));
    }

    /// Returns the length of a block, or 0 if it is not a data block; `None` if its frame was not added.
    pub(crate) fn of(&self, pack: PackId, offset: u64, slot: u32) -> Option<u64> {
        let lengths = self.0.get(&pack)?;
        let found = lengths.frames.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        let first = lengths.frames[found].1 as usize;
        lengths.sectors.get(first + slot as usize).map(|sectors| u64::from(*sectors) * SECTOR)
    }
}
