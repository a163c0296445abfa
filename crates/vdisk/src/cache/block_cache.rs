//! The cache as its owner sees it: bounds, counters, and threads that end with it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use platter_image::{IoContext, Result};

use super::counters::CacheCounters;
use super::fetch::Shared;

/// Part of the cache that one sequential reader may fill ahead of itself: many readers then do not push out what the
/// others have not read yet.
const AHEAD_PART: u64 = 64;

/// How large a cache is, and how it works.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Most bytes of blocks, with what keeping them costs.
    pub block_bytes_max: u64,
    /// Most bytes of recipe pages, with what keeping them costs.
    pub page_bytes_max: u64,
    /// Most bytes of the disk that are read ahead of one sequential reader; less when the cache is small.
    pub ahead_bytes_max: u64,
    /// Threads that read ahead and help with large reads; none of that without them.
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

/// The blocks and pages that all virtual disks of a process share. Its threads have ended when it is dropped, which is
/// when its owner and all disks are gone.
pub struct BlockCache {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl BlockCache {
    /// An empty cache.
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

    /// What it did, and what it holds.
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
            // A thread that failed has nothing that anybody waits for.
            let _ = thread.join();
        }
    }
}
