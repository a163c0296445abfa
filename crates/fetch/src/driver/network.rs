//! The lowest layer of the stack: one recipe's frames and pages from peers and the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use platter_image::frame::DecoderPool;
use platter_image::recipe::PageSource;
use platter_image::{BlockId, Error, FrameSource, Kind, Lease, Result, Score};

use super::fetcher::Fetcher;
use super::frame::{Key, VerifiedFrame};
use super::machine::Machine;
use super::wants::WantKey;

/// Assumed ratio of disk bytes to stored bytes, so that announced blocks fill the link.
const DISK_BYTES_PER_STORED: u64 = 4;

/// Requirements of a source's readers.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// How long requests are retried while the origin is down.
    pub retry_time_max: Duration,
    /// Only requested blocks are to be sent. Otherwise whole frames are welcome: the rest of them is read soon, and the
    /// origin has less work.
    pub exact: bool,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { retry_time_max: Duration::from_secs(60), exact: false }
    }
}

/// One recipe. Used by many threads at once; a block that several readers want, through any recipe, is fetched once.
pub(crate) struct NetworkSource {
    fetcher: Arc<Fetcher>,
    score: Score,
    number: u64,
    options: SourceOptions,
    /// Whether groups were learned from held pages. This is done when a block is wanted whose page has not arrived
    /// lately.
    has_looked: AtomicBool,
    decoders: DecoderPool,
}

impl NetworkSource {
    pub(super) fn new(fetcher: Arc<Fetcher>, score: Score, number: u64, options: SourceOptions) -> Self {
        let (has_looked, decoders) = (AtomicBool::new(false), DecoderPool::default());
        Self { fetcher, score, number, options, has_looked, decoders }
    }

    /// Returns a verified frame with this block or page; `None` when the origin says that it does not exist. Waits for
    /// it.
    ///
    /// # Errors
    /// `Transient` when neither a peer nor the origin sent it in time; other errors of the origin.
    pub(crate) fn frame(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<VerifiedFrame>>> {
        let over = || Error::transient("this node has too many pending fetches, or has stopped fetching");
        let place = self.place(kind, id);
        let (waiter, found) = bounded(1);
        let shared = self.fetcher.shared();
        shared.act(|machine, now| machine.want(now, place, *id, waiter)).ok_or_else(over)?;
        let found = found.recv().map_err(|_| over())?;
        found.map_err(|(kind, what)| Error::new(kind, what))
    }

    /// Announces blocks that will be wanted soon, probably in this order. Does not wait.
    pub(crate) fn will_fetch(&self, kind: Kind, ids: &[BlockId]) {
        if ids.is_empty() {
            return;
        }
        let places: Vec<_> = ids.iter().map(|id| (self.place(kind, id), *id)).collect();
        self.fetcher.shared().act(|machine, now| machine.hint(now, self.number, &places));
    }

    fn place(&self, kind: Kind, id: &BlockId) -> WantKey {
        let shared = self.fetcher.shared();
        if let Some(holdings) = &shared.holdings
            && kind == Kind::Data
            && shared.groups.find(id).is_none()
            && !self.has_looked.swap(true, Ordering::Relaxed)
        {
            shared.groups.learn_held(self.score, &**holdings);
        }
        let SourceOptions { retry_time_max: patience, exact } = self.options;
        WantKey { score: self.score, kind, group: shared.groups.of(kind, id), exact, patience }
    }
}

impl FrameSource for NetworkSource {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.frame(Kind::Data, id)?.and_then(|frame| frame.lease(id)))
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.will_fetch(Kind::Data, ids);
    }

    fn hint_length(&self) -> u64 {
        self.fetcher.shared().look(Machine::announced_bytes) * DISK_BYTES_PER_STORED
    }

    fn is_near(&self, id: &BlockId) -> bool {
        let key = Key { kind: Kind::Data, id: *id };
        self.fetcher.shared().look(|machine| machine.has(key))
    }
}

impl PageSource for NetworkSource {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let frame = self.frame(Kind::Page, id)?;
        let frame =
            frame.ok_or_else(|| Error::missing(format!("recipe page {id} was not found anywhere")))?;
        let lease = frame.lease(id).ok_or_else(|| Error::bug(format!("a frame without page {id}")))?;
        let slot = lease.place.slot;
        self.decoders
            .with(|decoder| decoder.decode_block(&frame.stored, Kind::Page, slot, id).map(<[u8]>::to_vec))
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.will_fetch(Kind::Page, ids);
    }
}

impl Drop for NetworkSource {
    fn drop(&mut self) {
        self.fetcher.shared().act(|machine, _| machine.forget(self.number));
    }
}
