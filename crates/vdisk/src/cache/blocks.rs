//! Verified blocks in memory, by their names.
//!
//! Owns the bound on them. Eviction is the library's, a relative of S3-FIFO: new blocks are on probation, and stay when
//! they are read again, so a disk that is read once from end to end does not push out what others need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_image::{BlockId, Error, Result};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use super::counters::Count;
use super::flight::FrameKey;

/// Bytes that a block takes beside its contents: key, counts, allocations, its place in the table.
const OVERHEAD: u64 = 192;
/// A block's usual length in bytes: how many the tables are made for.
const USUAL_LENGTH: u64 = 32 << 10;
/// The cache has a lock for each so many bytes: smaller parts would be too small for what is on probation in them.
const SHARD_LENGTH: u64 = 16 << 20;
/// Most of these locks.
const SHARDS_MAX: u64 = 64;
/// Part of the room for blocks that were read again; the rest is for what is new and for what was read ahead.
const HOT_PART: f64 = 0.8;

/// A verified block.
pub(crate) struct Block {
    contents: Box<[u8]>,
    ahead: Option<Arc<Ahead>>,
}

/// A frame that was read ahead.
pub(super) struct Ahead {
    frame: FrameKey,
    /// Somebody has used a block of it.
    is_used: AtomicBool,
}

impl Ahead {
    pub(super) fn new(frame: FrameKey) -> Self {
        Self { frame, is_used: AtomicBool::new(false) }
    }
}

/// How a block is read: it decides whether being read makes the block stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Here and there: a block that is read again is likely to be read once more.
    Random,
    /// In the order of the disk: the many small reads of one block are one use.
    Sequential,
}

impl Block {
    pub(super) fn new(contents: &[u8], ahead: Option<Arc<Ahead>>) -> Self {
        Self { contents: contents.into(), ahead }
    }

    /// Its bytes.
    pub(crate) fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// The frame, if it was read ahead and this is the first use of it.
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
    /// What was evicted is freed after the lock was released.
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
    /// Room for that many bytes, overhead included.
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

    /// The block for a reader, if it is here.
    pub(super) fn find(&self, id: &BlockId, pattern: Pattern) -> Option<Arc<Block>> {
        match pattern {
            Pattern::Random => self.cache.get(id),
            Pattern::Sequential => self.cache.peek(id),
        }
    }

    /// Whether the block is here. Asking is no use of it.
    pub(super) fn contains(&self, id: &BlockId) -> bool {
        self.cache.contains_key(id)
    }

    /// Keeps a verified block, as long as there is room.
    pub(super) fn insert(&self, id: BlockId, block: Arc<Block>) {
        self.cache.insert(id, block);
    }

    /// Bytes that blocks take.
    pub(super) fn bytes_held(&self) -> u64 {
        self.cache.weight()
    }

    /// Blocks dropped so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.0.get()
    }
}
