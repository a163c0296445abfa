//! The frames and pages of one recipe from below, past the cache: for one reader, who keeps what he reads himself.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockSource, FoundBlock, Kind, Result};

use super::loose::Loose;
use super::upstream::Upstream;
use crate::pages::PageReader;

/// Asks below for what is not among the last frames that came.
pub(crate) struct PassingSource {
    below: Arc<dyn Upstream>,
    loose: Mutex<Loose>,
    pages: PageReader,
}

impl PassingSource {
    pub(crate) fn new(below: Arc<dyn Upstream>) -> Arc<Self> {
        Arc::new(Self { below, loose: Mutex::default(), pages: PageReader::default() })
    }

    fn find(&self, kind: Kind, id: &BlockId) -> Result<Option<FoundBlock>> {
        let held = self.loose.lock().find(id);
        if held.is_some() {
            return Ok(held);
        }
        let Some(stored) = self.below.fetch(kind, id)? else { return Ok(None) };
        let header = FrameHeader::parse(&stored)?;
        let mut loose = self.loose.lock();
        loose.insert(stored, &header);
        Ok(loose.find(id))
    }
}

impl BlockSource for PassingSource {
    fn find(&self, id: &BlockId) -> Result<Option<FoundBlock>> {
        self.find(Kind::Data, id)
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
        self.pages.page(id, || self.find(Kind::Page, id))
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.below.will_fetch(Kind::Page, ids);
    }
}
