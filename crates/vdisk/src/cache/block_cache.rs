//! The cache as its owner sees it: options, counters, and worker threads that end with the cache.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use platter_image::{IoContext, Result};

use super::counters::CacheCounters;
use super::fetch::Shared;

/// One sequential reader may have 1/64 of the cache filled ahead of it, so that many readers do not evict
/// each other's blocks before they are read.
const AHEAD_PART: u64 = 64;

/// Size and behaviour of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// The most bytes used by blocks, overhead included.
    pub block_bytes_max: u64,
    /// The most bytes used by recipe pages, overhead included.
    pub page_bytes_max: u64,
    /// The most bytes read ahead of one sequential reader; a small cache reads ahead less.
    pub ahead_bytes_max: u64,
    /// Threads for read-ahead and for large reads; with 0 there is neither.
    pub threads: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            block_bytes_max: 256 << 20,
            page_bytes_max: 64 << 20,
            ahead_bytes_max: 4 << 20,
            threads: thread::available_parallelism().map_or(2, usize::from).min(4),
        }
    }
}

/// The blocks and pages shared by all virtual disks of a process. It is dropped with its last user, owner or
/// disk; dropping it waits for its threads to end.
pub struct BlockCache {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl BlockCache {
    /// Creates an empty cache and starts its threads.
    ///
    /// # Errors
    /// `Io` when a thread cannot be started.
    pub fn new(options: CacheOptions) -> Result<Arc<Self>> {
        let ahead_bytes_max = match options.threads {
            0 => 0,
            _ => options.ahead_bytes_max.min(options.block_bytes_max / AHEAD_PART),
        };
        let shared = Shared::new(options.block_bytes_max, options.page_bytes_max, ahead_bytes_max)?;
        let mut cache = Self { shared: Arc::new(shared), threads: Vec::new() };
        for number in 0..options.threads {
            let shared = cache.shared.clone();
            let thread = thread::Builder::new().name(format!("block-cache-{number}")).spawn(move || {
                while let Some(job) = shared.queue.pop() {
                    job(&shared);
                }
            });
            cache.threads.push(thread.context(|| "starting a thread of the block cache".to_owned())?);
        }
        Ok(Arc::new(cache))
    }

    /// What the cache did so far and what it holds.
    pub fn counters(&self) -> CacheCounters {
        self.shared.counters()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            // If a thread panicked, no one waits for its work.
            let _ = thread.join();
        }
    }
}
