//! The bytes of one client, in the clear or, from some point on, over TLS.
//!
//! Owns the records on their way. Encrypting and decrypting share one state, so both take its lock; neither holds it
//! while it waits for the socket, so that a client that does not read can still be read from. What is encrypted is
//! bounded by what one call takes, what is not decrypted yet by one buffer.

use parking_lot::{Mutex, MutexGuard};
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

/// Bytes that are encrypted by one call: sixteen records.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Encrypted bytes that are read at once.
const RECEIVE_BYTES: usize = 128 << 10;

/// A client's connection.
pub(super) struct Stream {
    socket: Arc<Socket>,
    tls: OnceLock<Tls>,
}

struct Tls {
    connection: Mutex<ServerConnection>,
    /// Of the thread that reads.
    incoming: Mutex<Incoming>,
    /// The last reading was full, so there may be more that was decrypted.
    has_more: AtomicBool,
    /// Records that were made and not sent; whoever has the lock sends them in their order.
    outgoing: Mutex<Vec<u8>>,
}

impl Stream {
    /// One in the clear.
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, tls: OnceLock::new() }
    }

    /// Whether TLS has begun: its keys stay in this process.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Agrees on TLS with a client that was told to begin.
    ///
    /// # Errors
    /// `Refused` when the client's certificate is not good; `Corrupt` when it speaks no TLS; `Transient` when it hangs
    /// up, or is not done at the deadline; `Io`.
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
            // A client that is refused is told why, too.
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
            // What came with the end of the handshake may hold the first request.
            has_more: AtomicBool::new(true),
            incoming: incoming.into(),
            outgoing: outgoing.into(),
        };
        self.tls.set(tls).map_err(|_| Error::bug("TLS begins once"))
    }

    /// Tells a client that nothing will come any more, if it can be told.
    pub(super) fn say_goodbye(&self) {
        let Some(tls) = self.tls.get() else { return };
        let mut outgoing = lock(&tls.outgoing);
        let collected = {
            let mut connection = lock(&tls.connection);
            connection.send_close_notify();
            collect(&mut connection, &mut outgoing)
        };
        // Whoever is gone already need not know.
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
    /// Reads the socket at most once, so that its time limit is that of this call.
    fn receive(&self, socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
        let received = self.receive_some(socket, bytes, self.has_more.load(Ordering::Relaxed));
        // All that came is decrypted, unless there was no room for it.
        let is_full = received.as_ref().is_ok_and(|count| *count == bytes.len());
        self.has_more.store(is_full, Ordering::Relaxed);
        received
    }

    fn receive_some(&self, socket: &Socket, bytes: &mut [u8], has_more: bool) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        let filled = self.decrypt(&mut incoming, bytes)?;
        if let Some(count) = filled {
            return Ok(count);
        }
        if has_more {
            // There was none after all: whoever reads waits for the socket first.
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = socket.receive(&mut incoming.bytes)?;
        (incoming.start, incoming.end) = (0, count);
        // A client that vanishes without a goodbye can leave nothing half said: each request has its length.
        if count == 0 {
            return Ok(0);
        }
        self.decrypt(&mut incoming, bytes)?.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// What came and can be decrypted; `None` when that is nothing yet, 0 when the client has said goodbye.
    fn decrypt(&self, incoming: &mut Incoming, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = lock(&self.connection);
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
        let mut outgoing = lock(&self.outgoing);
        let count = {
            let mut connection = lock(&self.connection);
            let count = connection.writer().write_vectored(slices)?;
            collect(&mut connection, &mut outgoing)?;
            count
        };
        send_all(socket, &mut outgoing)?;
        Ok(count)
    }
}

/// Encrypted bytes that came and were not decrypted.
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

    /// Decrypts some of them. What came of it must be read before the next call.
    fn feed(&mut self, connection: &mut ServerConnection) -> io::Result<()> {
        let mut rest = &self.bytes[self.start..self.end];
        connection.read_tls(&mut rest)?;
        self.start = self.end - rest.len();
        connection.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }
}

/// Takes the records that are ready.
fn collect(connection: &mut ServerConnection, outgoing: &mut Vec<u8>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(outgoing)?;
    }
    Ok(())
}

/// Sends all and leaves none, whatever comes of it: after a failure nothing can be sent any more.
fn send_all(mut socket: &Socket, outgoing: &mut Vec<u8>) -> io::Result<()> {
    let result = socket.write_all(outgoing);
    outgoing.clear();
    result
}

/// Why there is no TLS with this client.
fn refusal(error: io::Error) -> Error {
    let below = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match below {
        Some(error @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
            Error::refused(format!("the client's certificate: {error}"))
        }
        Some(error) => Error::corrupt(format!("the client speaks no TLS that we understand: {error}")),
        None => Error::io("reading from the client", error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
