//! The connections of receivers at a sender: accepts them, keeps as many as is allowed, and carries their messages.
//!
//! Must never let connections over which nobody joins take the places of receivers.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Source, Ticket};
use platter_image::{IoContext, Result};

use crate::connection::Connection;
use crate::wake::Interest;

/// Limits for open connections. A connection over which no receiver has joined is a stranger.
const PLACES: Limits = Limits {
    strangers_max: 256,
    strangers_of_one_max: 64,
    stranger_time: Duration::from_secs(10),
    known_max: 4096,
    // Several receivers may run on one machine, in tests.
    known_of_one_max: 256,
};
/// The most messages of a connection that are handled before others have their turn. Receivers send one at a time, so a connection
/// with more is closed.
const MESSAGES_AT_ONCE: usize = 64;
/// Pause after a failed accept (such as too many open files).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The machine that the messages are for.
pub(crate) trait Host {
    /// Handles a message (without its length). Returns whether it was accepted. If not, and nobody has joined over the connection,
    /// the connection is closed after the answer.
    fn handle_message(&mut self, now: Duration, connection: u64, from: IpAddr, message: &[u8]) -> bool;
    /// Answers that nobody can join over this connection.
    fn refuse(&mut self, connection: u64, reason: &str);
    /// Handles the end of a connection.
    fn handle_disconnect(&mut self, now: Duration, connection: u64);
    /// Whether a receiver has joined over this connection.
    fn has_joined(&self, connection: u64) -> bool;
}

struct Peer {
    number: u64,
    address: IpAddr,
    connection: Connection,
    ticket: Ticket,
    has_joined: bool,
    /// It was refused: nothing of it is read, and it is closed when it has been told why.
    is_refused: bool,
}

impl Peer {
    /// Passes on what arrived. Returns `false` if the connection must be closed.
    fn receive(&mut self, now: Duration, host: &mut dyn Host, admission: &mut Admission) -> bool {
        if self.is_refused {
            return self.connection.wants_to_write();
        }
        let (number, address, ticket, is_refused) =
            (self.number, self.address, self.ticket, &mut self.is_refused);
        let keep = self.connection.read_while(MESSAGES_AT_ONCE, |message| {
            // Without a place for its connection, a receiver must not get one among the receivers.
            let place = if host.has_joined(number) { Ok(()) } else { admission.may_become_known(ticket) };
            if let Err(refusal) = place {
                host.refuse(number, &refusal.to_string());
                *is_refused = true;
            } else if !host.handle_message(now, number, address, message) {
                *is_refused = !host.has_joined(number);
            }
            !*is_refused
        });
        if !self.has_joined && host.has_joined(number) {
            self.has_joined = admission.make_known(ticket).is_ok();
            return keep && self.has_joined;
        }
        keep
    }
}

/// The connections.
pub(crate) struct Joins {
    listener: TcpListener,
    peers: Vec<Peer>,
    next_peer: u64,
    /// Decides which connections are kept.
    admission: Admission,
    /// No connection is accepted before this time.
    accept_at: Duration,
    start: Instant,
}

