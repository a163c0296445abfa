//! One connection with a peer: TLS over TCP, with a thread that reads and one that writes.
//!
//! The reader decodes and hashes every frame before it passes it on, and waits while the machine is busy, so TCP slows
//! the peer down. The writer sends the machine's messages; when too many wait ([`FULL_BYTES`]), the machine is told and
//! adds no more until most were sent. Must never pass on an unverified frame, nor wait for the peer without a limit.

use parking_lot::Mutex;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use platter_cast::peer::{NodeId, PeerMessage, PeerStream};
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{Error, IoContext, Result};
use rustix::net::sockopt;
use rustls::Connection;
use socket2::SockRef;

use super::fetcher::Shared;
use super::groups::Groups;
use super::machine::Machine;

/// Waiting bytes above which a link is full, and below which it is no longer full.
const FULL_BYTES: usize = 256 << 10;
const DRAINED_BYTES: usize = 64 << 10;
/// Most unsent bytes in the socket. Without this limit, a busy link has megabytes there, which delay requests and
/// announcements.
const UNSENT_BYTES: u32 = 64 << 10;
/// Overhead of a message in a queue.
const MESSAGE_OVERHEAD: usize = 64;
/// Bytes read from the socket at a time.
const READ_LENGTH: usize = 64 << 10;
/// Plain bytes encrypted at a time; small messages up to this size are sent together.
const WRITE_LENGTH: usize = 16 << 10;
/// TCP probes a connection that was silent for this long, and ends it after some unanswered probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
const KEEPALIVE_LOOKS: u32 = 4;

/// The machine's handle of a connection, which is closed when this is dropped.
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) node: NodeId,
    /// Whether this node opened it.
    pub(super) is_own: bool,
    outgoing: Sender<Outgoing>,
    load: Arc<Load>,
    socket: TcpStream,
}

/// The waiting bytes, known to both threads and the machine.
#[derive(Default)]
struct Load {
    bytes: AtomicUsize,
    is_full: AtomicBool,
}

enum Outgoing {
    Message(PeerMessage),
    /// TLS has data to send.
    Flush,
}

/// A connection after the handshake, and the peer's identity.
pub(super) struct Greeted {
    pub(super) connection: Connection,
    pub(super) socket: TcpStream,
    pub(super) node: NodeId,
    pub(super) is_own: bool,
}

/// Context of a link's threads.
#[derive(Clone)]
pub(super) struct LinkContext {
    pub(super) shared: Weak<Shared>,
    pub(super) groups: Arc<Groups>,
    /// A write without progress for this long ends the link.
    pub(super) silence_max: Duration,
}

impl LinkContext {
    /// Runs a step of the machine. Returns false when it has ended.
    pub(super) fn act(&self, act: impl FnOnce(&mut Machine, Duration)) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.act(act).is_some())
    }
}

impl Link {
    /// Queues a message. Returns false when the link is then full.
    pub(super) fn send(&self, message: PeerMessage) -> bool {
        let bytes = length(&message);
        let waiting = self.load.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        // A writer that ended has reported it.
        let _ = self.outgoing.send(Outgoing::Message(message));
        if waiting <= FULL_BYTES {
            return true;
        }
        self.load.is_full.store(true, Ordering::SeqCst);
        // The writer may have written everything before the flag was set.
        self.load.bytes.load(Ordering::SeqCst) < DRAINED_BYTES
            && self.load.is_full.swap(false, Ordering::SeqCst)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Wakes both threads. The socket may be closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Performs the TLS handshake within a time limit.
///
/// # Errors
/// `Transient` when the other side disconnects or is too slow; `Refused` when it is not the expected node, or unknown.
pub(super) fn shake_hands(
    connection: &mut Connection,
    socket: &mut TcpStream,
    limit: Duration,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    socket.set_nodelay(true).context(|| "setting up a connection".to_owned())?;
    while connection.is_handshaking() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::transient("the handshake of a peer takes too long"));
        }
        let limits = socket.set_read_timeout(Some(left)).and_then(|()| socket.set_write_timeout(Some(left)));
        limits.context(|| "setting up a connection".to_owned())?;
        connection.complete_io(socket).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => Error::refused("a peer is not the expected node").with_source(error),
            _ => Error::transient("a peer disconnected during the handshake").with_source(error),
        })?;
    }
    // Sends the rest of the handshake.
    while connection.wants_write() {
        let written = connection.write_tls(socket);
        written.map_err(|error| {
            Error::transient("a peer disconnected during the handshake").with_source(error)
        })?;
    }
    Ok(())
}

/// Runs a link: reports it to the machine, and reads until it ends. The calling thread is the reader.
pub(super) fn run(number: u64, greeted: Greeted, context: &LinkContext) {
    let node = greeted.node;
    match begin(number, greeted, context) {
        Ok((link, reader)) => {
            if !context.act(|machine, now| machine.handle_linked(now, link)) {
                return;
            }
            let lie = reader.run(context).err();
            // An ended machine need not be told.
            context.act(|machine, now| machine.handle_closed(now, number, node, lie.as_ref()));
        }
        Err(_) => _ = context.act(|machine, now| machine.handle_not_linked(now, node)),
    }
}

