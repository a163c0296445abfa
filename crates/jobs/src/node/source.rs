//! The frames and pages of one recipe out of a node's cache, and from below where that lacks them.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use platter_image::frame::{FrameDecoder, FrameHeader};
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockPlace, Error, FrameAddress, FrameSource, Kind, Result};

use super::flights::Part;
use super::loose::Loose;
use super::node_cache::NodeCache;
use super::upstream::Upstream;

/// Times that something is fetched for one reader: where all is evicted at once it may go before the reader comes to it.
const FETCHES_MAX: usize = 8;
/// Decoders kept between pages.
const DECODERS_KEPT_MAX: usize = 4;

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
    decoders: Mutex<Vec<FrameDecoder>>,
}

impl CachedSource {
    pub(crate) fn new(node: Arc<NodeCache>, below: Arc<dyn Upstream>) -> Arc<Self> {
        Arc::new(Self { node, below, loose: Mutex::default(), decoders: Mutex::default() })
    }

    pub(super) fn node(&self) -> &Arc<NodeCache> {
        &self.node
    }

    fn loose(&self) -> MutexGuard<'_, Loose> {
        self.loose.lock()
    }

    /// Where a block or page stands, fetched if it is not held.
    pub(super) fn find(&self, kind: Kind, id: &BlockId, want: Want) -> Result<Option<BlockPlace>> {
        let cache = self.node.cache();
        let look = || cache.place_of(kind, id).or_else(|| self.loose().find(id));
        let first = if want == Want::Read { cache.locate(kind, id) } else { None };
        if let Some(place) = first.or_else(look) {
            return Ok(Some(place));
        }
        for _ in 0..FETCHES_MAX {
            match self.node.flights.join(id) {
                Part::Follow(flight) => {
                    let _waits = (want == Want::Read).then(|| self.node.waiting());
                    flight.wait()?;
                }
                // It may have come between the look and now.
                Part::Lead(lead) if look().is_none() => match self.fetch(kind, id, want) {
                    Ok(true) => drop(lead),
                    Ok(false) => return Ok(None),
                    Err(error) => {
                        lead.failed(&error);
                        return Err(error);
                    }
                },
                Part::Lead(_) => {}
            }
            if let Some(place) = look() {
                return Ok(Some(place));
            }
        }
        Err(Error::transient(format!("{kind:?} {id} went as often as it came")))
    }

    /// Has a frame with that block brought from below; false when nobody has it.
    fn fetch(&self, kind: Kind, id: &BlockId, want: Want) -> Result<bool> {
        let waits = (want == Want::Read).then(|| self.node.waiting());
        let Some(stored) = self.below.fetch(kind, id)? else { return Ok(false) };
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
        if !is_kept {
            self.loose().insert(stored, &header);
        }
        Ok(true)
    }

    /// Replaces `stored` by the frame there, if it still is.
    fn read(&self, address: FrameAddress, stored: &mut Vec<u8>) -> bool {
        if address.pack != Loose::PACK {
            return self.node.cache().read(address, stored);
        }
        let Some(frame) = self.loose().read(address) else { return false };
        stored.clear();
        stored.extend_from_slice(&frame);
        true
    }

    /// A block of a frame that was there.
    fn gone(&self, address: FrameAddress) -> Option<BlockId> {
        match address.pack {
            Loose::PACK => self.loose().gone(address),
            _ => self.node.cache().gone(address),
        }
    }

    /// Fills `stored` with the frame that was at an address; fetched again if it went, as often as it goes before it can be
    /// read.
    fn read_again(&self, address: FrameAddress, kind: Kind, stored: &mut Vec<u8>) -> Result<()> {
        let lost = || Error::transient(format!("the frame at {} is no longer held", address.offset));
        let mut now_at = address;
        for _ in 0..FETCHES_MAX {
            if self.read(now_at, stored) {
                return Ok(());
            }
            let first = self.gone(now_at).ok_or_else(lost)?;
            let place = self.find(kind, &first, Want::Read)?;
            // Another frame that holds the block is not the one that was asked for.
            let place = place.filter(|place| place.slot == 0 && place.frame.length == address.length);
            now_at = place.ok_or_else(lost)?.frame;
        }
        Err(lost())
    }

    fn decode(&self, id: &BlockId, slot: u32, stored: &[u8]) -> Result<Vec<u8>> {
        let kept = self.decoders.lock().pop();
        let mut decoder = kept.map_or_else(FrameDecoder::new, Ok)?;
        let page = decoder.decode_block(stored, Kind::Page, slot, id).map(<[u8]>::to_vec);
        let mut kept = self.decoders.lock();
        if kept.len() < DECODERS_KEPT_MAX {
            kept.push(decoder);
        }
        page
    }

    /// A page of the recipe.
    pub(super) fn page_for(&self, id: &BlockId, want: Want) -> Result<Vec<u8>> {
        let mut stored = Vec::new();
        for _ in 0..FETCHES_MAX {
            let place = self.find(Kind::Page, id, want)?;
            let place = place.ok_or_else(|| Error::missing(format!("nobody has recipe page {id}")))?;
            if self.read(place.frame, &mut stored) {
                return self.decode(id, place.slot, &stored);
            }
        }
        Err(Error::transient(format!("recipe page {id} went as often as it came")))
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

impl FrameSource for CachedSource {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.find(Kind::Data, id, Want::Read)
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.read_again(address, Kind::Data, stored)
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
