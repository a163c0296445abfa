//! The lengths of blocks, as a check has read them in the headers of frames. The index does not keep them: about 1 byte a block
//! and 12 a frame, while the check runs.

use std::collections::HashMap;

use platter_image::frame::FrameHeader;
use platter_image::{Kind, SECTOR};

use crate::identity::PackId;

/// Lengths of blocks by their places.
#[derive(Debug, Default)]
pub(crate) struct BlockLengths(HashMap<PackId, PackLengths>);

#[derive(Debug, Default)]
struct PackLengths {
    /// Frames by their first byte, ascending, and where their blocks begin in `sectors`.
    frames: Vec<(u64, u32)>,
    sectors: Vec<u8>,
}

impl BlockLengths {
    /// Notes the blocks of a frame that lies behind those noted of its pack before.
    pub(crate) fn note(&mut self, pack: PackId, offset: u64, header: &FrameHeader) {
        let lengths = self.0.entry(pack).or_default();
        lengths.frames.push((offset, lengths.sectors.len() as u32));
        // What is no data has no length here: no recipe may take a piece of it.
        let sectors =
            |length: u32| if header.kind == Kind::Data { (u64::from(length) / SECTOR) as u8 } else { 0 };
        lengths.sectors.extend(header.blocks.iter().map(|block| sectors(block.length)));
    }

    /// The length of a block, 0 if it is no data; `None` if its frame was not noted.
    pub(crate) fn of(&self, pack: PackId, offset: u64, slot: u32) -> Option<u64> {
        let lengths = self.0.get(&pack)?;
        let found = lengths.frames.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        let first = lengths.frames[found].1 as usize;
        lengths.sectors.get(first + slot as usize).map(|sectors| u64::from(*sectors) * SECTOR)
    }
}
