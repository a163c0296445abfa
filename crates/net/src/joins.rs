//! The connections of receivers at a sender: takes them from its port, keeps as many as is allowed, and carries their messages.
//!
//! A receiver that has joined can do without its connection and make another one, so the number of receivers does not depend on that of
//! connections. Must never let connections over which nobody joins take the places of receivers.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver as Queue;
use platter_admission::{Admission, Limits, Refusal, Source, Ticket};

use crate::connection::Connection;
use crate::ports::Arrived;
use crate::wake::Interest;

/// The most connections of joined receivers that a cast keeps. When another one joins, one that is not needed is closed.
pub const CONNECTIONS_MAX: usize = 1024;
/// Limits for open connections. A connection over which no receiver has joined is a stranger.
const PLACES: Limits = Limits {
    strangers_max: 256,
    strangers_of_one_max: 64,
    stranger_time: Duration::from_secs(10),
    known_max: CONNECTIONS_MAX,
    // Several receivers may run on one machine, in tests.
    known_of_one_max: 256,
};
/// The most messages of a connection that are handled before others have their turn. Receivers send one at a time, so a connection
/// with more is closed.
const MESSAGES_AT_ONCE: usize = 64;
/// The most connections that are taken before they are read: fewer than strangers have places, because those that have sent something
/// need theirs no longer.
const ACCEPTS_AT_ONCE: usize = 64;
/// After a search for a connection that could give up its place, without a result, strangers are refused without another search for this
/// long: anybody can connect, and a search looks at every connection.
const CROWDED_TIME: Duration = Duration::from_millis(10);

/// The machine that the messages are for.
pub(crate) trait Host {
    /// Handles a message (without its length). Returns whether it was accepted. If not, and nobody has joined over the connection,
    /// the connection is closed after the answer.
    fn handle_message(&mut self, now: Duration, connection: u64, from: IpAddr, message: &[u8]) -> bool;
    /// Answers that nobody can join over this connection.
    fn refuse(&mut self, connection: u64, reason: &str);
    /// Handles the end of a connection.
    fn handle_disconnect(&mut self, connection: u64);
    /// Whether a receiver has joined or goes on over this connection.
    fn has_joined(&self, connection: u64) -> bool;
    /// What the receiver of this connection needs it for.
    fn need(&self, connection: u64) -> Need;
}

/// What a joined receiver needs its connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing now. It makes another one when it does.
    Nothing,
    /// An answer. Without it, it asks again over another one.
    Answer,
    /// It cannot make another one.
    Connection,
}

struct Peer {
    number: u64,
    address: IpAddr,
    connection: Connection,
    ticket: Ticket,
    /// A receiver has joined or goes on over it, and it has a place.
    is_known: bool,
    /// It was refused: nothing of it is read, and it is closed when it has been told why.
    is_refused: bool,
    /// It gave its place to another one, or must be closed for another reason.
    is_over: bool,
}

/// The places of connections, while one of them is read.
struct Contest<'a> {
    admission: &'a mut Admission,
    others: [&'a mut [Peer]; 2],
    /// Until when all places count as taken for good.
    crowded_until: &'a mut Duration,
}

