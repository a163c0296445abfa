//! The other end of a connection, as those see it who read requests and write replies: a socket, or what encrypts for
//! one.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use socket2::Socket;

/// Somebody to read from and to write to. One thread reads and one writes, at the same time.
pub(crate) trait Peer: Sync {
    /// Reads what is there, or waits for it. 0: nothing will come any more.
    ///
    /// # Errors
    /// `WouldBlock` after the socket's time to read; `Interrupted` when it should be called again.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes some of these bytes.
    ///
    /// # Errors
    /// `WouldBlock` after the socket's time to write; `Interrupted` when it should be called again.
    fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends both directions at once, with nothing said; who waits in the other two wakes.
    fn cut_off(&self);
}

impl Peer for Socket {
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(bytes)
    }

    fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(slices)
    }

    fn cut_off(&self) {
        // It fails when the other end has done it already.
        let _ = self.shutdown(Shutdown::Both);
    }
}
