//! Frames that are being read: whoever wants one of them waits for the thread that has begun.
//!
//! Owns the list of these frames. A frame leaves it when its thread is done, however that ended, so a failure is told to
//! those who waited and to nobody after them.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, FrameAddress, Result};

use super::blocks::Block;
use crate::source::Source;

/// A frame of a source. Packs are numbered by each source for itself, so the source belongs to the key; who reads the
/// frame keeps the source alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FrameKey {
    source: usize,
    frame: FrameAddress,
}

impl FrameKey {
    pub(super) fn new(source: &Arc<dyn Source>, frame: FrameAddress) -> Self {
        Self { source: Arc::as_ptr(source).cast::<()>() as usize, frame }
    }

    /// The frame, if it is of that source.
    pub(super) fn frame_of(&self, source: &Arc<dyn Source>) -> Option<FrameAddress> {
        (*self == Self::new(source, self.frame)).then_some(self.frame)
    }
}

/// How reading a frame ended.
enum Outcome {
    /// The blocks that came out, verified. Others of the frame were in the cache, or are damaged.
    Decoded(Vec<(BlockId, Arc<Block>)>),
    /// It could not be read or decoded.
    Failed(ErrorKind, String),
}

/// A frame that is being read.
#[derive(Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

impl Flight {
    /// Waits until the frame was read, and gives that block if it came out.
    ///
    /// # Errors
    /// The failure of the thread that read.
    pub(super) fn wait(&self, id: &BlockId) -> Result<Option<Arc<Block>>> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |outcome| outcome.is_none());
        match &*outcome {
            Some(Outcome::Decoded(blocks)) => {
                Ok(blocks.iter().find(|(found, _)| found == id).map(|(_, block)| block.clone()))
            }
            Some(Outcome::Failed(kind, what)) => Err(Error::new(*kind, what.clone())),
            None => Ok(None),
        }
    }
}

/// All frames that are being read.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<FrameKey, Arc<Flight>>>);

/// What to do about a frame.
pub(super) enum Part<'a> {
    /// Read it: others wait until this is dropped.
    Lead(Lead<'a>),
    /// Wait for it.
    Follow(Arc<Flight>),
}

impl Flights {
    /// Takes part in reading that frame.
    pub(super) fn join(&self, key: FrameKey) -> Part<'_> {
        match self.lock().entry(key) {
            Entry::Occupied(entry) => Part::Follow(entry.get().clone()),
            Entry::Vacant(entry) => {
                let flight = entry.insert(Arc::default()).clone();
                Part::Lead(Lead { flights: self, key, flight, outcome: Outcome::Decoded(Vec::new()) })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FrameKey, Arc<Flight>>> {
        self.0.lock()
    }
}

/// The one thread's part that reads.
pub(super) struct Lead<'a> {
    flights: &'a Flights,
    key: FrameKey,
    flight: Arc<Flight>,
    outcome: Outcome,
}

impl Lead<'_> {
    /// Ends it: these blocks came out.
    pub(super) fn decoded(mut self, blocks: Vec<(BlockId, Arc<Block>)>) {
        self.outcome = Outcome::Decoded(blocks);
    }

    /// Ends it: the frame could not be had.
    pub(super) fn failed(mut self, error: &Error) {
        let mut what = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            what = format!("{what}: {cause}");
            source = cause.source();
        }
        self.outcome = Outcome::Failed(error.kind(), what);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Decoded(Vec::new()));
        *self.flight.outcome.lock() = Some(outcome);
        self.flight.ended.notify_all();
    }
}
