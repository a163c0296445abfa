//! A server that this one has replaced, and that may still hold the store's lock.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::Read;
use std::os::unix::net::UnixStream;

use platter_image::{Error, Result};

/// See above.
#[derive(Debug)]
pub(crate) struct Predecessor(UnixStream);

impl Predecessor {
    /// It says something over this connection, or hangs up, when it has released the lock.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Waits until it has released the lock, for the connection's time limit.
    ///
    /// # Errors
    /// `Transient` when it does not in time.
    pub(crate) fn wait(&self) -> Result<()> {
        match (&self.0).read(&mut [0; 64]) {
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => Err(Error::transient(
                "the server that this one has replaced still changes the store: try again later",
            )),
            _ => Ok(()),
        }
    }
}
