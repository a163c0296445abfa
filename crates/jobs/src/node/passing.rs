//! The frames and pages of one recipe from below, past the cache: for one reader, who keeps what he reads himself and reads each
//! frame as soon as he has found it.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use platter_image::frame::{FrameDecoder, FrameHeader};
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockPlace, Error, FrameAddress, FrameSource, Kind, Result};

use super::loose::Loose;
use super::upstream::Upstream;

/// Asks below for what is not among the last frames that came.
pub(crate) struct PassingSource {
    below: Arc<dyn Upstream>,
    loose: Mutex<Loose>,
}

impl PassingSource {
    pub(crate) fn new(below: Arc<dyn Upstream>) -> Arc<Self> {
        Arc::new(Self { below, loose: Mutex::default() })
    }

    fn loose(&self) -> MutexGuard<'_, Loose> {
        self.loose.lock()
    }

    /// Where a block or page stands; `None` when nobody has it.
    fn find(&self, kind: Kind, id: &BlockId) -> Result<Option<BlockPlace>> {
        if let Some(place) = self.loose().find(id) {
            return Ok(Some(place));
        }
        let Some(stored) = self.below.fetch(kind, id)? else { return Ok(None) };
        let header = FrameHeader::parse(&stored)?;
        let mut loose = self.loose();
        loose.insert(stored, &header);
        Ok(loose.find(id))
    }
}

impl FrameSource for PassingSource {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.find(Kind::Data, id)
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        let lost = || Error::transient(format!("the frame at {} is no longer in memory", address.offset));
        let found = self.loose().read(address).ok_or_else(lost)?;
        stored.clear();
        stored.extend_from_slice(&found);
        Ok(())
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.below.will_fetch(Kind::Data, ids);
    }

    fn hint_length(&self) -> u64 {
        self.below.hint_length()
    }
}

impl PageSource for PassingSource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let place = self.find(Kind::Page, id)?;
        let place = place.ok_or_else(|| Error::missing(format!("nobody has recipe page {id}")))?;
        let mut stored = Vec::new();
        self.read_frame(place.frame, &mut stored)?;
        FrameDecoder::new()?.decode_block(&stored, Kind::Page, place.slot, id).map(<[u8]>::to_vec)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.below.will_fetch(Kind::Page, ids);
    }
}