fn begin(number: u64, greeted: Greeted, context: &LinkContext) -> Result<(Link, Reader)> {
    let Greeted { connection, socket, node, is_own } = greeted;
    let doing = || "setting up a connection".to_owned();
    socket.set_read_timeout(None).context(doing)?;
    socket.set_write_timeout(Some(context.silence_max)).context(doing)?;
    keep_alive(&socket).map_err(io::Error::from).context(doing)?;
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES).context(doing)?;
    let (outgoing, messages) = unbounded();
    let load = Arc::new(Load::default());
    let connection = Arc::new(Mutex::new(connection));
    let writer = Writer {
        number,
        node,
        connection: connection.clone(),
        socket: socket.try_clone().context(doing)?,
        messages,
        load: load.clone(),
        context: context.clone(),
    };
    let reader = Reader {
        number,
        node,
        connection,
        socket: socket.try_clone().context(doing)?,
        outgoing: outgoing.clone(),
    };
    thread::Builder::new()
        .name("peer-writer".to_owned())
        .spawn(move || writer.run())
        .context(|| "starting a thread for a peer".to_owned())?;
    Ok((Link { number, node, is_own, outgoing, load, socket }, reader))
}

/// A peer whose host has crashed sends nothing, not even a FIN.
fn keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_LOOKS)
}

/// Bytes of a message in the queue.
fn length(message: &PeerMessage) -> usize {
    let contents = match message {
        PeerMessage::Frame { frame, .. } => frame.len(),
        PeerMessage::Filter(piece) => piece.bytes.len(),
        PeerMessage::Changes(changes) => changes.keys.len() * 4,
        PeerMessage::Ask(ask) => ask.ids.len() * 32,
        PeerMessage::End { missing, .. } => missing.len() * 32,
        _ => 0,
    };
    contents + MESSAGE_OVERHEAD
}

struct Writer {
    number: u64,
    node: NodeId,
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    messages: Receiver<Outgoing>,
    load: Arc<Load>,
    context: LinkContext,
}

impl Writer {
    fn run(mut self) {
        let (mut plain, mut cipher) = (Vec::new(), Vec::new());
        while let Ok(first) = self.messages.recv() {
            let mut bytes = put(first, &mut plain);
            // Small messages go out together.
            while plain.len() < WRITE_LENGTH
                && let Ok(next) = self.messages.try_recv()
            {
                bytes += put(next, &mut plain);
            }
            if self.write(&plain, &mut cipher).is_err() {
                // The reader notices this and reports it.
                let _ = self.socket.shutdown(Shutdown::Both);
                return;
            }
            plain.clear();
            let waiting = self.load.bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            if waiting < DRAINED_BYTES && self.load.is_full.swap(false, Ordering::SeqCst) {
                let (number, node) = (self.number, self.node);
                if !self.context.act(|machine, _| machine.handle_drained(number, node)) {
                    return;
                }
            }
        }
    }

    fn write(&mut self, mut plain: &[u8], cipher: &mut Vec<u8>) -> io::Result<()> {
        loop {
            cipher.clear();
            {
                let mut connection = self.connection.lock();
                let (now, later) = plain.split_at(plain.len().min(WRITE_LENGTH));
                connection.writer().write_all(now)?;
                plain = later;
                while connection.wants_write() {
                    connection.write_tls(cipher)?;
                }
            }
            self.socket.write_all(cipher)?;
            if plain.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Appends a message. Returns its bytes in the queue.
fn put(outgoing: Outgoing, plain: &mut Vec<u8>) -> usize {
    let Outgoing::Message(message) = outgoing else { return 0 };
    plain.extend_from_slice(&message.head());
    if let PeerMessage::Frame { frame, .. } = &message {
        plain.extend_from_slice(frame);
    }
    length(&message)
}

struct Reader {
    number: u64,
    node: NodeId,
    connection: Arc<Mutex<Connection>>,
    socket: TcpStream,
    outgoing: Sender<Outgoing>,
}

impl Reader {
    /// Reads until the peer disconnects.
    ///
    /// # Errors
    /// `Corrupt` when the peer sends an invalid message or frame.
    fn run(mut self, context: &LinkContext) -> Result<()> {
        let mut decoder = FrameDecoder::new()?;
        let (mut raw, mut plain) = (vec![0; READ_LENGTH], Vec::new());
        let mut stream = PeerStream::default();
        loop {
            let length = match self.socket.read(&mut raw) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Ok(()),
            };
            // Data that TLS rejects may come from anybody on the path, so the peer is not blamed.
            let Ok(is_open) = self.decrypt(&raw[..length], &mut plain) else { return Ok(()) };
            stream.push(&plain);
            plain.clear();
            while let Some(message) = stream.next_message()? {
                let header = verified(&message, &mut decoder, &context.groups)?;
                let (number, node) = (self.number, self.node);
                let goes_on =
                    context.act(|machine, now| machine.handle_message(now, number, node, message, header));
                if !goes_on {
                    return Ok(());
                }
            }
            if !is_open {
                return Ok(());
            }
        }
    }

    /// Decrypts these bytes and appends the result. Returns false when the peer has closed the connection.
    fn decrypt(&mut self, mut raw: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut connection = self.connection.lock();
        let mut is_open = true;
        while !raw.is_empty() {
            if connection.read_tls(&mut raw)? == 0 {
                // Data after the peer's close notification.
                return Ok(false);
            }
            let state = connection.process_new_packets().map_err(io::Error::other)?;
            is_open &= !state.peer_has_closed();
            let (before, length) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(before + length, 0);
            connection.reader().read_exact(&mut plain[before..])?;
        }
        if connection.wants_write() {
            // An ended writer sends nothing more.
            let _ = self.outgoing.send(Outgoing::Flush);
        }
        Ok(is_open)
    }
}

/// Verifies every block of a frame in a message, and returns its header.
fn verified(
    message: &PeerMessage,
    decoder: &mut FrameDecoder,
    groups: &Groups,
) -> Result<Option<FrameHeader>> {
    let PeerMessage::Frame { frame, .. } = message else { return Ok(None) };
    let (header, contents) = decoder.decode(frame, Verify::Hashes)?;
    groups.learn_frame(&header, contents);
    Ok(Some(header))
}
