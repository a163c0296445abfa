//! The frames and pages of one recipe of an origin, as everybody reads them who reads a store.

use std::sync::Arc;
use std::time::Duration;

use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockSource, FoundBlock, Kind, Result, Score};

use super::queue::Key;
use super::shelf::Shelved;
use super::state::{Look, State};
use super::work::{Shared, Wish};
use crate::node::{NodeCache, Upstream};
use crate::pages::PageReader;
use crate::remote::client::Client;

/// Bytes of a disk that its stored bytes are taken to stand for, so that what is hinted at fills the window.
const DISK_BYTES_PER_STORED: u64 = 4;
/// Most bytes of frames in memory that a cache has, too.
const BYTES_BESIDE_CACHE: u64 = 8 << 20;
/// Part of the bytes of a source that may be of frames which nobody has read.
const UNREAD_PART: u64 = 2;

/// How a source of an origin keeps and tries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceOptions {
    /// Most bytes of frames in memory; 8 MiB, where a cache has them, too.
    pub(crate) bytes_max: u64,
    /// So long an origin that is away is tried for.
    pub(crate) retry_time_max: Duration,
    /// Only what is asked for is to come. Else whole frames are welcome, because the rest of them is asked for soon, and the
    /// origin has less work.
    pub(crate) exact: bool,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { bytes_max: 128 << 20, retry_time_max: Duration::from_secs(60), exact: false }
    }
}

/// One recipe, its blocks and pages. Its threads end by themselves.
pub(crate) struct RemoteSource {
    shared: Arc<Shared>,
    pages: PageReader,
}

impl RemoteSource {
    /// Asks for nothing yet. Whatever comes goes to that cache, too.
    pub(in crate::remote) fn new(
        client: Arc<Client>,
        score: Score,
        options: SourceOptions,
        cache: Option<Arc<NodeCache>>,
    ) -> Self {
        let in_memory =
            cache.as_ref().map_or(options.bytes_max, |_| BYTES_BESIDE_CACHE.min(options.bytes_max));
        let state = State::new(in_memory, options.bytes_max / UNREAD_PART, options.retry_time_max);
        let wish = Wish { score, exact: options.exact };
        Self { shared: Shared::new(client, wish, state, cache), pages: PageReader::default() }
    }

    fn find(&self, kind: Kind, id: &BlockId) -> Result<Option<Shelved>> {
        match self.shared.look(Key { kind, id: *id })? {
            Look::Here(found) => Ok(Some(found)),
            Look::OnItsWay(flight) => flight.wait(),
        }
    }
}

impl BlockSource for RemoteSource {
    fn find(&self, id: &BlockId) -> Result<Option<FoundBlock>> {
        Ok(self.find(Kind::Data, id)?.map(Shelved::lease))
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.shared.hint(Kind::Data, ids);
    }

    fn hint_length(&self) -> u64 {
        self.shared.lock().ahead_length() * DISK_BYTES_PER_STORED
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.shared.lock().shelf.holds(Key { kind: Kind::Data, id: *id })
    }
}

impl PageSource for RemoteSource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.pages.page(id, || Ok(self.find(Kind::Page, id)?.map(Shelved::lease)))
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.shared.hint(Kind::Page, ids);
    }
}

impl Upstream for RemoteSource {
    fn fetch(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>> {
        Ok(self.find(kind, id)?.map(|found| found.stored))
    }

    fn will_fetch(&self, kind: Kind, ids: &[BlockId]) {
        self.shared.hint(kind, ids);
    }

    fn hint_length(&self) -> u64 {
        BlockSource::hint_length(self)
    }

    fn keeps_what_comes(&self) -> bool {
        self.shared.has_cache()
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        self.shared.close();
    }
}
