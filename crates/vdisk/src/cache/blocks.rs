//! Verified blocks in memory, by their ids.
//!
//! It bounds their size. The library evicts by a relative of S3-FIFO: new blocks are on probation and are
//! kept when read again. So reading a disk once from end to end does not evict the blocks that other disks
//! reuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_image::{BlockId, Error, Result};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use super::counters::Count;
use super::flight::FrameKey;

/// Bytes that a block takes in addition to its contents: key, counters, allocations, table slot.
const OVERHEAD: u64 = 192;
/// The usual length of a block in bytes; it sets the initial size of the tables.
const USUAL_LENGTH: u64 = 32 << 10;
/// The cache has one shard with its own lock for this many bytes. Smaller shards would leave too little space
/// for blocks on probation.
const SHARD_LENGTH: u64 = 16 << 20;
/// The most shards.
const SHARDS_MAX: u64 = 64;
/// The share of the space for blocks that were read again; new and prefetched blocks get the rest.
const HOT_PART: f64 = 0.8;

/// A verified block.
pub(crate) struct Block {
    contents: Box<[u8]>,
    ahead: Option<Arc<Ahead>>,
}

/// A frame that was read ahead.
pub(super) struct Ahead {
    frame: FrameKey,
    /// One of its blocks has been read.
    is_used: AtomicBool,
}

impl Ahead {
    pub(super) fn new(frame: FrameKey) -> Self {
        Self { frame, is_used: AtomicBool::new(false) }
    }
}

/// How a block is read; decides whether the read counts as a reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Random: a block that is read again will probably be read once more.
    Random,
    /// Sequential: many small reads of one block count as a single use.
    Sequential,
}

impl Block {
    pub(super) fn new(contents: &[u8], ahead: Option<Arc<Ahead>>) -> Self {
        Self { contents: contents.into(), ahead }
    }

    /// The block's bytes.
    pub(crate) fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// The frame's key, if the frame was read ahead and this is the first use of any of its blocks.
    pub(super) fn first_use(&self) -> Option<FrameKey> {
        let ahead = self.ahead.as_ref()?;
        let is_first = !ahead.is_used.load(Ordering::Relaxed) && !ahead.is_used.swap(true, Ordering::Relaxed);
        is_first.then_some(ahead.frame)
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<BlockId, Arc<Block>> for Weight {
    fn weight(&self, _: &BlockId, block: &Arc<Block>) -> u64 {
        block.contents.len() as u64 + OVERHEAD
    }
}

#[derive(Clone, Default)]
struct Evictions(Arc<Count>);

impl Lifecycle<BlockId, Arc<Block>> for Evictions {
    /// Evicted blocks, collected so that they are freed after the lock is released.
    type RequestState = Vec<Arc<Block>>;

    fn on_evict(&self, evicted: &mut Self::RequestState, _: BlockId, block: Arc<Block>) {
        self.0.add(1);
        evicted.push(block);
    }
}

/// The blocks in memory.
pub(super) struct Blocks {
    cache: Cache<BlockId, Arc<Block>, Weight, DefaultHashBuilder, Evictions>,
    evictions: Evictions,
}

impl Blocks {
    /// A cache for `bytes_max` bytes, overhead included.
    pub(super) fn new(bytes_max: u64) -> Result<Self> {
        let options = OptionsBuilder::new()
            .weight_capacity(bytes_max)
            .estimated_items_capacity((bytes_max / USUAL_LENGTH) as usize)
            .shards((bytes_max / SHARD_LENGTH).clamp(1, SHARDS_MAX) as usize)
            .hot_allocation(HOT_PART)
            .build()
            .map_err(|error| Error::bug("options of the block cache").with_source(error))?;
        let evictions = Evictions::default();
        let cache = Cache::with_options(options, Weight, DefaultHashBuilder::default(), evictions.clone());
        Ok(Self { cache, evictions })
    }

    /// The block, if it is in memory. A random read counts as a use.
    pub(super) fn find(&self, id: &BlockId, pattern: Pattern) -> Option<Arc<Block>> {
        match pattern {
            Pattern::Random => self.cache.get(id),
            Pattern::Sequential => self.cache.peek(id),
        }
    }

    /// Whether the block is in memory. Does not count as a use.
    pub(super) fn contains(&self, id: &BlockId) -> bool {
        self.cache.contains_key(id)
    }

    /// Inserts a verified block; it may be evicted at any time.
    pub(super) fn insert(&self, id: BlockId, block: Arc<Block>) {
        self.cache.insert(id, block);
    }

    /// Bytes that the blocks take, overhead included.
    pub(super) fn bytes_held(&self) -> u64 {
        self.cache.weight()
    }

    /// Blocks evicted so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.0.get()
    }
}
