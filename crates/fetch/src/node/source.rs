//! The cache as a layer of the stack: frames and pages of one recipe from a node's cache, and missing ones from below.

use std::sync::Arc;

use platter_image::frame::DecoderPool;
use platter_image::recipe::PageSource;
use platter_image::{BlockId, Error, ErrorKind, FrameSource, Kind, Lease, Result};

use super::node_cache::NodeCache;
use crate::driver::NetworkSource;

/// The purpose of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A reader waits for it.
    Read,
    /// Filling a disk or the hoard, which yields to readers.
    Fill,
}

/// Frames and pages of one recipe. A frame that was fetched once comes from the cache afterwards, for all readers.
pub struct CachedSource {
    node: Arc<NodeCache>,
    below: Arc<NetworkSource>,
    want: Want,
    decoders: DecoderPool,
}

impl CachedSource {
    pub(crate) fn new(node: Arc<NodeCache>, below: Arc<NetworkSource>) -> Arc<Self> {
        Arc::new(Self { node, below, want: Want::Read, decoders: DecoderPool::default() })
    }

    /// As [`Self::new`], for reads that do not count as those of a disk.
    pub(crate) fn beside_disks(node: Arc<NodeCache>, below: Arc<NetworkSource>) -> Arc<Self> {
        Arc::new(Self { node, below, want: Want::Fill, decoders: DecoderPool::default() })
    }

    /// The cache.
    pub fn node(&self) -> &Arc<NodeCache> {
        &self.node
    }

    /// Returns a lease on a frame with a block or page, fetched if it is not held.
    fn find(&self, kind: Kind, id: &BlockId, want: Want) -> Result<Option<Lease>> {
        let cache = self.node.cache();
        let held = match want {
            Want::Read => cache.lease(kind, id),
            Want::Fill => cache.lease_unnoted(kind, id),
        };
        if held.is_some() {
            return Ok(held);
        }
        let _waits = (want == Want::Read).then(|| self.node.waiting());
        Ok(self.below.frame(kind, id)?.and_then(|frame| frame.lease(id)))
    }

    /// Makes the cache hold a block or page. Returns false when it was not found anywhere.
    ///
    /// # Errors
    /// The errors of fetching.
    pub(super) fn fetch(&self, kind: Kind, id: &BlockId) -> Result<bool> {
        if self.node.cache().holds(id) {
            return Ok(true);
        }
        let Some(frame) = self.below.frame(kind, id)? else { return Ok(false) };
        // It may have been cached before and evicted.
        self.node.put(&frame.stored, &frame.header);
        Ok(true)
    }

    /// Returns a page of the recipe.
    pub(super) fn page_for(&self, id: &BlockId, want: Want) -> Result<Vec<u8>> {
        let missing = || Error::missing(format!("recipe page {id} was not found anywhere"));
        let mut stored = Vec::new();
        let lease = self.find(Kind::Page, id, want)?.ok_or_else(missing)?;
        match lease.read(&mut stored) {
            Ok(()) => self.decode(id, lease.place.slot, &stored),
            // The cached page is damaged, and no longer held.
            Err(error) if error.kind() == ErrorKind::Transient => {
                let again = self.find(Kind::Page, id, want)?.ok_or_else(missing)?;
                again.read(&mut stored)?;
                self.decode(id, again.place.slot, &stored)
            }
            Err(error) => Err(error),
        }
    }

    fn decode(&self, id: &BlockId, slot: u32, stored: &[u8]) -> Result<Vec<u8>> {
        self.decoders.with(|decoder| decoder.decode_block(stored, Kind::Page, slot, id).map(<[u8]>::to_vec))
    }

    fn hint(&self, kind: Kind, ids: &[BlockId]) {
        let missing: Vec<BlockId> = ids.iter().filter(|id| !self.node.cache().holds(id)).copied().collect();
        self.below.will_fetch(kind, &missing);
    }

    /// Announces blocks of a fill: they arrive in the cache in any order.
    pub(super) fn will_fill(&self, ids: &[(Kind, BlockId)]) {
        for kind in [Kind::Page, Kind::Data] {
            let of_kind = ids.iter().filter(|(other, _)| *other == kind).map(|(_, id)| *id);
            self.hint(kind, &of_kind.collect::<Vec<_>>());
        }
    }
}

impl FrameSource for CachedSource {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        self.find(Kind::Data, id, self.want)
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.hint(Kind::Data, ids);
    }

    fn hint_length(&self) -> u64 {
        self.below.hint_length()
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.node.cache().holds(id)
    }
}

impl PageSource for CachedSource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.page_for(id, self.want)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.hint(Kind::Page, ids);
    }
}
