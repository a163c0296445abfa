//! What there is to boot: images in families, boot sets that overlap within one, frames of four blocks.
//!
//! Owns the true bytes. After Squirrel: 50 images, boot sets of 1,000 to 4,000 blocks, 60 to 90 % of them the family's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use platter_cast::peer::groups;
use platter_image::{BlockId, Kind};

use super::Random;

/// Blocks of a frame.
pub const FRAME_BLOCKS: usize = 4;
/// A byte of a simulated frame stands for so many on a link: 44 KB a frame, as real ones have.
pub const FRAME_SCALE: u64 = 64;
const BLOCK_BYTES: usize = 138;
/// Images of a family.
const FAMILY_IMAGES: usize = 5;

/// All frames and images.
pub struct Universe {
    /// The stored bytes of each frame.
    pub frames: Vec<Arc<[u8]>>,
    /// Ids of all blocks, frame after frame.
    pub ids: Vec<BlockId>,
    /// Of each block, its group.
    pub groups: Vec<u64>,
    /// Of each image, the frames that its boot reads, in that order.
    pub images: Vec<Vec<u32>>,
    by_id: HashMap<BlockId, u32>,
}

impl Universe {
    /// Images as Squirrel has them.
    pub fn of_images(seed: u64, images: usize) -> Self {
        let mut random = Random(seed);
        let (mut frames, mut lists) = (0_u32, Vec::new());
        let mut base: Range<u32> = 0..0;
        for image in 0..images {
            if image % FAMILY_IMAGES == 0 {
                base = frames..frames + 900;
                frames = base.end;
            }
            let size = 250 + random.below(750) as u32;
            let shared = size * (60 + random.below(31) as u32) / 100;
            let own = frames..frames + size - shared;
            frames = own.end;
            lists.push(interleaved(&mut random, base.start..base.start + shared, own));
        }
        Self::new(frames, lists)
    }

    /// One disk that is read whole.
    pub fn of_one_disk(frames: u32) -> Self {
        Self::new(frames, vec![(0..frames).collect()])
    }

    fn new(frames: u32, images: Vec<Vec<u32>>) -> Self {
        let frames: Vec<Arc<[u8]>> = (0..frames).map(frame).collect();
        let ids: Vec<BlockId> = frames.iter().flat_map(|frame| decode(frame).unwrap()).collect();
        let by_id = ids.iter().enumerate().map(|(block, id)| (*id, block as u32)).collect();
        let groups = groups(&ids);
        Self { frames, ids, groups, images, by_id }
    }

    /// The frame that a block stands in.
    pub fn frame_of(&self, id: &BlockId) -> Option<u32> {
        self.by_id.get(id).map(|block| block / FRAME_BLOCKS as u32)
    }

    /// The blocks of a frame.
    pub fn ids_of(&self, frame: u32) -> &[BlockId] {
        let first = frame as usize * FRAME_BLOCKS;
        &self.ids[first..first + FRAME_BLOCKS]
    }

    pub fn group_of(&self, frame: u32) -> u64 {
        self.groups[frame as usize * FRAME_BLOCKS]
    }
}

/// Runs of the family's frames and runs of the image's own, by turns.
fn interleaved(random: &mut Random, mut shared: Range<u32>, mut own: Range<u32>) -> Vec<u32> {
    let mut list = Vec::new();
    while !shared.is_empty() || !own.is_empty() {
        let left = (shared.len() + own.len()) as u64;
        let from = if random.below(left) < shared.len() as u64 { &mut shared } else { &mut own };
        let run = 1 + random.below(16) as usize;
        list.extend(from.by_ref().take(run));
    }
    list
}

/// Its blocks, each behind its id.
fn frame(number: u32) -> Arc<[u8]> {
    let mut random = Random(u64::from(number) * 2 + 1);
    let mut bytes = Vec::new();
    for _ in 0..FRAME_BLOCKS {
        let contents: Vec<u8> = (0..BLOCK_BYTES).map(|_| random.next() as u8).collect();
        bytes.extend_from_slice(&BlockId::of(Kind::Data, &contents).0);
        bytes.extend_from_slice(&contents);
    }
    bytes.into()
}

/// The ids of a frame's blocks, each hashed; nothing when it is not what it says.
pub fn decode(frame: &[u8]) -> Option<Vec<BlockId>> {
    let blocks = frame.chunks(BlockId::LEN + BLOCK_BYTES).map(|block| {
        let (id, contents) = block.split_first_chunk()?;
        (BlockId::of(Kind::Data, contents) == BlockId(*id)).then_some(BlockId(*id))
    });
    blocks.collect()
}
