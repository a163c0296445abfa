//! Frames in memory that the cache did not take: a few, the oldest go first. Who found one of them keeps it. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, BlockPlace, FoundBlock, FrameAddress};

/// Most bytes of frames.
const BYTES_MAX: usize = 16 << 20;
/// The pack in their addresses: no segment has that number.
const PACK: u32 = u32::MAX;

/// One of them.
struct Held {
    number: u64,
    stored: Arc<[u8]>,
    ids: Vec<BlockId>,
}

/// All of them. Their addresses have a pack of their own, and their number as offset.
#[derive(Default)]
pub(super) struct Loose {
    next: u64,
    bytes: usize,
    frames: VecDeque<Held>,
}

impl Loose {
    pub(super) fn insert(&mut self, stored: Arc<[u8]>, header: &FrameHeader) {
        self.bytes += stored.len();
        let ids = header.blocks.iter().map(|block| block.id).collect();
        self.frames.push_back(Held { number: self.next, stored, ids });
        self.next += 1;
        while self.bytes > BYTES_MAX
            && let Some(held) = self.frames.pop_front()
        {
            self.bytes -= held.stored.len();
        }
    }

    pub(super) fn find(&self, id: &BlockId) -> Option<FoundBlock> {
        // The last ones are asked for the most.
        self.frames.iter().rev().find_map(|held| {
            let slot = held.ids.iter().position(|other| other == id)? as u32;
            let frame = FrameAddress { pack: PACK, offset: held.number, length: held.stored.len() as u32 };
            Some(FoundBlock::in_memory(BlockPlace { frame, slot }, held.stored.clone()))
        })
    }
}
