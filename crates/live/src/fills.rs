//! The disks of a process that are being filled: every block of them is fetched, while reads have priority. Also those that are
//! filled and held for a cast, while it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use platter_image::{Error, Result, Score};

use super::sources::FILL_OPTIONS;
use platter_api::FillStatus;
use platter_fetch::OpenStore;
use platter_fetch::{CachedSource, Fill, HeldFrames, PINS_PREFIX, pin_name};
use platter_store::Hoard;

/// Begins the names of disks that are held. No image has such a name.
const HELD: char = '@';

/// Fills, by the names of their disks. Their pins are removed under the same lock, so that no fill of the same score begins
/// meanwhile.
pub(super) struct Fills {
    store: OpenStore,
    hoard: Option<Arc<Hoard>>,
    next_held: AtomicU64,
    fills: Mutex<BTreeMap<String, Arc<Fill>>>,
}

impl Fills {
    /// Fills from this store; what the hoard has is copied.
    pub(super) fn new(store: OpenStore, hoard: Option<Arc<Hoard>>) -> Self {
        Self { store, hoard, next_held: AtomicU64::new(0), fills: Mutex::default() }
    }

    /// Returns the progress of this disk's fill, if it has one.
    pub(super) fn status(&self, disk: &str) -> Option<FillStatus> {
        self.fills.lock().get(disk).map(|fill| fill.status())
    }

    /// Returns the score that is filled for this disk.
    pub(super) fn score(&self, disk: &str) -> Option<Score> {
        self.fills.lock().get(disk).map(|fill| fill.score())
    }

    /// Starts to fill a disk. Calls `on_filled` when all of it is local.
    ///
    /// # Errors
    /// `Refused` without a cache; `Io` when no thread can be started.
    pub(super) fn start(
        &self,
        disk: &str,
        score: Score,
        on_filled: impl Fn() + Send + 'static,
    ) -> Result<()> {
        let source = self.store.cached_source(score, FILL_OPTIONS).ok_or_else(needs_a_cache)?;
        let mut fills = self.fills.lock();
        let before = fills.insert(disk.to_owned(), self.begin(source, score, on_filled)?);
        self.end(&fills, before)
    }

    /// Continues with another version of a disk, if it is being filled.
    ///
    /// # Errors
    /// Those of [`Fills::start`].
    pub(super) fn follow(
        &self,
        disk: &str,
        score: Score,
        on_filled: impl Fn() + Send + 'static,
    ) -> Result<()> {
        let Some(source) = self.store.cached_source(score, FILL_OPTIONS) else { return Ok(()) };
        let mut fills = self.fills.lock();
        let Some(fill) = fills.get_mut(disk) else { return Ok(()) };
        let before = std::mem::replace(fill, self.begin(source, score, on_filled)?);
        self.end(&fills, Some(before))
    }

    /// Ends the fill of a disk. Its pins are removed, unless another disk needs them.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn stop(&self, disk: &str) -> Result<()> {
        let mut fills = self.fills.lock();
        let before = fills.remove(disk);
        self.end(&fills, before)
    }

    /// Removes the pins of all disks that are neither in `kept` nor being filled.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn unpin_others(&self, kept: &[Score]) -> Result<()> {
        let Some(cache) = self.store.cache() else { return Ok(()) };
        let fills = self.fills.lock();
        let scores = fills.values().map(|fill| fill.score()).chain(kept.iter().copied());
        let kept = scores.map(pin_name).collect::<Result<BTreeSet<_>>>()?;
        let sets = cache.cache().pin_sets()?.into_iter();
        sets.filter(|set| set.as_str().starts_with(PINS_PREFIX) && !kept.contains(set))
            .try_for_each(|set| cache.cache().unpin(&set))
    }

    /// Holds a disk, which is not filled yet, until the result is dropped.
    ///
    /// # Errors
    /// `Refused` without a cache.
    pub(super) fn hold(&self, score: Score) -> Result<HeldDisk<'_>> {
        let source = self.store.cached_source(score, FILL_OPTIONS).ok_or_else(needs_a_cache)?;
        let name = format!("{HELD}{}", self.next_held.fetch_add(1, Ordering::Relaxed));
        let fill = Fill::new(score, self.hoard.clone());
        self.fills.lock().insert(name.clone(), fill.clone());
        Ok(HeldDisk { fills: self, name, fill, source })
    }

    /// Whether a disk is held.
    pub(super) fn holds_any(&self) -> bool {
        self.fills.lock().keys().any(|name| name.starts_with(HELD))
    }

    fn begin(
        &self,
        source: Arc<CachedSource>,
        score: Score,
        on_filled: impl Fn() + Send + 'static,
    ) -> Result<Arc<Fill>> {
        Fill::start(source, score, self.hoard.clone(), Box::new(on_filled))
    }

    fn end(&self, fills: &BTreeMap<String, Arc<Fill>>, fill: Option<Arc<Fill>>) -> Result<()> {
        let Some(fill) = fill else { return Ok(()) };
        fill.stop();
        let shared = fills.values().any(|other| other.score() == fill.score());
        match self.store.cache() {
            Some(cache) if !shared => cache.cache().unpin(&pin_name(fill.score())?),
            _ => Ok(()),
        }
    }
}

impl Drop for Fills {
    fn drop(&mut self) {
        self.fills.lock().values().for_each(|fill| fill.stop());
    }
}

/// A disk that is not attached, and stays in the cache for as long as this lives.
pub(super) struct HeldDisk<'a> {
    fills: &'a Fills,
    name: String,
    fill: Arc<Fill>,
    source: Arc<CachedSource>,
}

impl HeldDisk<'_> {
    /// Fetches what is missing of it. `look` sees the progress; its error ends that.
    ///
    /// # Errors
    /// As [`Fill::once`].
    pub(super) fn fill(&self, look: &mut dyn FnMut(&FillStatus) -> Result<()>) -> Result<()> {
        self.fill.once(&self.source, look)
    }

    /// Returns the progress.
    pub(super) fn status(&self) -> FillStatus {
        self.fill.status()
    }

    /// The frames of the filled disk.
    pub(super) fn frames(&self) -> HeldFrames {
        HeldFrames::new(self.source.node().clone())
    }
}

impl Drop for HeldDisk<'_> {
    fn drop(&mut self) {
        // Pins that cannot be removed now are removed when the node starts again.
        let _ = self.fills.stop(&self.name);
    }
}

pub(super) fn needs_a_cache() -> Error {
    Error::refused("that needs an origin and a cache of it: --server URL --cache-dir DIR")
}
