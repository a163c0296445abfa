//! The reliable channel: a non-blocking TCP connection that carries messages.
//!
//! It buffers incomplete messages that were read, and messages that could not be written yet; both buffers
//! are bounded.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use platter_cast::{MESSAGE_BYTES_MAX, MessageBuffer};
use platter_image::{IoContext, Result};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// Reads from a connection before the others have their turn.
const READS_AT_ONCE: usize = 16;
/// The most bytes waiting to be written. A peer that lets more accumulate counts as gone.
const OUTBOX_BYTES_MAX: usize = 64 << 10;

/// A connection that is being made. The thread that makes it receives datagrams meanwhile.
pub(crate) struct Connecting {
    pub(crate) stream: TcpStream,
    until: Instant,
}

impl Connecting {
    /// Begins to connect.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn begin(to: SocketAddr, time: Duration) -> Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))
            .context(|| "opening a TCP socket".into())?;
        socket.set_nonblocking(true).context(|| "setting a connection to non-blocking".into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(error).context(|| "connecting".into())
            }
            _ => Ok(Self { stream: socket.into(), until: Instant::now() + time }),
        }
    }

    /// Returns that there is a connection now, or why there is none. `None` until that is known.
    pub(crate) fn poll(&self) -> Option<Result<()>> {
        let failed = match self.stream.take_error() {
            Ok(None) if self.stream.peer_addr().is_ok() => return Some(Ok(())),
            Ok(None) if Instant::now() < self.until => return None,
            Ok(None) => io::ErrorKind::TimedOut.into(),
            Ok(Some(error)) | Err(error) => error,
        };
        Some(Err(failed).context(|| "connecting".into()))
    }
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    inbox: MessageBuffer,
    outbox: Vec<u8>,
}

impl Connection {
    /// Uses a connected stream.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(true).context(|| "setting a connection to non-blocking".into())?;
        stream.set_nodelay(true).context(|| "disabling send delay on a connection".into())?;
        Ok(Self { stream, inbox: MessageBuffer::default(), outbox: Vec::new() })
    }

    /// Passes all complete messages to `handle`. Returns `false` if the connection has ended or must be
    /// closed.
    pub(crate) fn read(&mut self, mut handle: impl FnMut(&[u8])) -> bool {
        self.read_while(usize::MAX, |message| {
            handle(message);
            true
        })
    }

    /// Passes complete messages to `handle` until it returns `false`. Returns `false` if the connection has ended or must be
    /// closed, also because of more than `messages_max` messages.
    pub(crate) fn read_while(
        &mut self,
        mut messages_max: usize,
        mut handle: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        for _ in 0..READS_AT_ONCE {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    let mut fits = self.inbox.push(&bytes[..count]);
                    while let Some(message) = self.inbox.next_message() {
                        if messages_max == 0 {
                            return false;
                        }
                        messages_max -= 1;
                        if !handle(&message) {
                            return true;
                        }
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
        // The rest is read next time, so that one connection does not keep the others waiting.
        true
    }

    /// Writes a message, now or when there is space. Returns `false` if the connection has ended or must be
    /// closed.
    pub(crate) fn write(&mut self, message: &[u8]) -> bool {
        self.outbox.extend_from_slice(message);
        self.outbox.len() <= OUTBOX_BYTES_MAX && self.flush()
    }

    /// Writes waiting bytes. Returns `false` if the connection has ended.
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

    /// Whether bytes are waiting to be written.
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }
}
