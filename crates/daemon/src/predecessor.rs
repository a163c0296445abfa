//! A server that this one has replaced, and that may still hold the store's lock.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::Read;
use std::os::unix::net::UnixStream;

use platter_image::{Error, Result};

/// The connection to that server.
#[derive(Debug)]
pub(crate) struct Predecessor(UnixStream);

impl Predecessor {
    /// The server sends a message over `stream`, or closes it, when it has released the lock.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Waits until the server has released the lock, at most for the stream's read timeout.
    ///
    /// # Errors
    /// `Transient` after the timeout.
    pub(crate) fn wait(&self) -> Result<()> {
        match (&self.0).read(&mut [0; 64]) {
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => Err(Error::transient(
                "the server that this one has replaced still changes the store: try again later",
            )),
            _ => Ok(()),
        }
    }
}
