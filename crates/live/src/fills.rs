//! The disks of a process that are being filled: every block of them is fetched, while reads have priority.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{Error, Result, Score};

use super::sources::FILL_OPTIONS;
use platter_api::FillStatus;
use platter_fetch::OpenStore;
use platter_fetch::{Fill, PINS_PREFIX, pin_name};

/// Fills, by the names of their disks. Their pins are removed under the same lock, so that no fill of the same score begins
/// meanwhile.
pub(super) struct Fills {
    store: OpenStore,
    fills: Mutex<BTreeMap<String, Arc<Fill>>>,
}

impl Fills {
    pub(super) fn new(store: OpenStore) -> Self {
        Self { store, fills: Mutex::default() }
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
        let before = fills.insert(disk.to_owned(), Fill::start(source, score, Box::new(on_filled))?);
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
        let before = std::mem::replace(fill, Fill::start(source, score, Box::new(on_filled))?);
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

pub(super) fn needs_a_cache() -> Error {
    Error::refused("that needs an origin and a cache of it: --server URL --cache-dir DIR")
}
