//! The other end of a connection, as the code that reads requests and writes replies sees it: a socket, or TLS over one.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// The other end of a connection. One thread reads and one writes, at the same time.
pub(crate) trait Peer: Sync {
    /// Reads available bytes, or waits for some. 0 means end of stream.
    ///
    /// # Errors
    /// `WouldBlock` after the socket's read timeout; `Interrupted` when the call should be repeated.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes some of these bytes.
    ///
    /// # Errors
    /// `WouldBlock` after the socket's write timeout; `Interrupted` when the call should be repeated.
    fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// What is below, to wait for.
    fn socket(&self) -> &Socket;

    /// Whether [`Peer::receive`] may have bytes without reading the socket.
    fn has_more(&self) -> bool {
        false
    }

    /// Ends both directions at once without a goodbye; threads that wait in the other calls wake.
    fn cut_off(&self);
}

impl Peer for Socket {
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(bytes)
    }

    fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(slices)
    }

    fn socket(&self) -> &Socket {
        self
    }

    fn cut_off(&self) {
        // It fails if the other end has already closed.
        let _ = self.shutdown(Shutdown::Both);
    }
}
