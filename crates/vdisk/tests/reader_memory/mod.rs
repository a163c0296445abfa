//! In-memory sources that tests can damage, make fail and block, and disks built from them.

#![allow(dead_code, reason = "each test uses a part")]

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, PageSource, RecipeBuilder};
use platter_image::{
    BlockId, BlockPlace, Domain, Error, Extent, FrameAddress, FrameIndex, FrameSource, Kind, Lease, Result,
    Score,
};
use platter_vdisk::{BlockCache, BlockDevice, CacheOptions, RecipeDisk};

pub(crate) const SECTOR: u64 = 512;

/// Frames and pages in memory.
#[derive(Default)]
pub(crate) struct MemorySource {
    pub(crate) frames: Mutex<Vec<Vec<u8>>>,
    pub(crate) index: Mutex<HashMap<BlockId, BlockPlace>>,
    pub(crate) pages: Mutex<HashMap<BlockId, Vec<u8>>>,
    /// How often each frame was read.
    pub(crate) reads: Mutex<HashMap<u64, u64>>,
    /// How many more reads of frames and pages fail.
    pub(crate) failures: AtomicU64,
    /// Reads of this frame block.
    pub(crate) held: Mutex<Option<u64>>,
    pub(crate) released: Condvar,
    /// Threads blocked on it.
    pub(crate) stuck: AtomicU64,
    /// The hint length (above 0 for a far source), and the announced blocks.
    pub(crate) hint_length: AtomicU64,
    pub(crate) hinted: Mutex<HashSet<BlockId>>,
    /// Pages and blocks that are far although the hint length is 0.
    pub(crate) far: Mutex<HashSet<BlockId>>,
    /// If frames are stored in reading order: how many of the next frames `read_on` returns.
    pub(crate) in_order: Mutex<Option<usize>>,
}

impl MemorySource {
    fn fail(&self) -> Result<()> {
        let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map_or(Ok(()), |_| Err(Error::io("reading", io::ErrorKind::TimedOut.into())))
    }

    pub(crate) fn push(&self, frame: &EncodedFrame) {
        let mut frames = self.frames.lock();
        let address =
            FrameAddress { pack: 0, length: frame.stored.len() as u32, offset: frames.len() as u64 };
        frames.push(frame.stored.clone());
        for (slot, block) in frame.blocks.iter().enumerate() {
            self.index.lock().insert(block.id, BlockPlace { frame: address, slot: slot as u32 });
        }
    }

    pub(crate) fn frame_reads(&self) -> u64 {
        self.reads.lock().values().sum()
    }

    pub(crate) fn hold(&self, frame: Option<u64>) {
        *self.held.lock() = frame;
        self.released.notify_all();
    }
}

impl FrameSource for MemorySource {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn read_on(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        let frames = (*self.in_order.lock())?;
        let ahead = address.offset + 1..=address.offset + frames as u64;
        let index = self.index.lock();
        let first_of = |frame| {
            let mut places = index.iter().filter(|(_, place)| place.slot == 0);
            places.find(|(_, place)| place.frame.offset == frame).map(|(id, _)| *id)
        };
        Some(ahead.filter_map(first_of).collect())
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.hinted.lock().extend(ids);
    }

    fn hint_length(&self) -> u64 {
        self.hint_length.load(Ordering::SeqCst)
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.hint_length.load(Ordering::SeqCst) == 0 && !self.far.lock().contains(id)
    }
}

impl FrameIndex for MemorySource {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.index.lock().get(id).copied())
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        *self.reads.lock().entry(address.offset).or_default() += 1;
        self.fail()?;
        let mut held = self.held.lock();
        if *held == Some(address.offset) {
            self.stuck.fetch_add(1, Ordering::SeqCst);
            self.released.wait_while(&mut held, |held| *held == Some(address.offset));
            drop(held);
        }
        stored.clear();
        stored.extend_from_slice(&self.frames.lock()[address.offset as usize]);
        Ok(())
    }
}

impl PageSource for MemorySource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.fail()?;
        self.pages.lock().get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
    }
}

/// The next piece of a disk; lengths in sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    Free(u64),
    Zero(u64),
    /// A part of the block with that seed and length: `take` sectors after the first `skip`.
    Data {
        seed: u64,
        sectors: u64,
        skip: u64,
        take: u64,
    },
}