impl Joins {
    /// Accepts joins. Times count from `start`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn over(listener: TcpListener, start: Instant) -> Result<Self> {
        Self::limited(listener, start, PLACES)
    }

    fn limited(listener: TcpListener, start: Instant, places: Limits) -> Result<Self> {
        listener.set_nonblocking(true).context(|| "setting a listener to non-blocking".into())?;
        Ok(Self {
            listener,
            peers: Vec::new(),
            next_peer: 0,
            admission: Admission::new(places),
            accept_at: Duration::ZERO,
            start,
        })
    }

    /// The address of the listener.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().context(|| "reading the address of a listener".into())
    }

    /// Accepts connections, and passes on what arrived.
    pub(crate) fn receive(&mut self, now: Duration, host: &mut dyn Host) {
        self.accept(now, host);
        let (admission, instant) = (&mut self.admission, self.start + now);
        self.peers.retain_mut(|peer| {
            let keep = peer.receive(now, host, admission)
                && !admission.is_over(peer.ticket, instant)
                && peer.connection.flush();
            if !keep {
                admission.leave(peer.ticket);
                host.handle_disconnect(now, peer.number);
            }
            keep
        });
    }

    fn accept(&mut self, now: Duration, host: &mut dyn Host) {
        while now >= self.accept_at {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_at = now + ACCEPT_AGAIN;
                    return;
                }
            };
            let Ok(connection) = Connection::new(stream) else { continue };
            let entered = self.admission.enter(Source::of_host(address.ip()), self.start + now);
            if let Some(displaced) = entered.displaced {
                self.end(now, host, |peer| peer.ticket == displaced);
            }
            self.next_peer += 1;
            let (number, ticket) = (self.next_peer, entered.ticket);
            let address = address.ip();
            self.peers.push(Peer {
                number,
                address,
                connection,
                ticket,
                has_joined: false,
                is_refused: false,
            });
        }
    }

    /// Closes the first connection that matches.
    fn end(&mut self, now: Duration, host: &mut dyn Host, is_it: impl Fn(&Peer) -> bool) {
        let Some(position) = self.peers.iter().position(is_it) else { return };
        let peer = self.peers.swap_remove(position);
        self.admission.leave(peer.ticket);
        host.handle_disconnect(now, peer.number);
    }

    /// Sends a message. A connection that does not take it is closed.
    pub(crate) fn send(&mut self, now: Duration, host: &mut dyn Host, connection: u64, message: &[u8]) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.number == connection) else { return };
        if !peer.connection.write(message) {
            self.end(now, host, |peer| peer.number == connection);
        }
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// What to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let may_accept = self.start.elapsed() >= self.accept_at;
        let listener = Interest { descriptor: self.listener.as_fd(), to_read: may_accept, to_write: false };
        let peers = self.peers.iter().map(|peer| Interest {
            descriptor: peer.connection.stream.as_fd(),
            to_read: !peer.is_refused,
            to_write: peer.connection.wants_to_write(),
        });
        std::iter::once(listener).chain(peers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// A host that accepts joins, the message `j`, and refuses everything else.
    #[derive(Default)]
    struct Room {
        joined: HashSet<u64>,
        handled: usize,
        answers: Vec<(u64, String)>,
    }

    impl Host for Room {
        fn handle_message(&mut self, _: Duration, connection: u64, _: IpAddr, message: &[u8]) -> bool {
            self.handled += 1;
            let is_join = message == b"j";
            if is_join {
                self.joined.insert(connection);
            } else {
                self.answers.push((connection, "what?".into()));
            }
            is_join
        }

        fn refuse(&mut self, connection: u64, reason: &str) {
            self.answers.push((connection, reason.to_owned()));
        }

        fn handle_disconnect(&mut self, _: Duration, connection: u64) {
            self.joined.remove(&connection);
        }

        fn has_joined(&self, connection: u64) -> bool {
            self.joined.contains(&connection)
        }
    }

    fn joins(known_max: usize) -> Joins {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Joins::limited(listener, Instant::now(), Limits { known_max, ..PLACES }).unwrap()
    }

    /// Connects, sends this message so many times, and runs until the connection is answered and closed, or for a while. Returns what it read.
    fn connect(joins: &mut Joins, room: &mut Room, message: &[u8], times: usize) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(joins.address().unwrap()).unwrap();
        let framed = [&(message.len() as u32).to_le_bytes(), message].concat();
        stream.write_all(&framed.repeat(times)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (mut read, mut bytes) = (String::new(), [0; 1000]);
        for _ in 0..50 {
            joins.receive(Duration::ZERO, room);
            for (connection, answer) in std::mem::take(&mut room.answers) {
                joins.send(Duration::ZERO, room, connection, answer.as_bytes());
            }
            match stream.read(&mut bytes) {
                Ok(0) => return (stream, read + " (closed)"),
                Ok(count) => read += std::str::from_utf8(&bytes[..count]).unwrap(),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (stream, read + " (closed)");
                }
                Err(_) => {}
            }
        }
        (stream, read)
    }

    #[test]
    fn a_receiver_without_a_place_is_told_so_and_does_not_join() {
        let (mut joins, mut room) = (joins(1), Room::default());
        let (first, answer) = connect(&mut joins, &mut room, b"j", 1);
        assert_eq!((answer.as_str(), room.handled), ("", 1));
        let (_, answer) = connect(&mut joins, &mut room, b"j", 1);
        assert_eq!(answer, "too many connections: all 1 places are taken (closed)");
        assert_eq!(room.handled, 1, "it took no place among the receivers");
        drop(first);
        let (_next, answer) = connect(&mut joins, &mut room, b"j", 1);
        assert_eq!((answer.as_str(), room.handled), ("", 2));
    }

    #[test]
    fn one_invalid_message_ends_the_connection_of_a_stranger() {
        let (mut joins, mut room) = (joins(9), Room::default());
        let (_, answer) = connect(&mut joins, &mut room, b"", 1);
        assert_eq!((answer.as_str(), room.handled), ("what? (closed)", 1));
        connect(&mut joins, &mut room, b"", 10_000);
        assert_eq!(room.handled, 2);
        assert!(joins.is_empty());
    }

    #[test]
    fn a_flood_of_messages_ends_the_connection() {
        let (mut joins, mut room) = (joins(9), Room::default());
        let (_, answer) = connect(&mut joins, &mut room, b"j", MESSAGES_AT_ONCE + 1);
        assert_eq!((answer.as_str(), room.handled), (" (closed)", MESSAGES_AT_ONCE));
    }
}
