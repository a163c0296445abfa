//! The hoard of a node: its disks read from it, and it follows the origin's revisions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_image::Result;
use platter_records::BootSetRecord;
use platter_store::Hoard;
use platter_vdisk::Source;

use super::attach::AttachRequest;
use super::boots::BootRecorder;
use super::event::LiveEvent;
use super::served::Served;
use platter_client::{Listener, listen};
use platter_fetch::{OpenStore, OriginLocation, StoreLocation};
use platter_jobs::Silent;
use platter_jobs::{
    HoardCastOutcome, HoardOriginCastRequest, HoardSyncReport, HoardSyncRequest, Observer, ServerOptions,
    hoard_place, hoard_receive_from_origin, hoard_sync_from,
};

/// After a cast did not arrive here, this node does not ask for one for this long.
const UNREACHED_PAUSE: Duration = Duration::from_secs(600);

/// A hoard on this machine.
pub(super) struct Hoarding {
    hoard: Option<Arc<Hoard>>,
    /// A sync is under way.
    under_way: AtomicBool,
    news: Arc<News>,
    /// When a cast did not arrive here.
    unreached: Mutex<Option<Instant>>,
}

/// Whether this node should report to the origin now: the origin may have a newer revision, or this node has got one.
#[derive(Default)]
struct News(AtomicBool);

impl Listener for News {
    const EVENTS: &'static [&'static [u8]] = &[b"hoard"];

    fn heard(&self) -> Result<()> {
        self.0.store(true, Ordering::Release);
        Ok(())
    }
}

impl Hoarding {
    /// Opens the requested hoard.
    pub(super) fn open(request: &AttachRequest) -> Result<Self> {
        let hoard = request.hoard.as_ref().map(|dir| Hoard::open(&hoard_place(dir))).transpose()?;
        Ok(Self {
            hoard,
            under_way: AtomicBool::new(false),
            news: Arc::default(),
            unreached: Mutex::default(),
        })
    }

    /// Whether there was news since the last call.
    pub(super) fn has_news(&self) -> bool {
        self.news.0.swap(false, Ordering::AcqRel)
    }

    /// Returns the recorder for boots of this node's disks. `None` if recording is disabled, or without a hoard: the
    /// node would not know which boots are already recorded.
    pub(super) fn boot_recorder(
        &self,
        store: &OpenStore,
        request: &AttachRequest,
    ) -> Option<Arc<BootRecorder>> {
        request.node.as_ref().filter(|node| node.record_boots)?;
        let (hoard, cache) = (self.hoard.clone()?, store.cache()?);
        let node = cache.cache().id().to_string();
        Some(BootRecorder::new(Observer { node, tool_version: request.tool_version.clone() }, hoard))
    }

    pub(super) fn hoard(&self) -> Option<&Arc<Hoard>> {
        self.hoard.as_ref()
    }

    /// The revision that is complete here; 0 if none is.
    pub(super) fn revision(&self) -> u64 {
        self.hoard.as_ref().map_or(0, |hoard| hoard.snapshot().revision)
    }
}

impl Served {
    /// Listens to the origin's hoard events. Without them, a new revision is noticed at the next report.
    pub(super) fn listen_for_revisions(&self) -> Result<()> {
        match self.store().remote() {
            Some(store) if self.hoarding.hoard.is_some() => {
                listen(store.origin().clone(), &self.hoarding.news)
            }
            _ => Ok(()),
        }
    }

    /// Brings the hoard to the origin's revision if it differs: on a thread of its own, one at a time. What a cast does not bring is
    /// fetched. A failed attempt is repeated after the next message from the origin.
    pub(super) fn follow_hoard(self: &Arc<Self>, revision: u64) {
        let (StoreLocation::Remote(origin), Some(cache)) =
            (self.request().place.store(), &self.request().hoard)
        else {
            return;
        };
        if revision == self.hoarding.revision() || self.hoarding.under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let (served, before) = (self.clone(), self.hoarding.revision());
        let (origin, cache) = (origin.clone(), cache.clone());
        let follow = move || {
            let report = match served.hoard_by_cast(&origin.server, &cache) {
                Some(report) => Ok(report),
                None => served.fetch_hoard(&origin, &cache),
            };
            served.tell_of_hoard(report);
            served.hoarding.under_way.store(false, Ordering::Release);
            // The origin gets a report, and may have a newer revision by now.
            let is_newer = served.hoarding.revision() != before;
            served.hoarding.news.0.fetch_or(is_newer, Ordering::AcqRel);
        };
        if thread::Builder::new().name("hoard".to_owned()).spawn(follow).is_err() {
            self.hoarding.under_way.store(false, Ordering::Release);
        }
    }

    /// Receives the newest revision from a cast of the origin, if it makes one for this node.
    fn hoard_by_cast(&self, origin: &ServerOptions, cache: &Path) -> Option<HoardSyncReport> {
        let node = self.request().node.as_ref().filter(|node| node.casts)?;
        let unreached = *self.hoarding.unreached.lock();
        if unreached.is_some_and(|at| at.elapsed() < UNREACHED_PAUSE) {
            return None;
        }
        let request = HoardOriginCastRequest {
            origin: origin.clone(),
            cache: cache.to_owned(),
            node: self.store().cache()?.cache().id().to_string(),
            name: node.name.clone(),
            interface: node.interface.clone(),
            stop: Arc::clone(&self.request().stop),
        };
        let is_near = |record: &BootSetRecord| self.boots().is_some_and(|boots| boots.has_observed(record));
        let error = match hoard_receive_from_origin(&request, &is_near, &Silent) {
            Ok(HoardCastOutcome::Received(report)) => return Some(report),
            Ok(HoardCastOutcome::Incomplete) => return None,
            Ok(HoardCastOutcome::Unreached(error)) => {
                *self.hoarding.unreached.lock() = Some(Instant::now());
                error
            }
            // No matter of the network: the next revision may be cast.
            Err(error) => error,
        };
        let reason = error.with_causes();
        self.tell(&LiveEvent::Note(format!("hoard: not received by cast, so it is fetched: {reason}")));
        None
    }

    /// Fetches what the hoard lacks of the newest revision, from this node's cache, its peers and the origin.
    fn fetch_hoard(&self, origin: &OriginLocation, cache: &Path) -> Result<HoardSyncReport> {
        // The cache is already open in this process, and hoarded blocks need none.
        let store = StoreLocation::Remote(origin.uncached());
        let request = HoardSyncRequest { store, cache: cache.to_owned(), whole: false };
        let near = |record: &BootSetRecord, options| match self.boots() {
            // The boot's blocks are in the cache.
            Some(boots) if boots.has_observed(record) => {
                let source = self.store().cached_source(record.score, options)?;
                Some(source as Arc<dyn Source>)
            }
            _ => self.store().remote()?.peer_source(record.score, options),
        };
        hoard_sync_from(&request, &near, &Silent)
    }

    fn tell_of_hoard(&self, report: Result<HoardSyncReport>) {
        let refreshed = || self.hoarding.hoard.as_ref().map_or(Ok(()), |hoard| hoard.refresh());
        self.tell(&LiveEvent::Note(match report.map(|report| (refreshed(), report)) {
            Ok((Ok(()), report)) => format!(
                "hoard: revision {}, {} boot sets, {} bytes on the disk",
                report.revision, report.members, report.disk_bytes
            ),
            Ok((Err(error), report)) => {
                format!("hoard: revision {} cannot be read: {error}", report.revision)
            }
            Err(error) => format!("hoard: {error}"),
        }));
    }
}
