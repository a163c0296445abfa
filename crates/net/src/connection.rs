//! The reliable channel: a non-blocking TCP connection that carries messages.
//!
//! It buffers incomplete messages that were read, and messages that could not be written yet; both buffers
//! are bounded. A connection may die without a word, because a firewall has forgotten it or a machine has lost its power: the kernel is
//! told to notice that.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use platter_cast::{MESSAGE_BYTES_MAX, MessageBuffer, Opening};
use platter_image::{IoContext, Result};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Reads from a connection before the others have their turn.
const READS_AT_ONCE: usize = 16;
/// The most bytes waiting to be written. A peer that lets more accumulate counts as gone.
const OUTBOX_BYTES_MAX: usize = 64 << 10;
/// A peer that reads nothing for this long while bytes are waiting counts as gone.
const STUCK_MAX: Duration = Duration::from_secs(5);
/// How long what a receiver has sent may stay unacknowledged. It waits for the answer to its result for five seconds only, so it must connect
/// again before.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);
/// The same at a sender, also for the probes of an idle connection. Several of them fit, because one may be lost.
const UNACKNOWLEDGED_BY_RECEIVER_MAX: Duration = Duration::from_secs(30);
/// After how long a sender probes an idle connection.
const KEEPALIVE_TIME: Duration = Duration::from_secs(15);
/// The pause between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

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
    /// Since when no byte of the outbox could be written.
    stuck_since: Option<Instant>,
}

impl Connection {
    /// Uses a connected stream. Says this first.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(stream: TcpStream, first: &[u8]) -> Result<Self> {
        stream.set_nonblocking(true).context(|| "setting a connection to non-blocking".into())?;
        stream.set_nodelay(true).context(|| "disabling send delay on a connection".into())?;
        Ok(Self { stream, inbox: MessageBuffer::default(), outbox: first.to_vec(), stuck_since: None })
    }

    /// Uses a receiver's stream to its sender, and says which session it is for. It ends soon after it is dead and something is said.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn to_sender(stream: TcpStream, opening: Opening) -> Result<Self> {
        let set = SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
        set.context(|| "setting the timeout of a connection".into())?;
        Self::new(stream, &opening.to_bytes())
    }

    /// Uses a sender's stream to a receiver. It ends some time after it is dead, also if nothing is said.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn to_receiver(stream: TcpStream) -> Result<Self> {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
        let socket = SockRef::from(&stream);
        // With this option, the kernel heeds the time and not the number of probes.
        let set = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_BY_RECEIVER_MAX));
        set.and_then(|()| socket.set_tcp_keepalive(&keepalive))
            .context(|| "setting the timeouts of a connection".into())?;
        Self::new(stream, &[])
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
        self.outbox.len() <= OUTBOX_BYTES_MAX && self.write_waiting()
    }

    /// Writes waiting bytes. Returns `false` if the connection has ended, or its peer has read nothing for long.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        if !self.write_waiting() {
            return false;
        }
        if self.outbox.is_empty() {
            self.stuck_since = None;
            return true;
        }
        now.saturating_duration_since(*self.stuck_since.get_or_insert(now)) < STUCK_MAX
    }

    fn write_waiting(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return false,
                Ok(count) => {
                    self.outbox.drain(..count);
                    self.stuck_since = None;
                }
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The kernel ends it: tests/cast.sh has a connection that dies without a word.
    #[test]
    fn the_kernel_is_told_to_notice_a_dead_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Connection::to_sender(
            TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            Opening::default(),
        )
        .unwrap();
        let sender = Connection::to_receiver(listener.accept().unwrap().0).unwrap();
        let [receiver, sender] = [&receiver, &sender].map(|it| SockRef::from(&it.stream));
        assert_eq!(receiver.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_MAX));
        assert_eq!(sender.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_BY_RECEIVER_MAX));
        assert!(sender.keepalive().unwrap() && !receiver.keepalive().unwrap());
        let probes =
            (UNACKNOWLEDGED_BY_RECEIVER_MAX - KEEPALIVE_TIME).as_secs() / KEEPALIVE_INTERVAL.as_secs();
        assert!(probes >= 3, "one may be lost");
    }
}
