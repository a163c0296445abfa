//! The byte stream of one client: plaintext, or TLS from some point on.
//!
//! Owns the TLS records in transit. Encryption and decryption share one state and its lock. Neither holds the lock
//! while it waits for the socket, so a client that does not read can still be read from. Encrypted output is limited to
//! one call, undecrypted input to one buffer.

use parking_lot::Mutex;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use platter_image::{Error, Result};
use rustls::ServerConnection;
use socket2::Socket;

use super::handshake::{receive_until, too_slow};
use super::tls::NbdTls;
use crate::peer::Peer;

/// Bytes encrypted per call: sixteen records.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Encrypted bytes per read call.
const RECEIVE_BYTES: usize = 128 << 10;

/// A client's connection.
pub(super) struct Stream {
    socket: Arc<Socket>,
    tls: OnceLock<Tls>,
}

struct Tls {
    connection: Mutex<ServerConnection>,
    /// Used by the reading thread.
    incoming: Mutex<Incoming>,
    /// The last reading was full, so there may be more that was decrypted.
    has_more: AtomicBool,
    /// Encrypted records not sent yet; the lock holder sends them in order.
    outgoing: Mutex<Vec<u8>>,
}

impl Stream {
    /// A plaintext stream.
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, tls: OnceLock::new() }
    }

    /// Whether TLS has begun: its keys stay in this process.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Runs the TLS handshake with a client that was told to start it.
    ///
    /// # Errors
    /// `Refused` when the client's certificate is invalid; `Corrupt` when it does not speak TLS; `Transient` when it
    /// disconnects or misses the deadline; `Io`.
    pub(super) fn start_tls(&self, tls: &NbdTls, deadline: Instant) -> Result<()> {
        let connection = ServerConnection::new(Arc::clone(&tls.0));
        let mut connection = connection.map_err(|error| Error::bug(error.to_string()))?;
        connection.set_buffer_limit(Some(SEND_BYTES_MAX));
        let mut incoming = Incoming::default();
        let mut outgoing = Vec::new();
        while connection.is_handshaking() {
            let mut result = Ok(());
            if incoming.is_empty() && !connection.wants_write() {
                let count = receive_until(&self.socket, &*self.socket, &mut incoming.bytes, deadline)?;
                (incoming.start, incoming.end) = (0, count);
            }
            while result.is_ok() && !incoming.is_empty() && connection.is_handshaking() {
                result = incoming.feed(&mut connection);
            }
            // A rejected client also gets the reason (TLS alert).
            let sent =
                collect(&mut connection, &mut outgoing).and_then(|()| send_all(&self.socket, &mut outgoing));
            result.map_err(refusal)?;
            sent.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => too_slow(),
                _ => Error::io("writing to the client", error),
            })?;
        }
        let tls = Tls {
            connection: connection.into(),
            // Bytes received with the end of the handshake may contain the first request.
            has_more: AtomicBool::new(true),
            incoming: incoming.into(),
            outgoing: outgoing.into(),
        };
        self.tls.set(tls).map_err(|_| Error::bug("TLS begins once"))
    }

    /// Sends the end of the TLS stream, if possible.
    pub(super) fn say_goodbye(&self) {
        let Some(tls) = self.tls.get() else { return };
        let mut outgoing = tls.outgoing.lock();
        let collected = {
            let mut connection = tls.connection.lock();
            connection.send_close_notify();
            collect(&mut connection, &mut outgoing)
        };
        // Failure means that the client is gone already.
        let _ = collected.and_then(|()| send_all(&self.socket, &mut outgoing));
    }
}

impl Peer for Stream {
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.tls.get() {
            Some(tls) => tls.receive(&self.socket, bytes),
            None => self.socket.receive(bytes),
        }
    }

    fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.tls.get() {
            Some(tls) => tls.send(&self.socket, slices),
            None => self.socket.send_slices(slices),
        }
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn has_more(&self) -> bool {
        self.tls.get().is_some_and(|tls| tls.has_more.load(Ordering::Relaxed))
    }

    fn cut_off(&self) {
        self.socket.cut_off();
    }
}

impl Tls {
    /// Reads the socket at most once, so the socket's timeout limits this call.
    fn receive(&self, socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
        let received = self.receive_some(socket, bytes, self.has_more.load(Ordering::Relaxed));
        // All received bytes are decrypted, unless the buffer was full.
        let is_full = received.as_ref().is_ok_and(|count| *count == bytes.len());
        self.has_more.store(is_full, Ordering::Relaxed);
        received
    }

    fn receive_some(&self, socket: &Socket, bytes: &mut [u8], has_more: bool) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        let filled = self.decrypt(&mut incoming, bytes)?;
        if let Some(count) = filled {
            return Ok(count);
        }
        if has_more {
            // There were no further bytes: the reader then waits for the socket.
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = socket.receive(&mut incoming.bytes)?;
        (incoming.start, incoming.end) = (0, count);
        // A missing TLS close is harmless: requests have lengths, so truncation is noticed.
        if count == 0 {
            return Ok(0);
        }
        self.decrypt(&mut incoming, bytes)?.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// Returns decrypted bytes: `None` if there are none yet, 0 after the client closed the stream.
    fn decrypt(&self, incoming: &mut Incoming, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = self.connection.lock();
        let mut filled = 0;
        loop {
            while filled < bytes.len() {
                match connection.reader().read(&mut bytes[filled..]) {
                    Ok(0) => return Ok(Some(filled)),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if filled == bytes.len() || incoming.is_empty() {
                return Ok((filled > 0).then_some(filled));
            }
            incoming.feed(&mut connection)?;
        }
    }

    fn send(&self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing.lock();
        let count = {
            let mut connection = self.connection.lock();
            let count = connection.writer().write_vectored(slices)?;
            collect(&mut connection, &mut outgoing)?;
            count
        };
        send_all(socket, &mut outgoing)?;
        Ok(count)
    }
}

/// Received bytes that were not decrypted yet.
struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        Self { bytes: vec![0; RECEIVE_BYTES].into(), start: 0, end: 0 }
    }
}

impl Incoming {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Decrypts some of them. The plaintext must be read before the next call.
    fn feed(&mut self, connection: &mut ServerConnection) -> io::Result<()> {
        let mut rest = &self.bytes[self.start..self.end];
        connection.read_tls(&mut rest)?;
        self.start = self.end - rest.len();
        connection.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }
}

/// Takes the finished records.
fn collect(connection: &mut ServerConnection, outgoing: &mut Vec<u8>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(outgoing)?;
    }
    Ok(())
}

/// Sends and removes all records, even on failure, because nothing can be sent after a failure.
fn send_all(mut socket: &Socket, outgoing: &mut Vec<u8>) -> io::Result<()> {
    let result = socket.write_all(outgoing);
    outgoing.clear();
    result
}

/// The error for a failed TLS handshake.
fn refusal(error: io::Error) -> Error {
    let below = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match below {
        Some(error @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
            Error::refused(format!("the client's certificate: {error}"))
        }
        Some(error) => Error::corrupt(format!("TLS handshake failed: {error}")),
        None => Error::io("reading from the client", error),
    }
}
