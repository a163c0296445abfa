//! Frames being read: concurrent requests for a frame wait for the thread that reads it.
//!
//! A frame leaves the table as soon as its read ends, successfully or not. So a failure is reported to the
//! threads that waited, but not to later ones.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, FrameAddress, Result};

use super::blocks::Block;
use crate::source::Source;

/// A frame of a source. Each source numbers its own packs, so the key includes the source's address. The
/// reader of the frame keeps the source alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FrameKey {
    source: usize,
    frame: FrameAddress,
}

impl FrameKey {
    pub(super) fn new(source: &Arc<dyn Source>, frame: FrameAddress) -> Self {
        Self { source: Arc::as_ptr(source).cast::<()>() as usize, frame }
    }

    /// The frame, if it belongs to that source.
    pub(super) fn frame_of(&self, source: &Arc<dyn Source>) -> Option<FrameAddress> {
        (*self == Self::new(source, self.frame)).then_some(self.frame)
    }
}

/// The result of reading a frame.
enum Outcome {
    /// The verified blocks. The frame's other blocks were already in the cache, or are damaged.
    Decoded(Vec<(BlockId, Arc<Block>)>),
    /// The frame could not be read or decoded: the error's kind and text.
    Failed(ErrorKind, String),
}

/// A frame being read.
#[derive(Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

impl Flight {
    /// Waits for the read to end, and returns the block if it was decoded.
    ///
    /// # Errors
    /// The reading thread's error.
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

/// All frames being read.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<FrameKey, Arc<Flight>>>);

/// The role of a thread in reading a frame.
pub(super) enum Role<'a> {
    /// Read it; others wait until this is dropped.
    Lead(Lead<'a>),
    /// Wait for the thread that reads it.
    Follow(Arc<Flight>),
}

impl Flights {
    /// Joins the read of that frame, as its reader if there is none yet.
    pub(super) fn join(&self, key: FrameKey) -> Role<'_> {
        match self.0.lock().entry(key) {
            Entry::Occupied(entry) => Role::Follow(entry.get().clone()),
            Entry::Vacant(entry) => {
                let flight = entry.insert(Arc::default()).clone();
                Role::Lead(Lead { flights: self, key, flight, outcome: Outcome::Decoded(Vec::new()) })
            }
        }
    }
}

/// Held by the thread that reads a frame. Dropping it wakes the waiting threads.
pub(super) struct Lead<'a> {
    flights: &'a Flights,
    key: FrameKey,
    flight: Arc<Flight>,
    outcome: Outcome,
}

impl Lead<'_> {
    /// Ends the read with these blocks.
    pub(super) fn decoded(mut self, blocks: Vec<(BlockId, Arc<Block>)>) {
        self.outcome = Outcome::Decoded(blocks);
    }

    /// Ends the read with an error.
    pub(super) fn failed(mut self, error: &Error) {
        self.outcome = Outcome::Failed(error.kind(), error.with_causes());
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights.0.lock().remove(&self.key);
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Decoded(Vec::new()));
        *self.flight.outcome.lock() = Some(outcome);
        self.flight.ended.notify_all();
    }
}
