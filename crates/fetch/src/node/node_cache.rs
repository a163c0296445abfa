//! The cache of a node, with stored replies of the origin, waiting readers, and counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use platter_api::NodeCounters;
use platter_cache::{Cache, CacheOptions};
use platter_client::{Answers, SharingRights};
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Kind, Result};
use platter_vfs::{OsVfs, Vfs};

use super::audience::Audience;
use super::sharing::{self, SharingRequest};
use crate::driver::{Fetcher, HeldChanges, Holdings};

/// Directory and size limit of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLocation {
    /// Its directory; created if it is missing.
    pub dir: PathBuf,
    /// Its size limit in bytes, exceeded by at most one segment.
    pub limit_bytes: u64,
}

impl CacheLocation {
    /// Checks the size limit without opening the cache.
    ///
    /// # Errors
    /// `Refused` when it is too small.
    pub fn check(&self) -> Result<()> {
        CacheOptions::new(self.limit_bytes).check()
    }
}

/// A cache, shared by all sources of a process.
pub struct NodeCache {
    cache: Cache,
    answers: Arc<Answers>,
    audience: Audience,
    started: Instant,
    fetched_frames: AtomicU64,
    fetched_bytes: AtomicU64,
    /// Number of fetches that readers wait for now, and the time when the last one ended, in milliseconds since the
    /// start.
    waited_for: AtomicUsize,
    last_wait: AtomicU64,
}

impl NodeCache {
    /// Opens the cache at this location. `origin` names the origin of stored replies.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn open(location: &CacheLocation, origin: &str) -> Result<Arc<Self>> {
        Self::open_on(Arc::new(OsVfs), &location.dir, CacheOptions::new(location.limit_bytes), origin)
    }

    /// As [`NodeCache::open`], on any file system.
    pub(super) fn open_on(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        options: CacheOptions,
        origin: &str,
    ) -> Result<Arc<Self>> {
        let cache = Cache::open(vfs.clone(), dir, options)?;
        let answers = Arc::new(Answers::open(vfs.clone(), dir, origin));
        let audience = Audience::open(vfs, dir, cache.counts().blocks == 0);
        Ok(Arc::new(Self {
            cache,
            answers,
            audience,
            started: Instant::now(),
            fetched_frames: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            waited_for: AtomicUsize::new(0),
            last_wait: AtomicU64::new(0),
        }))
    }

    /// The cache itself.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Starts to share its frames with the nodes of this group.
    ///
    /// # Errors
    /// `Refused`, `Io`: see the module `sharing`.
    pub(crate) fn share(
        &self,
        fetcher: &Fetcher,
        rights: SharingRights,
        request: &SharingRequest,
    ) -> Result<()> {
        sharing::begin(self, fetcher, rights, request)
    }

    /// The reading rights under which the cache was filled.
    pub(super) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Stored replies of the origin.
    pub(crate) fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    /// Returns the notes for people since the last call.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.cache.notes();
        notes.extend(self.answers.notes());
        notes
    }

    /// Adds a verified frame to the cache. Returns false if the cache does not accept it.
    pub(super) fn put(&self, stored: &[u8], header: &FrameHeader) -> bool {
        match self.audience.before_filling() {
            Ok(()) => self.cache.put(stored, header),
            Err(error) => {
                self.answers.note(format!("the cache accepts no frames: {error}"));
                false
            }
        }
    }

    /// Adds a frame that this process made and sent to the origin, so that its blocks can be read while the origin is down.
    pub(crate) fn put_own(&self, stored: &[u8]) {
        // A frame that is not accepted is fetched when it is read.
        if let Ok(header) = FrameHeader::parse(stored) {
            self.put(stored, &header);
        }
    }

    /// Counts a reader as waiting while the result is held.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.waited_for.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Whether a reader waits now, or waited within this time.
    pub(super) fn has_readers(&self, moment: Duration) -> bool {
        let last = Duration::from_millis(self.last_wait.load(Ordering::Relaxed));
        let was_lately = !last.is_zero() && self.started.elapsed().saturating_sub(last) < moment;
        self.waited_for.load(Ordering::Relaxed) > 0 || was_lately
    }

    /// Whether a reader waits now.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waited_for.load(Ordering::Relaxed) > 0
    }

    /// Returns its counters.
    pub fn counters(&self) -> NodeCounters {
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

/// A waiting reader.
pub(super) struct Waiting<'a>(&'a NodeCache);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waited_for.fetch_sub(1, Ordering::Relaxed);
        let now = self.0.started.elapsed().as_millis() as u64;
        self.0.last_wait.store(now.max(1), Ordering::Relaxed);
    }
}

/// Serves peers from the cache, and stores fetched frames.
impl Holdings for NodeCache {
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>> {
        // Not counted, because this is no read of this node's disks.
        let mut stored = Vec::new();
        self.cache.lease_unnoted(kind, id)?.read(&mut stored).ok()?;
        Some(stored.into())
    }

    fn keep(&self, stored: &[u8], header: &FrameHeader) {
        self.fetched_frames.fetch_add(1, Ordering::Relaxed);
        self.fetched_bytes.fetch_add(stored.len() as u64, Ordering::Relaxed);
        // If the cache does not accept the frame, its readers have it anyway.
        self.put(stored, header);
    }

    fn changes(&self, since: u64) -> HeldChanges {
        let changes = self.cache.changes(since);
        HeldChanges {
            added: changes.added,
            dropped: changes.dropped,
            whole: changes.whole,
            mark: changes.mark,
        }
    }

    fn own_reads(&self) -> u64 {
        self.cache.counts().hits
    }
}