impl Piece {
    /// A whole block.
    pub(crate) fn block(seed: u64, sectors: u64) -> Self {
        Self::Data { seed, sectors, skip: 0, take: sectors }
    }
}

/// The contents of the block with that seed; they compress to about a third.
pub(crate) fn contents(seed: u64, sectors: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sectors;
    let words = (0..sectors * SECTOR / 8).flat_map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40 | 1).to_le_bytes()
    });
    words.collect()
}

/// The id of that block.
pub(crate) fn block_id(seed: u64, sectors: u64) -> BlockId {
    BlockId::of(Kind::Data, &contents(seed, sectors))
}

/// A disk and the bytes it must read as.
pub(crate) struct Image {
    pub(crate) score: Score,
    pub(crate) model: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
}

impl MemorySource {
    /// Stores a disk; its new blocks go into frames in disk order.
    pub(crate) fn image(&self, pieces: &[Piece]) -> Image {
        let mut compressor = Compressor::new(1).unwrap();
        let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 128 << 10);
        let (mut model, mut entries): (Vec<u8>, Vec<Entry>) = Default::default();
        let mut seen = std::collections::HashSet::new();
        for piece in pieces {
            let offset = model.len() as u64;
            let (length, state) = match *piece {
                Piece::Free(sectors) => (sectors * SECTOR, State::Free),
                Piece::Zero(sectors) => (sectors * SECTOR, State::Zero),
                Piece::Data { seed, sectors, skip, take } => {
                    let bytes = contents(seed, sectors);
                    let block = BlockId::of(Kind::Data, &bytes);
                    if !self.index.lock().contains_key(&block) && seen.insert(block) {
                        if frame.is_full_for(bytes.len()) {
                            self.push(&frame.take().encode(&mut compressor).unwrap());
                        }
                        frame.push(block, &bytes);
                    }
                    let start = (skip * SECTOR) as usize;
                    model.extend_from_slice(&bytes[start..start + (take * SECTOR) as usize]);
                    (take * SECTOR, State::Data { block, offset: start as u32 })
                }
            };
            model.resize((offset + length) as usize, 0);
            if state != State::Free {
                entries.push(Entry { extent: Extent::new(offset, length), state });
            }
        }
        if !frame.is_empty() {
            self.push(&frame.encode(&mut compressor).unwrap());
        }
        Image { score: self.recipe(model.len() as u64, &entries), model, pieces: pieces.to_vec() }
    }

    /// Stores a recipe with these entries, valid or not.
    pub(crate) fn recipe(&self, length: u64, entries: &[Entry]) -> Score {
        let sink = |id, bytes: &[u8]| {
            self.pages.lock().insert(id, bytes.to_vec());
            Ok(())
        };
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let mut builder = RecipeBuilder::new(length, 512, policy, Domain::SHARED, sink);
        entries.iter().for_each(|entry| builder.push(*entry).unwrap());
        builder.finish().unwrap().0
    }
}

/// A disk of whole 64 KiB blocks, two in each frame.
pub(crate) fn plain(source: &MemorySource, first_seed: u64, blocks: u64) -> Image {
    let pieces: Vec<Piece> = (0..blocks).map(|i| Piece::block(first_seed + i, 128)).collect();
    source.image(&pieces)
}

pub(crate) fn options(block_bytes_max: u64, threads: usize) -> CacheOptions {
    CacheOptions { block_bytes_max, threads, ..CacheOptions::default() }
}

pub(crate) fn open(image: &Image, source: &Arc<MemorySource>, cache: &Arc<BlockCache>) -> RecipeDisk {
    RecipeDisk::open(image.score, source.clone(), cache.clone()).unwrap()
}

/// Reads and compares.
pub(crate) fn check(disk: &RecipeDisk, image: &Image, offset: u64, length: usize) {
    let mut buffer = vec![0xa5; length];
    disk.read(&mut buffer, offset).unwrap();
    assert!(buffer == image.model[offset as usize..][..length], "{length} bytes at {offset} are wrong");
}

/// Waits up to 10 s for other threads to reach a state; `false` if they do not.
pub(crate) fn comes_to(mut reached: impl FnMut() -> bool) -> bool {
    for _ in 0..5_000 {
        if reached() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}
