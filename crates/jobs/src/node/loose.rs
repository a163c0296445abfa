//! Frames that the cache did not take, in memory until they are read: a few, the oldest go first. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, BlockPlace, FrameAddress};

/// Most bytes of frames.
const BYTES_MAX: usize = 16 << 20;
/// Frames remembered by their first block after they went.
const GONE_MAX: usize = 4096;

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
    gone: VecDeque<(u64, BlockId)>,
}

impl Loose {
    /// The pack in their addresses: no segment has that number.
    pub(super) const PACK: u32 = u32::MAX;

    pub(super) fn insert(&mut self, stored: Arc<[u8]>, header: &FrameHeader) {
        self.bytes += stored.len();
        let ids = header.blocks.iter().map(|block| block.id).collect();
        self.frames.push_back(Held { number: self.next, stored, ids });
        self.next += 1;
        while self.bytes > BYTES_MAX
            && let Some(held) = self.frames.pop_front()
        {
            self.bytes -= held.stored.len();
            self.gone.extend(held.ids.first().map(|id| (held.number, *id)));
            if self.gone.len() > GONE_MAX {
                self.gone.pop_front();
            }
        }
    }

    pub(super) fn find(&self, id: &BlockId) -> Option<BlockPlace> {
        // The last ones are asked for the most.
        self.frames.iter().rev().find_map(|held| {
            let slot = held.ids.iter().position(|other| other == id)? as u32;
            let length = held.stored.len() as u32;
            Some(BlockPlace { frame: FrameAddress { pack: Self::PACK, offset: held.number, length }, slot })
        })
    }

    pub(super) fn read(&self, address: FrameAddress) -> Option<Arc<[u8]>> {
        let held = self.frames.iter().find(|held| held.number == address.offset)?;
        Some(held.stored.clone())
    }

    /// The first block of a frame that went not long ago.
    pub(super) fn gone(&self, address: FrameAddress) -> Option<BlockId> {
        self.gone.iter().find(|(number, _)| *number == address.offset).map(|(_, id)| *id)
    }
}
