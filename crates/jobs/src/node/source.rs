//! The frames and pages of one recipe out of a node's cache, and from below where that lacks them.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockSource, Error, FoundBlock, Kind, Result};

use super::flights::Part;
use super::loose::Loose;
use super::node_cache::NodeCache;
use super::upstream::Upstream;
use crate::pages::PageReader;

/// Who wants a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A reader, who waits.
    Read,
    /// The filling of a disk, which gives way to readers.
    Fill,
}

/// One recipe's frames and pages: what came from below once comes from the cache the next time, whoever asks.
pub(crate) struct CachedSource {
    node: Arc<NodeCache>,
    below: Arc<dyn Upstream>,
    /// What the cache did not take.
    loose: Mutex<Loose>,
    pages: PageReader,
}

impl CachedSource {
    pub(crate) fn new(node: Arc<NodeCache>, below: Arc<dyn Upstream>) -> Arc<Self> {
        Arc::new(Self { node, below, loose: Mutex::default(), pages: PageReader::default() })
    }

    pub(super) fn node(&self) -> &Arc<NodeCache> {
        &self.node
    }

    /// A block or page, fetched if it is not held.
    pub(super) fn find(&self, kind: Kind, id: &BlockId, want: Want) -> Result<Option<FoundBlock>> {
        let cache = self.node.cache();
        let held = if want == Want::Read { cache.find(kind, id) } else { cache.peek(kind, id) };
        let held = held.or_else(|| self.loose.lock().find(id));
        if held.is_some() {
            return Ok(held);
        }
        match self.node.flights.join(id) {
            Part::Follow(flight) => {
                let _waits = (want == Want::Read).then(|| self.node.waiting());
                flight.wait()
            }
            Part::Lead(lead) => {
                // It may have come between the look and now.
                let held = cache.peek(kind, id).or_else(|| self.loose.lock().find(id));
                let found = held.map_or_else(|| self.fetch(kind, id, want), |held| Ok(Some(held)));
                lead.end(&found);
                found
            }
        }
    }

    /// Has a frame with that block brought from below; `None` when nobody has it.
    fn fetch(&self, kind: Kind, id: &BlockId, want: Want) -> Result<Option<FoundBlock>> {
        let waits = (want == Want::Read).then(|| self.node.waiting());
        let Some(stored) = self.below.fetch(kind, id)? else { return Ok(None) };
        drop(waits);
        let header = FrameHeader::parse(&stored)?;
        header.payload(&stored)?;
        if header.kind != kind || !header.blocks.iter().any(|block| block.id == *id) {
            return Err(Error::bug(format!("a frame without {kind:?} {id}, which it was fetched for")));
        }
        let cache = self.node.cache();
        let is_kept = match self.below.keeps_what_comes() {
            // It may have come long ago, and gone.
            true => cache.holds(id) || cache.put(&stored, &header),
            false => self.node.keep(&stored, &header),
        };
        if let Some(held) = cache.peek(kind, id).filter(|_| is_kept) {
            return Ok(Some(held));
        }
        let mut loose = self.loose.lock();
        loose.insert(stored, &header);
        Ok(loose.find(id))
    }

    /// A page of the recipe.
    pub(super) fn page_for(&self, id: &BlockId, want: Want) -> Result<Vec<u8>> {
        self.pages.page(id, || self.find(Kind::Page, id, want))
    }

    fn hint(&self, kind: Kind, ids: &[BlockId]) {
        let missing: Vec<BlockId> = ids.iter().filter(|id| !self.node.cache().holds(id)).copied().collect();
        if !missing.is_empty() {
            self.below.will_fetch(kind, &missing);
        }
    }

    /// Whether what a fill tells of comes by itself.
    pub(super) fn keeps_hints(&self) -> bool {
        self.below.keeps_hints()
    }

    /// Tells below what a fill comes to.
    pub(super) fn will_fill(&self, ids: &[(Kind, BlockId)]) {
        for kind in [Kind::Page, Kind::Data] {
            let of_kind = ids.iter().filter(|(other, _)| *other == kind).map(|(_, id)| *id);
            self.hint(kind, &of_kind.collect::<Vec<_>>());
        }
    }
}

impl BlockSource for CachedSource {
    fn find(&self, id: &BlockId) -> Result<Option<FoundBlock>> {
        self.find(Kind::Data, id, Want::Read)
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
        self.page_for(id, Want::Read)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.hint(Kind::Page, ids);
    }
}
