//! The frames and pages of one recipe of an origin, as everybody reads them who reads a store.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::FrameDecoder;
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockPlace, Error, FrameAddress, FrameSource, Kind, Result, Score};

use super::queue::Key;
use super::state::{Look, State};
use super::work::{Shared, Wish};
use crate::node::{NodeCache, Upstream};
use crate::remote::client::Client;

/// Bytes of a disk that its stored bytes are taken to stand for, so that what is hinted at fills the window.
const DISK_BYTES_PER_STORED: u64 = 4;
/// Times that a frame is fetched for one reader: where memory is short it may go before the reader comes to it.
const FETCHES_MAX: usize = 32;
/// Most bytes of frames in memory that a cache has, too.
const BYTES_BESIDE_CACHE: u64 = 8 << 20;
/// Part of the bytes of a source that may be of frames which nobody has read.
const UNREAD_PART: u64 = 2;
/// Decoders kept between pages.
const DECODERS_KEPT_MAX: usize = 4;

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

/// One recipe, its blocks and pages. Addresses of frames mean something here only, and what was given out for one stays
/// readable, if it must be fetched again. Its threads end by themselves.
pub(crate) struct RemoteSource {
    shared: Arc<Shared>,
    decoders: Mutex<Vec<FrameDecoder>>,
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
        Self { shared: Shared::new(client, wish, state, cache), decoders: Mutex::default() }
    }

    fn find(&self, key: Key) -> Result<Option<BlockPlace>> {
        match self.shared.look(key)? {
            Look::Here(place) => Ok(Some(place)),
            Look::OnItsWay(flight) => flight.wait(),
        }
    }

    /// The frame at an address; fetched again if it went, as often as it goes before it can be read.
    fn frame(&self, address: FrameAddress) -> Result<Arc<[u8]>> {
        let lost = || Error::transient(format!("frame {} is no longer in memory", address.offset));
        let mut now_at = address;
        for _ in 0..FETCHES_MAX {
            let (key, slot) = {
                let mut state = self.shared.lock();
                if let Some(stored) = state.shelf.read(now_at) {
                    return Ok(stored);
                }
                state.shelf.gone(now_at).ok_or_else(lost)?
            };
            let again = self.find(key)?;
            let again = again.filter(|place| place.slot == slot && place.frame.length == address.length);
            now_at = again.ok_or_else(lost)?.frame;
        }
        Err(lost())
    }

    fn decode(&self, id: &BlockId, place: BlockPlace, stored: &[u8]) -> Result<Vec<u8>> {
        let kept = self.decoders.lock().pop();
        let mut decoder = kept.map_or_else(FrameDecoder::new, Ok)?;
        let page = decoder.decode_block(stored, Kind::Page, place.slot, id).map(<[u8]>::to_vec);
        let mut kept = self.decoders.lock();
        if kept.len() < DECODERS_KEPT_MAX {
            kept.push(decoder);
        }
        page
    }
}

impl FrameSource for RemoteSource {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.find(Key { kind: Kind::Data, id: *id })
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        let frame = self.frame(address)?;
        stored.clear();
        stored.extend_from_slice(&frame);
        Ok(())
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.shared.hint(Kind::Data, ids);
    }

    fn hint_length(&self) -> u64 {
        self.shared.lock().ahead_length() * DISK_BYTES_PER_STORED
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.shared.lock().shelf.find(Key { kind: Kind::Data, id: *id }).is_some()
    }
}

impl PageSource for RemoteSource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let place = self.find(Key { kind: Kind::Page, id: *id })?;
        let place = place.ok_or_else(|| Error::missing(format!("the origin has no recipe page {id}")))?;
        self.decode(id, place, &self.frame(place.frame)?)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.shared.hint(Kind::Page, ids);
    }
}

impl Upstream for RemoteSource {
    fn fetch(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>> {
        let place = self.find(Key { kind, id: *id })?;
        place.map(|place| self.frame(place.frame)).transpose()
    }

    fn will_fetch(&self, kind: Kind, ids: &[BlockId]) {
        self.shared.hint(kind, ids);
    }

    fn hint_length(&self) -> u64 {
        FrameSource::hint_length(self)
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