impl Contest<'_> {
    /// Why a stranger gets no place, if it would not. Asked for each of its messages, so it mostly looks at few connections.
    fn refusal(
        &mut self,
        now: Duration,
        (ticket, address): (Ticket, IpAddr),
        host: &dyn Host,
    ) -> Option<Refusal> {
        let refusal = self.admission.may_become_known(ticket).err()?;
        let is_full = matches!(refusal, Refusal::Full(_));
        if is_full && now < *self.crowded_until {
            return Some(refusal);
        }
        if self.others().any(|peer| self.rank(peer, refusal, address, host).is_some()) {
            return None;
        }
        if is_full {
            *self.crowded_until = now + CROWDED_TIME;
        }
        Some(refusal)
    }

    /// Makes a connection known. Another one gives up its place if none is free. Returns whether there is one.
    fn enter(&mut self, ticket: Ticket, address: IpAddr, host: &dyn Host) -> bool {
        if let Err(refusal) = self.admission.may_become_known(ticket)
            && let Some(victim) = self.victim(refusal, address, host)
        {
            victim.is_over = true;
            let given_up = victim.ticket;
            self.admission.leave(given_up);
        }
        self.admission.make_known(ticket).is_ok()
    }

    /// The connection that gives up its place: the one with the highest rank.
    fn victim(&mut self, refusal: Refusal, address: IpAddr, host: &dyn Host) -> Option<&mut Peer> {
        let ranked =
            self.others().filter_map(|peer| Some((self.rank(peer, refusal, address, host)?, peer.number)));
        let (_, number) = ranked.max()?;
        self.others.iter_mut().flat_map(|peers| peers.iter_mut()).find(|peer| peer.number == number)
    }

    fn others(&self) -> impl Iterator<Item = &Peer> {
        self.others.iter().flat_map(|peers| peers.iter())
    }

    /// The rank of a connection that may give up its place to one of this address:
    /// 1. one of the address with the most connections, so that whoever connects again and again displaces connections of its own;
    /// 2. an idle one, over which nothing is expected, before one whose receiver waits for an answer. The only one of its address that waits
    ///    is kept;
    /// 3. the oldest of idle ones, the newest of others, so that the others get their answers.
    fn rank(
        &self,
        peer: &Peer,
        refusal: Refusal,
        address: IpAddr,
        host: &dyn Host,
    ) -> Option<(usize, bool, u64)> {
        let (source, comer) = (Source::of_host(peer.address), Source::of_host(address));
        let may_close = match refusal {
            Refusal::Full(_) => true,
            Refusal::FullForSource(_) => source == comer,
            Refusal::Gone => false,
        };
        if !may_close || !peer.is_known || peer.is_over {
            return None;
        }
        let is_idle = match host.need(peer.number) {
            Need::Nothing => !peer.connection.wants_to_write(),
            Need::Answer => false,
            Need::Connection => return None,
        };
        // The one that comes counts, too.
        let count = self.admission.known_of(source) + usize::from(source == comer);
        let age = if is_idle { u64::MAX - peer.number } else { peer.number };
        (is_idle || count > 1).then_some((count, is_idle, age))
    }
}

/// The connections.
pub(crate) struct Joins {
    arrived: Queue<Arrived>,
    peers: Vec<Peer>,
    next_peer: u64,
    /// Decides which connections are kept.
    admission: Admission,
    /// As in [`Contest`].
    crowded_until: Duration,
    start: Instant,
}

impl Joins {
    /// Takes the connections that arrive there, and keeps so many of joined receivers. Times count from `start`.
    pub(crate) fn over(arrived: Queue<Arrived>, start: Instant, connections_max: usize) -> Self {
        Self {
            arrived,
            peers: Vec::new(),
            next_peer: 0,
            admission: Admission::new(Limits { known_max: connections_max, ..PLACES }),
            crowded_until: Duration::ZERO,
            start,
        }
    }

    /// Takes connections, and passes on what they said.
    pub(crate) fn receive(&mut self, now: Duration, host: &mut dyn Host) {
        self.take(now, host);
        let instant = self.start + now;
        for index in 0..self.peers.len() {
            let keep = !self.peers[index].is_over && self.receive_from(index, now, host);
            let peer = &mut self.peers[index];
            peer.is_over =
                !keep || self.admission.is_over(peer.ticket, instant) || !peer.connection.flush(instant);
            if peer.is_over {
                self.admission.leave(peer.ticket);
            }
        }
        self.peers.retain(|peer| {
            if peer.is_over {
                host.handle_disconnect(peer.number);
            }
            !peer.is_over
        });
    }

    /// Passes on what arrived over a connection. Returns `false` if it must be closed.
    fn receive_from(&mut self, index: usize, now: Duration, host: &mut dyn Host) -> bool {
        let (before, rest) = self.peers.split_at_mut(index);
        let Some((peer, after)) = rest.split_first_mut() else { return false };
        if peer.is_refused {
            return peer.connection.wants_to_write();
        }
        let (number, address, ticket) = (peer.number, peer.address, peer.ticket);
        let (is_known, is_refused) = (&mut peer.is_known, &mut peer.is_refused);
        let mut contest = Contest {
            admission: &mut self.admission,
            others: [before, after],
            crowded_until: &mut self.crowded_until,
        };
        let mut has_place = true;
        let keep = peer.connection.read_while(MESSAGES_AT_ONCE, |message| {
            // Without a place for its connection, a receiver must not get one among the receivers.
            let refusal = if *is_known { None } else { contest.refusal(now, (ticket, address), host) };
            if let Some(refusal) = refusal {
                host.refuse(number, &refusal.to_string());
                *is_refused = true;
            } else if !host.handle_message(now, number, address, message) {
                *is_refused = !host.has_joined(number);
            }
            if !*is_known && host.has_joined(number) {
                *is_known = contest.enter(ticket, address, host);
                has_place = *is_known;
            }
            !*is_refused && has_place
        });
        keep && has_place
    }

