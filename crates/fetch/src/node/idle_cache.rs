//! The cache of a node that does not run, read without its origin: a place where a damaged store may find lost blocks.

use std::path::Path;
use std::sync::Arc;

use platter_cache::{Cache, CacheOptions};
use platter_image::frame::FrameDecoder;
use platter_image::{BlockId, Kind, Result};
use platter_vfs::OsVfs;

/// The opened cache.
#[derive(Debug)]
pub struct IdleCache(Cache);

impl IdleCache {
    /// Opens the cache in a directory. Evicts nothing.
    ///
    /// # Errors
    /// `Refused` when a node or another process has it open; as [`Cache::open`].
    pub fn open(dir: &Path) -> Result<Self> {
        Cache::open(Arc::new(OsVfs), dir, CacheOptions::new(u64::MAX)).map(Self)
    }

    /// Reads a block or page; `None` if the cache does not have it.
    ///
    /// # Errors
    /// `Corrupt` when its frame is damaged; `Io`.
    pub fn read(&self, kind: Kind, id: &BlockId) -> Result<Option<Vec<u8>>> {
        let Some(lease) = self.0.lease_unnoted(kind, id) else { return Ok(None) };
        let mut stored = Vec::new();
        lease.read(&mut stored)?;
        let mut decoder = FrameDecoder::new()?;
        decoder.decode_block(&stored, kind, lease.place.slot, id).map(|block| Some(block.to_vec()))
    }
}
