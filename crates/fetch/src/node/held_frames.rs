//! The frames of a disk that a cache holds in full, at places that last: for a cast, which plans all frames before it reads
//! them.
//!
//! A cache moves pinned frames when it evicts their segment. So each frame that was located is leased: it can be read
//! unchanged for as long as this lives, also after its segment was evicted. The file of such a segment takes space until then. Each
//! frame takes about 250 bytes of memory. Must never fetch: what is not held is missing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::frame::DecoderPool;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, FrameAddress, FrameIndex, FrameSource, Kind, Lease, Result, lease,
};

use super::node_cache::NodeCache;

/// See above.
pub struct HeldFrames {
    node: Arc<NodeCache>,
    located: Mutex<HashMap<FrameAddress, Lease>>,
    decoders: DecoderPool,
}

impl HeldFrames {
    /// Frames of this cache; none is leased yet.
    pub fn new(node: Arc<NodeCache>) -> Self {
        Self { node, located: Mutex::default(), decoders: DecoderPool::default() }
    }
}

impl FrameSource for HeldFrames {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        // Ids of pages and of data never coincide.
        let cache = self.node.cache();
        Ok(cache.lease_unnoted(Kind::Data, id).or_else(|| cache.lease_unnoted(Kind::Page, id)))
    }
}

impl FrameIndex for HeldFrames {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        let Some(lease) = self.lease(id)? else { return Ok(None) };
        let place = lease.place;
        self.located.lock().entry(place.frame).or_insert(lease);
        Ok(Some(place))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        let lease = self.located.lock().get(&address).cloned();
        lease.ok_or_else(|| Error::bug("reading a frame of a cache that was not located"))?.read(stored)
    }
}

impl PageSource for HeldFrames {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let mut stored = Vec::new();
        let lease = lease(self, id)?;
        lease.read(&mut stored)?;
        self.decoders.with(|decoder| {
            decoder.decode_block(&stored, Kind::Page, lease.place.slot, id).map(<[u8]>::to_vec)
        })
    }
}
