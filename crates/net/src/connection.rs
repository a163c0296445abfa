//! A reliable channel: a TCP connection that carries messages and never blocks.
//!
//! Owns what was read but makes no whole message yet, and what could not be written yet; both are bounded.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use platter_cast::{MESSAGE_BYTES_MAX, MessageBuffer};
use platter_image::{IoContext, Result};

/// Most bytes that wait to be written: a peer that does not read for that long has gone.
const OUTBOX_BYTES_MAX: usize = 64 << 10;

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    inbox: MessageBuffer,
    outbox: Vec<u8>,
}

impl Connection {
    /// Takes a connected stream over.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(true).context(|| "making a connection non-blocking".into())?;
        stream.set_nodelay(true).context(|| "making a connection prompt".into())?;
        Ok(Self { stream, inbox: MessageBuffer::default(), outbox: Vec::new() })
    }

    /// Hands all messages that are there to `handle`. False: the connection has ended, or must.
    pub(crate) fn read(&mut self, mut handle: impl FnMut(&[u8])) -> bool {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    let mut fits = self.inbox.push(&bytes[..count]);
                    while let Some(message) = self.inbox.next_message() {
                        handle(&message);
                        fits &= self.inbox.push(&[]);
                    }
                    if !fits {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Writes a message, now or when there is room. False: the connection has ended, or must.
    pub(crate) fn write(&mut self, message: &[u8]) -> bool {
        self.outbox.extend_from_slice(message);
        self.outbox.len() <= OUTBOX_BYTES_MAX && self.flush()
    }

    /// Writes what waits. False: the connection has ended.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return false,
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether something waits to be written.
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }
}
