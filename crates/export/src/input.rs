//! What a client sends, read in large pieces.
//!
//! Owns the bytes that were read and not used yet. A client may be silent between requests for as long as it likes; one
//! that stops in the middle of a request for the socket's time limit has gone.

use std::io;

use platter_image::{Error, Result};
use socket2::Socket;

use crate::peer::Peer;

/// Bytes read at once: over two thousand requests without payload, or many small writes.
const INPUT_BYTES: usize = 64 << 10;

/// The reading side of a connection.
pub(crate) struct Input<'a, P: ?Sized = Socket> {
    peer: &'a P,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<'a, P: Peer + ?Sized> Input<'a, P> {
    /// Begins at the first request.
    pub(crate) fn new(peer: &'a P) -> Self {
        Self { peer, bytes: vec![0; INPUT_BYTES].into(), start: 0, end: 0 }
    }

    /// Bytes that are here.
    pub(crate) fn available(&self) -> usize {
        self.end - self.start
    }

    /// What the next request begins with; `None` when the client has hung up before it.
    ///
    /// # Errors
    /// `Transient` when the client stops in the middle; `Io`.
    pub(crate) fn header<const LENGTH: usize>(&mut self) -> Result<Option<[u8; LENGTH]>> {
        while self.available() < LENGTH {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.available());
            }
            let is_between = self.end == 0;
            match receive(self.peer, &mut self.bytes[self.end..]) {
                Ok(0) if is_between => return Ok(None),
                Ok(0) => return Err(cut_short()),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_between => {}
                Err(error) => return Err(failed(error)),
            }
        }
        match self.bytes[self.start..].first_chunk() {
            Some(header) => {
                let header = *header;
                self.start += LENGTH;
                Ok(Some(header))
            }
            None => Err(Error::bug("a request's header fits in the buffer")),
        }
    }

    /// Fills `payload` with what follows.
    ///
    /// # Errors
    /// `Transient` when the client stops or hangs up before; `Io`.
    pub(crate) fn payload(&mut self, payload: &mut [u8]) -> Result<()> {
        let here = self.available().min(payload.len());
        let (front, mut rest) = payload.split_at_mut(here);
        front.copy_from_slice(&self.bytes[self.start..self.start + here]);
        self.start += here;
        while !rest.is_empty() {
            match receive(self.peer, rest).map_err(failed)? {
                0 => return Err(cut_short()),
                count => rest = &mut rest[count..],
            }
        }
        Ok(())
    }

    /// Reads `length` bytes and forgets them.
    ///
    /// # Errors
    /// As for [`Input::payload`].
    pub(crate) fn skip(&mut self, length: u32) -> Result<()> {
        let mut left = length as usize;
        loop {
            let here = self.available().min(left);
            self.start += here;
            left -= here;
            if left == 0 {
                return Ok(());
            }
            (self.start, self.end) = (0, 0);
            match receive(self.peer, &mut self.bytes).map_err(failed)? {
                0 => return Err(cut_short()),
                count => self.end = count,
            }
        }
    }
}

/// One successful call.
fn receive<P: Peer + ?Sized>(peer: &P, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match peer.receive(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn failed(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return Error::transient("the client stopped in the middle of a request");
    }
    Error::io("reading from the client", error)
}

fn cut_short() -> Error {
    Error::transient("the client hung up in the middle of a request")
}
