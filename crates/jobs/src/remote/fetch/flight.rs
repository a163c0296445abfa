//! What somebody waits for: told to all who wait, once.

use parking_lot::{Condvar, Mutex};

use platter_image::{BlockPlace, Error, ErrorKind, Result};

/// How it ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It stands there.
    Here(BlockPlace),
    /// The origin does not have it, or does not give it to us.
    Missing,
    /// It could not be had.
    Failed(ErrorKind, String),
}

/// Something on its way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

impl Flight {
    /// Tells those who wait.
    pub(super) fn end(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.ended.notify_all();
    }

    /// Waits for the end: where it stands, if it is there. That it ends is the requests' promise, each of which has a
    /// limit in time.
    pub(super) fn wait(&self) -> Result<Option<BlockPlace>> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |outcome| outcome.is_none());
        match &*outcome {
            Some(Outcome::Here(place)) => Ok(Some(*place)),
            Some(Outcome::Missing) | None => Ok(None),
            Some(Outcome::Failed(kind, what)) => Err(Error::new(*kind, what.clone())),
        }
    }
}
