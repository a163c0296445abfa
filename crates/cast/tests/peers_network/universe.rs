//! The blocks to boot from: images in families, boot sets that overlap within a family, frames of four blocks.
//!
//! Owns the true bytes. As in Squirrel: 50 images, boot sets of 1,000 to 4,000 blocks, 60 to 90 % of them shared by the family.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use platter_cast::peer::groups;
use platter_image::{BlockId, Kind};

use super::Random;

/// Number of blocks in a frame.
pub const FRAME_BLOCKS: usize = 4;
/// Each byte of a simulated frame stands for this many on a link: 44 KB per frame, as in reality.
pub const FRAME_SCALE: u64 = 64;
const BLOCK_BYTES: usize = 138;
/// Number of images in a family.
const FAMILY_IMAGES: usize = 5;

/// All frames and images.
pub struct Universe {
    /// The stored bytes of each frame.
    pub frames: Vec<Arc<[u8]>>,
    /// Ids of all blocks, frame after frame.
    pub ids: Vec<BlockId>,
    /// The group of each block.
    pub groups: Vec<u64>,
    /// For each image, the frames that its boot reads, in order.
    pub images: Vec<Vec<u32>>,
    by_id: HashMap<BlockId, u32>,
}

impl Universe {
    /// Makes images as in Squirrel.
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

    /// Makes one disk that is read completely.
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

    /// Returns the frame that has a block.
    pub fn frame_of(&self, id: &BlockId) -> Option<u32> {
        self.by_id.get(id).map(|block| block / FRAME_BLOCKS as u32)
    }

    /// Returns the blocks of a frame.
    pub fn ids_of(&self, frame: u32) -> &[BlockId] {
        let first = frame as usize * FRAME_BLOCKS;
        &self.ids[first..first + FRAME_BLOCKS]
    }

    pub fn group_of(&self, frame: u32) -> u64 {
        self.groups[frame as usize * FRAME_BLOCKS]
    }
}

/// Mixes runs of the family's frames with runs of the image's own.
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

/// Makes a frame: its blocks, each with its id before it.
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

/// Returns the ids of a frame's blocks after hashing each; `None` if an id is wrong.
pub fn decode(frame: &[u8]) -> Option<Vec<BlockId>> {
    let blocks = frame.chunks(BlockId::LEN + BLOCK_BYTES).map(|block| {
        let (id, contents) = block.split_first_chunk()?;
        (BlockId::of(Kind::Data, contents) == BlockId(*id)).then_some(BlockId(*id))
    });
    blocks.collect()
}
