//! The cache of a node with what belongs to it: what is on its way, what the origin said, what is counted.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Result};
use platter_store::cache::{Cache, CacheOptions};
use platter_vfs::{OsVfs, Vfs};
use serde::{Deserialize, Serialize};

use super::answers::Answers;
use super::audience::Audience;
use super::flights::Flights;
use super::sharing::{self, SharingRequest};
use crate::peers::Peers;
use crate::remote::RemoteStore;

/// Where a cache lies, and how large it may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLocation {
    /// Its directory; made when missing.
    pub dir: PathBuf,
    /// Most bytes of it, passed by one segment at most.
    pub limit_bytes: u64,
}

/// What the cache of a node did since its process began, for all disks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounters {
    /// Blocks and pages that were asked for and held.
    pub hits: u64,
    /// Blocks and pages that were not held.
    pub misses: u64,
    /// Frames that came from the origin or from peers, and their bytes.
    pub fetched_frames: u64,
    /// See `fetched_frames`.
    pub fetched_bytes: u64,
    /// Frames that went to make room.
    pub evicted: u64,
    /// Frames that were found damaged, and had again.
    pub damaged: u64,
    /// Frames that the cache did not take: all is pinned, or writing failed.
    pub refused: u64,
    /// Blocks and pages held.
    pub blocks: u64,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of it that are pinned.
    pub pinned_bytes: u64,
    /// Its limit.
    pub limit_bytes: u64,
}

/// A cache, shared by all sources of a process.
pub(crate) struct NodeCache {
    cache: Cache,
    pub(super) flights: Flights,
    /// Ids that some source has asked the origin for.
    asked: Mutex<HashSet<BlockId>>,
    answers: Answers,
    audience: Audience,
    started: Instant,
    fetched_frames: AtomicU64,
    fetched_bytes: AtomicU64,
    /// Fetches that a reader waits for: now, and when the last one ended, in milliseconds since the start.
    waited_for: AtomicUsize,
    last_wait: AtomicU64,
    /// Set once this node shares.
    peers: OnceLock<Peers>,
}

impl NodeCache {
    /// Opens the cache there. `origin` says whose answers are remembered.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub(crate) fn open(location: &CacheLocation, origin: &str) -> Result<Arc<Self>> {
        Self::open_on(Arc::new(OsVfs), &location.dir, CacheOptions::new(location.limit_bytes), origin)
    }

    /// The same on any disk.
    pub(super) fn open_on(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        options: CacheOptions,
        origin: &str,
    ) -> Result<Arc<Self>> {
        let cache = Cache::open(vfs.clone(), dir, options)?;
        let answers = Answers::open(vfs.clone(), dir, origin);
        let audience = Audience::open(vfs, dir, cache.counts().blocks == 0);
        Ok(Arc::new(Self {
            cache,
            flights: Flights::default(),
            asked: Mutex::default(),
            answers,
            audience,
            started: Instant::now(),
            fetched_frames: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            waited_for: AtomicUsize::new(0),
            last_wait: AtomicU64::new(0),
            peers: OnceLock::new(),
        }))
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The peers of this node, if it shares.
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.get()
    }

    /// Begins to share, if it does not.
    ///
    /// # Errors
    /// `Transient` when the origin is away and never said which store it has; `Io` when the address cannot be had.
    pub(crate) fn share(&self, store: &RemoteStore, request: &SharingRequest) -> Result<()> {
        if self.peers.get().is_none() {
            let begun = sharing::begin(self, store, request)?;
            // Of two, one is enough.
            let _ = self.peers.set(begun);
        }
        Ok(())
    }

    /// Under whose rights the cache was filled.
    pub(super) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// What the origin said before.
    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// What a person should know since the last call.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.cache.notes();
        notes.extend(self.answers.notes());
        notes
    }

    /// Counts a verified frame that came, and puts it into the cache; false if that does not take it.
    pub(crate) fn keep(&self, stored: &[u8], header: &FrameHeader) -> bool {
        self.fetched_frames.fetch_add(1, Ordering::Relaxed);
        self.fetched_bytes.fetch_add(stored.len() as u64, Ordering::Relaxed);
        match self.audience.before_filling() {
            Ok(()) => self.cache.put(stored, header),
            Err(error) => {
                self.answers.note(format!("nothing is added to the cache: {error}"));
                false
            }
        }
    }

    /// A source asks the origin, for as long as what this gives lives: for what `narrow` gives, which is told what is held or was asked
    /// for by another source.
    pub(crate) fn ask(
        self: &Arc<Self>,
        narrow: impl FnOnce(&dyn Fn(&BlockId) -> bool) -> Vec<BlockId>,
    ) -> Asking {
        let mut asked = self.asked();
        let ids = narrow(&|id| asked.contains(id) || self.cache.holds(id));
        asked.extend(&ids);
        Asking { node: self.clone(), ids }
    }

    fn asked(&self) -> MutexGuard<'_, HashSet<BlockId>> {
        self.asked.lock()
    }

    /// A reader waits for a fetch as long as that lives.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.waited_for.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Whether a reader waits now, or did a moment ago.
    pub(super) fn has_readers(&self, moment: Duration) -> bool {
        let last = Duration::from_millis(self.last_wait.load(Ordering::Relaxed));
        let was_lately = !last.is_zero() && self.started.elapsed().saturating_sub(last) < moment;
        self.waited_for.load(Ordering::Relaxed) > 0 || was_lately
    }

    /// Whether a reader waits now.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waited_for.load(Ordering::Relaxed) > 0
    }

    /// What it did.
    pub(crate) fn counters(&self) -> NodeCounters {
        let counts = self.cache.counts();
        NodeCounters {
            hits: counts.hits,
            misses: counts.misses,
            fetched_frames: self.fetched_frames.load(Ordering::Relaxed),
            fetched_bytes: self.fetched_bytes.load(Ordering::Relaxed),
            evicted: counts.evicted,
            damaged: counts.damaged,
            refused: counts.refused,
            blocks: counts.blocks,
            cache_bytes: counts.bytes,
            pinned_bytes: counts.pinned_bytes,
            limit_bytes: counts.limit_bytes,
        }
    }
}

/// A reader that waits.
pub(super) struct Waiting<'a>(&'a NodeCache);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waited_for.fetch_sub(1, Ordering::Relaxed);
        let now = self.0.started.elapsed().as_millis() as u64;
        self.0.last_wait.store(now.max(1), Ordering::Relaxed);
    }
}

/// A request for some ids, under way.
pub(crate) struct Asking {
    node: Arc<NodeCache>,
    ids: Vec<BlockId>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut asked = self.node.asked();
        self.ids.iter().for_each(|id| {
            asked.remove(id);
        });
    }
}