    fn take(&mut self, now: Duration, host: &mut dyn Host) {
        for _ in 0..ACCEPTS_AT_ONCE {
            // An error of its port is found where datagrams are taken.
            let Ok((stream, address)) = self.arrived.try_recv() else { return };
            let Ok(connection) = Connection::to_receiver(stream) else { continue };
            let entered = self.admission.enter(Source::of_host(address), self.start + now);
            if let Some(displaced) = entered.displaced {
                self.end(host, |peer| peer.ticket == displaced);
            }
            self.next_peer += 1;
            let (number, ticket) = (self.next_peer, entered.ticket);
            self.peers.push(Peer {
                number,
                address,
                connection,
                ticket,
                is_known: false,
                is_refused: false,
                is_over: false,
            });
        }
    }

    /// Closes the first connection that matches.
    fn end(&mut self, host: &mut dyn Host, is_it: impl Fn(&Peer) -> bool) {
        let Some(position) = self.peers.iter().position(is_it) else { return };
        let peer = self.peers.swap_remove(position);
        self.admission.leave(peer.ticket);
        host.handle_disconnect(peer.number);
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, host: &mut dyn Host, connection: u64) {
        self.end(host, |peer| peer.number == connection);
    }

    /// Sends a message. A connection that does not take it is closed.
    pub(crate) fn send(&mut self, host: &mut dyn Host, connection: u64, message: &[u8]) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.number == connection) else { return };
        if !peer.connection.write(message) {
            self.close(host, connection);
        }
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// What to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        self.peers.iter().map(|peer| Interest {
            descriptor: peer.connection.stream.as_fd(),
            to_read: !peer.is_refused,
            to_write: peer.connection.wants_to_write(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{HashMap, HashSet};
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::ops::{Deref, DerefMut};

    use super::*;

    /// A host that accepts joins, the message `j`, and refuses everything else.
    #[derive(Default)]
    struct Room {
        joined: HashSet<u64>,
        needs: HashMap<u64, Need>,
        handled: usize,
        /// How often it was asked for a need.
        asked: Cell<usize>,
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

        fn handle_disconnect(&mut self, connection: u64) {
            self.joined.remove(&connection);
        }

        fn need(&self, connection: u64) -> Need {
            self.asked.set(self.asked.get() + 1);
            self.needs.get(&connection).copied().unwrap_or(Need::Nothing)
        }

        fn has_joined(&self, connection: u64) -> bool {
            self.joined.contains(&connection)
        }
    }

    /// Joins over a port of their own.
    struct OwnPort {
        joins: Joins,
        listener: TcpListener,
        arrive: crossbeam_channel::Sender<Arrived>,
    }

    impl OwnPort {
        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap()
        }

        fn receive(&mut self, now: Duration, host: &mut dyn Host) {
            while let Ok((stream, address)) = self.listener.accept() {
                self.arrive.send((stream, address.ip())).unwrap();
            }
            self.joins.receive(now, host);
        }
    }

    impl Deref for OwnPort {
        type Target = Joins;

        fn deref(&self) -> &Joins {
            &self.joins
        }
    }

    impl DerefMut for OwnPort {
        fn deref_mut(&mut self) -> &mut Joins {
            &mut self.joins
        }
    }

    fn joins(known_max: usize) -> OwnPort {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (arrive, arrived) = crossbeam_channel::unbounded();
        OwnPort { joins: Joins::over(arrived, Instant::now(), known_max), listener, arrive }
    }

    /// Connects, sends this message so many times, and runs until the connection is answered and closed, or for a while. Returns what it read.
    fn connect(joins: &mut OwnPort, room: &mut Room, message: &[u8], times: usize) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(joins.address()).unwrap();
        let framed = [&(message.len() as u32).to_le_bytes(), message].concat();
        stream.write_all(&framed.repeat(times)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (mut read, mut bytes) = (String::new(), [0; 1000]);
        for _ in 0..50 {
            joins.receive(Duration::ZERO, room);
            for (connection, answer) in std::mem::take(&mut room.answers) {
                joins.send(room, connection, answer.as_bytes());
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
        room.needs.insert(1, Need::Connection);
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
    fn a_connection_over_which_nothing_is_read_is_closed() {
        let (mut joins, mut room) = (joins(9), Room::default());
        let (mut stream, _) = connect(&mut joins, &mut room, b"j", 1);
        let is_stuck = |joins: &Joins| joins.peers[0].connection.wants_to_write();
        while !is_stuck(&joins) {
            joins.send(&mut room, 1, &[0; 1000]);
        }
        let at = Duration::from_secs;
        joins.receive(at(1), &mut room);
        joins.receive(at(5), &mut room);
        assert!(!joins.is_empty());
        // It reads some of it.
        let mut read = 0;
        while is_stuck(&joins) {
            read += stream.read(&mut [0; 100_000]).unwrap();
            joins.receive(at(5), &mut room);
        }
        assert!(read > 0);
        while !is_stuck(&joins) {
            joins.send(&mut room, 1, &[0; 1000]);
        }
        joins.receive(at(7), &mut room);
        joins.receive(at(11), &mut room);
        assert!(!joins.is_empty() && room.has_joined(1));
        joins.receive(at(12), &mut room);
        assert!(joins.is_empty() && !room.has_joined(1));
    }

    #[test]
    fn a_flood_of_messages_ends_the_connection() {
        let (mut joins, mut room) = (joins(9), Room::default());
        let (_, answer) = connect(&mut joins, &mut room, b"j", MESSAGES_AT_ONCE + 1);
        assert_eq!((answer.as_str(), room.handled), (" (closed)", MESSAGES_AT_ONCE));
    }

    /// Says whether the sender has closed this connection.
    fn is_closed(stream: &mut TcpStream) -> bool {
        matches!(stream.read(&mut [0; 1]), Ok(0))
    }

    /// Joins from 127.0.0.`host`.
    fn join_from(joins: &mut OwnPort, room: &mut Room, host: u8) -> TcpStream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
        socket.connect(&joins.address().into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        stream.write_all(b"\x01\0\0\0j").unwrap();
        let handled = room.handled;
        while room.handled == handled {
            joins.receive(Duration::ZERO, room);
        }
        stream
    }

    #[test]
    fn receivers_beyond_the_limit_join_and_close_the_oldest_idle_connection() {
        let (mut joins, mut room) = (joins(3), Room::default());
        let mut streams: Vec<_> = (2..=4).map(|host| join_from(&mut joins, &mut room, host)).collect();
        room.needs.insert(1, Need::Answer);
        streams.push(join_from(&mut joins, &mut room, 5));
        assert_eq!(streams.iter_mut().map(is_closed).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(room.joined.len(), 3);
        // One that joins again and again closes only its own.
        for _ in 0..20 {
            streams.push(join_from(&mut joins, &mut room, 5));
        }
        let open: Vec<usize> =
            (0..streams.len()).filter(|number| !is_closed(&mut streams[*number])).collect();
        assert_eq!(open, [0, 2, 23]);
        // All wait for answers, and each over the only connection of its address.
        room.needs.extend((1..=room.handled as u64).map(|number| (number, Need::Answer)));
        let (_, answer) = connect(&mut joins, &mut room, b"j", 1);
        assert_eq!(answer, "too many connections: all 3 places are taken (closed)");
    }

    #[test]
    fn strangers_cost_little_when_all_places_are_taken() {
        let (mut joins, mut room) = (joins(20), Room::default());
        let mut streams: Vec<_> = (2..22).map(|host| join_from(&mut joins, &mut room, host)).collect();
        // Any of them would give up its place to a receiver.
        let (_, answer) = connect(&mut joins, &mut room, b"", 1);
        assert_eq!((answer.as_str(), room.asked.take()), ("what? (closed)", 1));
        // None of them does.
        room.needs.extend((1..=20).map(|number| (number, Need::Answer)));
        for _ in 0..10 {
            let (_, answer) = connect(&mut joins, &mut room, b"j", 1);
            assert_eq!(answer, "too many connections: all 20 places are taken (closed)");
        }
        assert_eq!(room.asked.take(), 20);
        // One has got its answer.
        room.needs.remove(&7);
        let mut stream = TcpStream::connect(joins.address()).unwrap();
        stream.write_all(b"\x01\0\0\0j").unwrap();
        while !room.has_joined(32) && room.asked.get() < 100 {
            joins.receive(CROWDED_TIME, &mut room);
        }
        assert!(is_closed(&mut streams[6]) && room.joined.len() == 20);
    }

    #[test]
    fn an_address_at_its_limit_closes_its_own_connections() {
        let (mut room, of_one) = (Room::default(), PLACES.known_of_one_max);
        let mut joins = joins(of_one + 10);
        let mut other = join_from(&mut joins, &mut room, 2);
        let mut streams: Vec<_> = (0..of_one + 5).map(|_| join_from(&mut joins, &mut room, 1)).collect();
        assert_eq!(room.joined.len(), of_one + 1);
        assert!(!is_closed(&mut other));
        assert_eq!(
            (0..of_one + 5).filter(|number| is_closed(&mut streams[*number])).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
}
