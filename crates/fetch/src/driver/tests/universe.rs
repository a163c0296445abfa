//! A disk of recognizable blocks, with its recipe, in frames.

use std::sync::Arc;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, Kind, Score};

const BLOCK: usize = 4096;
/// Blocks per frame.
const TOGETHER: usize = 8;
/// Distance between blocks, large enough for several pages.
const DISTANCE: u64 = 128 << 10;

pub(super) struct Universe {
    pub(super) score: Score,
    pub(super) ids: Vec<BlockId>,
    pub(super) frames: Vec<Arc<[u8]>>,
    pub(super) page_frames: Vec<Arc<[u8]>>,
    seed: u64,
}

impl Universe {
    pub(super) fn new(seed: u64, blocks: usize) -> Self {
        let mut universe = Self {
            score: Score(BlockId([0; 32])),
            ids: Vec::new(),
            frames: Vec::new(),
            page_frames: Vec::new(),
            seed,
        };
        let contents: Vec<Vec<u8>> = (0..blocks).map(|at| universe.contents(at)).collect();
        universe.ids = contents.iter().map(|bytes| BlockId::of(Kind::Data, bytes)).collect();
        let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let length = DISTANCE * blocks as u64;
        let mut recipe = RecipeBuilder::new(length, 512, policy, Domain::SHARED, pages);
        for (block, at) in universe.ids.iter().zip(0..) {
            let extent = Extent::new(at * DISTANCE, BLOCK as u64);
            recipe.push(Entry { extent, state: State::Data { block: *block, offset: 0 } }).unwrap();
        }
        let (score, pages) = recipe.finish().unwrap();
        universe.score = score;
        let blocks: Vec<(BlockId, &[u8])> =
            universe.ids.iter().copied().zip(contents.iter().map(Vec::as_slice)).collect();
        universe.frames = blocks.chunks(TOGETHER).map(|blocks| frame(Kind::Data, blocks)).collect();
        let pages: Vec<(BlockId, &[u8])> = pages.iter().map(|(id, page)| (*id, &page[..])).collect();
        universe.page_frames = pages.chunks(2).map(|pages| frame(Kind::Page, pages)).collect();
        universe
    }

    /// The contents of a block: incompressible, without trailing zeros.
    pub(super) fn contents(&self, at: usize) -> Vec<u8> {
        let word = |n: usize| mix(self.seed << 48 | (at as u64) << 16 | n as u64);
        (0..BLOCK / 8).flat_map(|n| word(n).to_le_bytes()).collect()
    }

    /// Bytes of all frames.
    pub(super) fn bytes(&self) -> u64 {
        self.frames.iter().chain(&self.page_frames).map(|stored| stored.len() as u64).sum()
    }
}

/// Makes a frame of these blocks, even if the ids are wrong.
pub(super) fn frame(kind: Kind, blocks: &[(BlockId, &[u8])]) -> Arc<[u8]> {
    let mut builder = FrameBuilder::new(kind, Domain::SHARED, 1 << 17);
    blocks.iter().for_each(|(id, contents)| builder.push(*id, contents));
    builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored.into()
}

fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
