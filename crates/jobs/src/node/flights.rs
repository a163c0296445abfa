//! Blocks that are being fetched: whoever wants one of them too waits for the thread that has begun.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, FoundBlock, Result};

/// How a fetch ended.
type Outcome = Result<Option<FoundBlock>, (ErrorKind, String)>;

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
                Part::Lead(Lead { flights: self, id: *id, flight, outcome: Err(unfinished()) })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockId, Arc<Flight>>> {
        self.0.lock()
    }
}

impl Flight {
    /// Waits for the end: what was found.
    ///
    /// # Errors
    /// The failure of the thread that fetched: an origin that is away is waited for once, not by each in turn.
    pub(super) fn wait(&self) -> Result<Option<FoundBlock>> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |outcome| outcome.is_none());
        match &*outcome {
            Some(Ok(found)) => Ok(found.clone()),
            Some(Err((kind, what))) => Err(Error::new(*kind, what.clone())),
            None => Ok(None),
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
    /// Ends it.
    pub(super) fn end(mut self, found: &Result<Option<FoundBlock>>) {
        self.outcome = match found {
            Ok(found) => Ok(found.clone()),
            Err(error) => Err((error.kind(), with_causes(error))),
        };
    }
}

/// What those who wait are told if the thread ends otherwise.
fn unfinished() -> (ErrorKind, String) {
    (ErrorKind::Transient, "the thread that fetched it ended".into())
}

fn with_causes(error: &Error) -> String {
    let mut what = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        what = format!("{what}: {cause}");
        source = cause.source();
    }
    what
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.id);
        let outcome = std::mem::replace(&mut self.outcome, Err(unfinished()));
        *self.flight.outcome.lock() = Some(outcome);
        self.flight.ended.notify_all();
    }
}
