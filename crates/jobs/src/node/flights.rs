//! Blocks that are being fetched: whoever wants one of them too waits for the thread that has begun.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, Result};

/// How a fetch ended: in doubt nothing is said, and whoever waited looks for himself.
type Outcome = Result<(), (ErrorKind, String)>;

/// A fetch under way.
#[derive(Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

/// All fetches under way.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<BlockId, Arc<Flight>>>);

/// What to do about a block.
pub(super) enum Part<'a> {
    /// Fetch it: others wait until this is dropped.
    Lead(Lead<'a>),
    /// Wait for it.
    Follow(Arc<Flight>),
}

impl Flights {
    /// Takes part in fetching that block.
    pub(super) fn join(&self, id: &BlockId) -> Part<'_> {
        match self.lock().entry(*id) {
            Entry::Occupied(entry) => Part::Follow(entry.get().clone()),
            Entry::Vacant(entry) => {
                let flight = entry.insert(Arc::default()).clone();
                Part::Lead(Lead { flights: self, id: *id, flight, outcome: Ok(()) })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockId, Arc<Flight>>> {
        self.0.lock()
    }
}

impl Flight {
    /// Waits for the end.
    ///
    /// # Errors
    /// The failure of the thread that fetched: an origin that is away is waited for once, not by each in turn.
    pub(super) fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |outcome| outcome.is_none());
        match &*outcome {
            Some(Err((kind, what))) => Err(Error::new(*kind, what.clone())),
            _ => Ok(()),
        }
    }
}

/// The part of the one thread that fetches.
pub(super) struct Lead<'a> {
    flights: &'a Flights,
    id: BlockId,
    flight: Arc<Flight>,
    outcome: Outcome,
}

impl Lead<'_> {
    /// Ends it: the block could not be had.
    pub(super) fn failed(mut self, error: &Error) {
        let mut what = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            what = format!("{what}: {cause}");
            source = cause.source();
        }
        self.outcome = Err((error.kind(), what));
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.id);
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        *self.flight.outcome.lock() = Some(outcome);
        self.flight.ended.notify_all();
    }
}
