//! What somebody waits for: told to all who wait, once.

use parking_lot::{Condvar, Mutex};

use platter_image::{Error, ErrorKind, Result};

use super::shelf::Shelved;

/// How it ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It came.
    Here(Shelved),
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

    /// Waits for the end: the frame, if there is one. That it ends is the requests' promise, each of which has a
    /// limit in time.
    pub(super) fn wait(&self) -> Result<Option<Shelved>> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |outcome| outcome.is_none());
        match &*outcome {
            Some(Outcome::Here(found)) => Ok(Some(found.clone())),
            Some(Outcome::Missing) | None => Ok(None),
            Some(Outcome::Failed(kind, what)) => Err(Error::new(*kind, what.clone())),
        }
    }
}
