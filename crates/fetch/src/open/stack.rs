//! Stacks the sources from which a recipe is read. The only place that does.
//!
//! ```text
//! memory ▸ hoard ▸ disk cache ▸ network (peers ∥ origin)       an origin, read by a node
//! memory ▸ network                                             an origin, read without a cache
//! memory ▸ hoard ▸ local store
//! ```
//!
//! The memory cache is shared by all recipes of a process, so it is not part of one recipe's stack: disks get it beside
//! their source.

use std::sync::Arc;

use platter_image::{Result, Score};
use platter_store::Hoard;
use platter_vdisk::{BlockCache, CacheOptions, Source};

use super::store::Opened;
use crate::driver::SourceOptions;
use crate::hoard_first::HoardFirst;

/// Returns the source of a recipe's frames and pages, below the memory cache.
pub(super) fn stack(
    store: &Opened,
    hoard: Option<&Arc<Hoard>>,
    score: Score,
    options: SourceOptions,
) -> Arc<dyn Source> {
    let below: Arc<dyn Source> = match store {
        Opened::Local(store) => {
            // Where the registration cannot be written, only the trash protects what is read.
            let _ = store.hold(score);
            store.clone()
        }
        Opened::Remote(store) => match store.cached_source(score, options) {
            Some(source) => source,
            None => store.fetcher().source(score, options),
        },
    };
    match hoard {
        Some(hoard) => Arc::new(HoardFirst::new(hoard.clone(), below)),
        None => below,
    }
}

/// Returns a memory cache of this many bytes.
///
/// # Errors
/// `Io` when threads cannot be started.
pub fn memory_cache(bytes: usize) -> Result<Arc<BlockCache>> {
    BlockCache::new(CacheOptions { block_bytes_max: bytes as u64, ..CacheOptions::default() })
}
