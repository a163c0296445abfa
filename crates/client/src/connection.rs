//! One connection to an origin, below HTTP: a unix socket, or TLS over TCP.
//!
//! Owns connecting, its time limits, and the messages for its failures. Proxies are not used: an origin is a machine of
//! one's own.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use platter_image::{Error, Result};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::address::ServerAddress;

/// Longest time for connecting to one address, for the TLS handshake, and for each of its steps.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Opens connections to one origin.
pub(super) struct OriginConnector {
    pub(super) address: ServerAddress,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// An open connection.
pub(super) struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
    /// The timeouts that were set last.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

enum Stream {
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl OriginConnector {
    fn open(&self) -> Result<Stream> {
        match (&self.address, &self.tls) {
            (ServerAddress::Unix(path), _) => {
                let stream = UnixStream::connect(path).map_err(|error| self.unreachable(error))?;
                Ok(Stream::Unix(stream))
            }
            (ServerAddress::Tls { host, port }, Some(config)) => {
                let stream = self.connect(host, *port)?;
                self.speak_tls(host, stream, config.clone()).map(|stream| Stream::Tls(Box::new(stream)))
            }
            (ServerAddress::Tls { .. }, None) => {
                Err(Error::bug("no TLS configuration for an origin with TLS"))
            }
        }
    }

    fn connect(&self, host: &str, port: u16) -> Result<TcpStream> {
        let addresses = (host, port).to_socket_addrs().map_err(|error| self.unreachable(error))?;
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
                Ok(stream) => {
                    return stream.set_nodelay(true).map(|()| stream).map_err(|it| self.unreachable(it));
                }
                Err(error) => last = error,
            }
        }
        Err(self.unreachable(last))
    }

    fn speak_tls(
        &self,
        host: &str,
        stream: TcpStream,
        config: Arc<ClientConfig>,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = server_name(host)?;
        let connection =
            ClientConnection::new(config, name).map_err(|error| Error::bug(format!("TLS: {error}")))?;
        let mut stream = StreamOwned::new(connection, stream);
        let until = Instant::now() + CONNECT_TIME_MAX;
        while stream.conn.is_handshaking() || stream.conn.wants_write() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.unreachable(ErrorKind::TimedOut.into()));
            }
            let limits = stream.sock.set_read_timeout(Some(left));
            limits
                .and_then(|()| stream.sock.set_write_timeout(Some(left)))
                .map_err(|error| self.unreachable(error))?;
            match handshake_step(&mut stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => done.map_err(|error| self.handshake_failed(error))?,
            }
        }
        Ok(stream)
    }

    fn unreachable(&self, error: io::Error) -> Error {
        let address = &self.address;
        let what = match error.kind() {
            // A missing socket only means that no origin is listening.
            ErrorKind::NotFound => return Error::transient(format!("no origin listens at {address}")),
            ErrorKind::ConnectionRefused => format!("no origin listens at {address}"),
            ErrorKind::PermissionDenied => return Error::io(format!("opening {address}"), error),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("the origin at {address} does not answer within {} s", CONNECT_TIME_MAX.as_secs())
            }
            _ => format!("the origin at {address} cannot be reached"),
        };
        Error::transient(what).with_source(error)
    }

    fn handshake_failed(&self, error: io::Error) -> Error {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let address = &self.address;
        match tls {
            Some(rustls::Error::InvalidCertificate(why)) => {
                let why = match why {
                    CertificateError::Other(other) => other.0.to_string(),
                    why => format!(
                        "{why:?}; trust its fingerprint with --fingerprint, or its authority with --ca"
                    ),
                };
                Error::refused(format!("the certificate of the origin at {address} is not trusted: {why}"))
            }
            Some(other) => Error::refused(format!("TLS with {address} failed: {other}")),
            None => self.unreachable(error),
        }
    }
}

impl Connector for OriginConnector {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let stream = self.open().map_err(|error| ureq::Error::Other(Box::new(error)))?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Connection { stream, buffers, read_timeout: None, write_timeout: None }))
    }
}

/// Resolves nothing, because the connector knows the address.
#[derive(Debug)]
pub(super) struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let limit = limit(timeout.for_write())?;
        if limit != self.write_timeout {
            self.stream.socket().set_write_timeout(limit)?;
            self.write_timeout = limit;
        }
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).and_then(|()| self.stream.flush()).map_err(timed_out)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let limit = limit(timeout.for_read())?;
        if limit != self.read_timeout {
            self.stream.socket().set_read_timeout(limit)?;
            self.read_timeout = limit;
        }
        let length = self.stream.read(self.buffers.input_append_buf()).map_err(timed_out)?;
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.is_open().unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

/// The time that is left; `None`: any time. Without this check, each byte would prolong a time that is over.
fn limit(timeout: NextTimeout) -> Result<Option<Duration>, ureq::Error> {
    match timeout.after.is_zero() {
        true => Err(ureq::Error::Timeout(timeout.reason)),
        false => Ok(timeout.not_zero().map(|limit| *limit)),
    }
}

/// Sockets report a timeout as `WouldBlock`.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no data arrived for too long"),
        _ => error,
    }
}

/// The common operations of both kinds of sockets.
enum Socket<'a> {
    Unix(&'a UnixStream),
    Tcp(&'a TcpStream),
}

impl Socket<'_> {
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(limit),
            Self::Tcp(socket) => socket.set_read_timeout(limit),
        }
    }

    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_write_timeout(limit),
            Self::Tcp(socket) => socket.set_write_timeout(limit),
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(nonblocking),
            Self::Tcp(socket) => socket.set_nonblocking(nonblocking),
        }
    }
}

impl Stream {
    fn socket(&self) -> Socket<'_> {
        match self {
            Self::Unix(socket) => Socket::Unix(socket),
            Self::Tls(stream) => Socket::Tcp(&stream.sock),
        }
    }

    /// Whether an idle connection can be reused: the other side has neither closed it nor sent anything.
    fn is_open(&mut self) -> io::Result<bool> {
        self.socket().set_nonblocking(true)?;
        let silent = match self {
            Self::Unix(socket) => would_block(&socket.read(&mut [0])),
            Self::Tls(stream) => is_silent(stream),
        };
        self.socket().set_nonblocking(false)?;
        Ok(silent)
    }
}

/// Whether no data arrived; tickets for later TLS sessions may have.
fn is_silent(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> bool {
    loop {
        let read = stream.conn.read_tls(&mut stream.sock);
        if would_block(&read) {
            return true;
        }
        if !matches!(read, Ok(1..)) {
            return false;
        }
        match stream.conn.process_new_packets() {
            Ok(state) if !state.peer_has_closed() && state.plaintext_bytes_to_read() == 0 => {}
            _ => return false,
        }
    }
}

fn would_block(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl fmt::Debug for OriginConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginConnector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Writes or reads once. The connection's own loop would go on for as long as single bytes arrive.
fn handshake_step(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> io::Result<()> {
    let StreamOwned { conn, sock } = stream;
    if conn.wants_write() {
        return conn.write_tls(sock).map(drop);
    }
    if conn.read_tls(sock)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    conn.process_new_packets().map(drop).map_err(|error| {
        // Tells the origin why, if it still listens.
        let _ = conn.write_tls(sock);
        io::Error::new(ErrorKind::InvalidData, error)
    })
}
/// The name that a server's certificate may have. The scope of a link-local address is of this machine only.
fn server_name(host: &str) -> Result<ServerName<'static>> {
    let name = host.split_once('%').map_or(host, |(address, _)| address);
    ServerName::try_from(name.to_owned())
        .map_err(|_| Error::refused(format!("{host} is neither a host name nor an address")))
}
