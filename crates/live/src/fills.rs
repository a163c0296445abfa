//! The disks of a process that are being filled: every block of them is fetched, while reads have priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{Error, Result, Score};

use super::sources::FILL_OPTIONS;
use platter_api::FillStatus;
use platter_fetch::OpenStore;
use platter_fetch::{Fill, pin_name};

/// Fills, by the names of their disks.
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
        let fill = Fill::start(source, score, Box::new(on_filled))?;
        let before = self.fills.lock().insert(disk.to_owned(), fill);
        before.map_or(Ok(()), |before| self.end(&before))
    }

    /// Ends the fill of a disk. Its pins are removed, unless another disk needs them.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn stop(&self, disk: &str) -> Result<()> {
        let fill = self.fills.lock().remove(disk);
        fill.map_or(Ok(()), |fill| self.end(&fill))
    }

    fn end(&self, fill: &Fill) -> Result<()> {
        fill.stop();
        let shared = self.fills.lock().values().any(|other| other.score() == fill.score());
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
