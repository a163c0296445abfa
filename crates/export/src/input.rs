//! Buffered input from a client.
//!
//! Owns the bytes that were read and not used yet. A client may be silent between requests for as long as it likes; one
//! that stops in the middle of a request for the server's time limit has gone. When a pause is ordered, reading stops
//! wherever it is, and [`Input::into_unread`] gives everything that belongs to requests that were not begun.

use std::io;
use std::time::Duration;

use platter_image::{Error, Result};
use socket2::Socket;

use crate::pause::{Pause, Woken};
use crate::peer::Peer;

/// Bytes per read call: over two thousand requests without payload, or many small writes.
const INPUT_BYTES: usize = 64 << 10;

/// The reading side of a connection.
pub(crate) struct Input<'a, P: ?Sized = Socket> {
    peer: &'a P,
    pause: &'a Pause,
    /// A client may stop for so long in the middle of a request.
    stall_time: Duration,
    /// Reading stopped because of the pause.
    was_paused: bool,
    /// What comes before `bytes`: read by an earlier process, or put back.
    unread: Vec<u8>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The result of waiting for bytes.
enum Received {
    /// So many; 0 when the client has hung up.
    Bytes(usize),
    /// A pause is ordered.
    Paused,
}

impl<'a, P: Peer + ?Sized> Input<'a, P> {
    /// Begins at a request; `unread` was read before and not used.
    pub(crate) fn new(peer: &'a P, pause: &'a Pause, stall_time: Duration, unread: Vec<u8>) -> Self {
        let bytes = vec![0; INPUT_BYTES].into();
        Self { peer, pause, stall_time, was_paused: false, unread, bytes, start: 0, end: 0 }
    }

    /// Whether reading stopped because of a pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.was_paused
    }

    /// Number of buffered bytes.
    pub(crate) fn available(&self) -> usize {
        self.unread.len() + self.end - self.start
    }

    /// What the next request begins with; `None` when the client has hung up before it, or a pause is ordered.
    ///
    /// # Errors
    /// `Transient` when the client stalls within it; `Io`.
    pub(crate) fn header<const LENGTH: usize>(&mut self) -> Result<Option<[u8; LENGTH]>> {
        if self.pause.is_ordered() {
            self.was_paused = true;
            return Ok(None);
        }
        while self.available() < LENGTH {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let is_between = self.available() == 0;
            let time = (!is_between).then_some(self.stall_time);
            match receive(self.peer, self.pause, time, &mut self.bytes[self.end..])? {
                Received::Paused => {
                    self.was_paused = true;
                    return Ok(None);
                }
                Received::Bytes(0) if is_between => return Ok(None),
                Received::Bytes(0) => return Err(cut_short()),
                Received::Bytes(count) => self.end += count,
            }
        }
        let mut header = [0; LENGTH];
        self.take(&mut header);
        Ok(Some(header))
    }

    /// Fills `payload` with the following bytes. False when a pause was ordered before all of it came: then what came
    /// is unread.
    ///
    /// # Errors
    /// `Transient` when the client stalls or disconnects before the end; `Io`.
    pub(crate) fn payload(&mut self, payload: &mut [u8]) -> Result<bool> {
        let mut filled = self.take(payload);
        while filled < payload.len() {
            match receive(self.peer, self.pause, Some(self.stall_time), &mut payload[filled..])? {
                Received::Bytes(0) => return Err(cut_short()),
                Received::Bytes(count) => filled += count,
                Received::Paused => {
                    self.was_paused = true;
                    self.put_back(&payload[..filled]);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Skips `length` bytes. A pause waits for that.
    ///
    /// # Errors
    /// As for [`Input::payload`].
    pub(crate) fn skip(&mut self, length: u32) -> Result<()> {
        let mut left = length as usize;
        let mut scratch = [0; 4096];
        loop {
            let part = left.min(scratch.len());
            left -= self.take(&mut scratch[..part]);
            if left == 0 {
                return Ok(());
            }
            if self.available() > 0 {
                continue;
            }
            match self.peer.receive(&mut self.bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
                Ok(0) => return Err(cut_short()),
                Ok(count) => (self.start, self.end) = (0, count),
            }
        }
    }

    /// Makes these bytes the next ones.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }

    /// Everything that was read and not used.
    pub(crate) fn into_unread(mut self) -> Vec<u8> {
        self.unread.extend_from_slice(&self.bytes[self.start..self.end]);
        self.unread
    }

    /// Takes what is here, as far as there is room; gives how much.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let early = self.unread.len().min(to.len());
        let (front, rest) = to.split_at_mut(early);
        if early > 0 {
            front.copy_from_slice(&self.unread[..early]);
            self.unread.drain(..early);
        }
        let late = (self.end - self.start).min(rest.len());
        rest[..late].copy_from_slice(&self.bytes[self.start..self.start + late]);
        self.start += late;
        early + late
    }
}

/// One successful read call.
fn receive<P: Peer + ?Sized>(
    peer: &P,
    pause: &Pause,
    time: Option<Duration>,
    bytes: &mut [u8],
) -> Result<Received> {
    loop {
        if !peer.has_more() {
            match pause.wait(peer.socket(), time).map_err(failed)? {
                Woken::Ready => {}
                Woken::Paused if pause.is_ordered() => return Ok(Received::Paused),
                Woken::Paused => continue,
                Woken::TimedOut => return Err(failed(io::ErrorKind::WouldBlock.into())),
            }
        }
        match peer.receive(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(Received::Bytes).map_err(failed),
        }
    }
}

fn failed(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return Error::transient("the client stalled within a request");
    }
    Error::io("reading from the client", error)
}

fn cut_short() -> Error {
    Error::transient("the client disconnected within a request")
}
