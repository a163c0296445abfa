//! The port of this process's casts at an address: a TCP listener for joins and a UDP socket for feedback, which all of them share.
//!
//! A thread reads the first message of each connection, and hands the rest to the cast that it names; each datagram goes to the cast of the
//! session in its header. Owns the connections until then, and the order in which casts get what arrives. Must never wait for a cast: of what
//! one does not take, connections stay here for a limited time, and datagrams are dropped, as by a network.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, TryRecvError, TrySendError, bounded};
use parking_lot::{Mutex, MutexGuard};
use platter_admission::{Admission, Limits, Source, Ticket};
use platter_cast::{Opening, session_of};
use platter_image::{Error, IoContext, Result};
use socket2::SockRef;

use crate::batch::BatchSocket;
use crate::devices::CastPlace;
use crate::multicast_socket::sender_ports;
use crate::wake::{Bell, Interest, wait};

/// Limits for connections that have not said yet which cast they are for.
const PLACES: Limits = Limits {
    strangers_max: 256,
    strangers_of_one_max: 64,
    stranger_time: Duration::from_secs(10),
    known_max: 0,
    known_of_one_max: 0,
};
/// The most connections that are accepted before they are read: fewer than strangers have places, because those that have sent something
/// need theirs no longer.
const ACCEPTS_AT_ONCE: usize = 64;
/// Connections that the kernel holds until they are accepted: those of a large room that ends at once.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept (such as too many open files).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The most batches of datagrams received before connections are read.
const RECEIVES_AT_ONCE: usize = 8;
/// The most connections and datagrams that wait for a cast. Further connections wait at the port, further datagrams are dropped.
const CONNECTION_QUEUE: usize = 256;
const DATAGRAM_QUEUE: usize = 4096;
/// Pause until a connection that no cast has taken is handed over again.
const PLACE_AGAIN: Duration = Duration::from_millis(20);
/// Pause while a port is being closed.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// The longest sleep, so that connections end in time.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A connection, and where it comes from.
pub(crate) type Arrived = (TcpStream, IpAddr);

/// The ports of a process's casts, by their addresses. Each is open while it has a cast.
#[derive(Debug, Default)]
pub struct CastPorts {
    /// Each until its number is free again.
    open: Arc<Mutex<Vec<Open>>>,
}

#[derive(Debug)]
struct Open {
    wanted: SocketAddr,
    port: Weak<Port>,
    routes: Arc<Routes>,
}

impl CastPorts {
    /// The port at this place, opened if it is not: `number`, or if another process uses it, another one as [`sender_ports`] says.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn at(&self, place: &CastPlace, number: u16) -> Result<Arc<Port>> {
        let wanted = place.at(number);
        let mut open = self.open.lock();
        open.retain(|open| open.routes.failure.lock().is_none());
        while let Some(known) = open.iter().find(|open| open.wanted == wanted) {
            if let Some(port) = known.port.upgrade() {
                return Ok(port);
            }
            // It is being closed.
            MutexGuard::unlocked(&mut open, || thread::sleep(CLOSING_PAUSE));
        }
        let port = Arc::new(Port::open(place, number, Arc::clone(&self.open))?);
        open.push(Open { wanted, port: Arc::downgrade(&port), routes: Arc::clone(&port.routes) });
        Ok(port)
    }
}

/// An open port.
#[derive(Debug)]
pub(crate) struct Port {
    /// Address of the listener.
    pub(crate) join: SocketAddr,
    /// Address of the UDP socket.
    pub(crate) feedback: SocketAddr,
    routes: Arc<Routes>,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
    others: Arc<Mutex<Vec<Open>>>,
}

impl Port {
    fn open(place: &CastPlace, number: u16, others: Arc<Mutex<Vec<Open>>>) -> Result<Self> {
        let (listener, feedback) = sender_ports(place, number)?;
        listener.set_nonblocking(true).context(|| "setting a listener to non-blocking".into())?;
        SockRef::from(&listener).listen(BACKLOG).context(|| "setting the backlog of a listener".into())?;
        let join = listener.local_addr().context(|| "reading the address of a listener".into())?;
        let feedback = BatchSocket::new(feedback)?;
        let (address, bell, routes) = (feedback.local_address()?, Bell::new()?, Arc::<Routes>::default());
        let port_thread = PortThread {
            listener,
            feedback,
            routes: Arc::clone(&routes),
            bell: bell.clone(),
            strangers: Vec::new(),
            admission: Admission::new(PLACES),
            accept_at: None,
            closing: Closing { routes: Arc::clone(&routes), reason: None },
        };
        let thread = thread::Builder::new().name("cast-port".into()).spawn(move || port_thread.run());
        let thread = Some(thread.context(|| "starting a thread".into())?);
        Ok(Self { join, feedback: address, routes, bell, thread, others })
    }

    /// Has the connections and datagrams of a session arrive in the inbox, which rings the bell.
    ///
    /// # Errors
    /// `Transient` when the port has failed, or another cast of it has the same short id, which is as good as impossible.
    pub(crate) fn register(self: &Arc<Self>, session: u32, bell: &Bell) -> Result<Inbox> {
        let (to_connections, connections) = bounded(CONNECTION_QUEUE);
        let (to_datagrams, datagrams) = bounded(DATAGRAM_QUEUE);
        let mut casts = self.routes.casts.lock();
        // The thread says so before it forgets the casts.
        if let Some(reason) = &*self.routes.failure.lock() {
            return Err(self.closed(reason));
        }
        if casts.contains_key(&session) {
            return Err(Error::transient("another cast of this port has the same session id"));
        }
        let route = Route { connections: to_connections, datagrams: to_datagrams, bell: bell.clone() };
        casts.insert(session, route);
        drop(casts);
        // Some may wait for it.
        self.bell.ring();
        Ok(Inbox { port: Arc::clone(self), session, connections, datagrams })
    }

    fn closed(&self, reason: &str) -> Error {
        Error::transient(format!("the port of this cast, {}, was closed: {reason}", self.join))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.routes.is_over.store(true, Ordering::Relaxed);
        self.bell.ring();
        let _ = self.thread.take().map(JoinHandle::join);
        // Now the number is free.
        self.others.lock().retain(|other| !Arc::ptr_eq(&other.routes, &self.routes));
    }
}

/// What arrives for a cast. Its session is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Inbox {
    port: Arc<Port>,
    session: u32,
    pub(crate) connections: Queue<Arrived>,
    datagrams: Queue<Vec<u8>>,
}

impl Inbox {
    /// Whether something waits that has not been taken.
    pub(crate) fn has_more(&self) -> bool {
        !self.connections.is_empty() || !self.datagrams.is_empty()
    }

    /// Passes waiting datagrams to `handle`, at most so many.
    ///
    /// # Errors
    /// `Transient` when the port has failed.
    pub(crate) fn receive(&self, datagrams_max: usize, mut handle: impl FnMut(&[u8])) -> Result<()> {
        for _ in 0..datagrams_max {
            match self.datagrams.try_recv() {
                Ok(datagram) => handle(&datagram),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(self.port.closed(self.port.routes.failure.lock().as_deref().unwrap_or("")));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.port.routes.casts.lock().remove(&self.session);
    }
}

/// The casts of a port, by their sessions.
#[derive(Debug, Default)]
struct Routes {
    casts: Mutex<HashMap<u32, Route>>,
    is_over: AtomicBool,
    /// Why the port was closed.
    failure: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Route {
    connections: QueueEnd<Arrived>,
    datagrams: QueueEnd<Vec<u8>>,
    bell: Bell,
}

/// What becomes of a connection that says which session it is for.
enum Placed {
    Taken,
    /// No cast is registered yet, or this one has no room now.
    Waits(TcpStream),
    Refused(TcpStream, String),
}

impl Routes {
    /// Hands a connection to its cast. The only cast gets all: it knows best what to tell a receiver of an earlier one.
    fn hand_over(&self, opening: Opening, stream: TcpStream, address: IpAddr) -> Placed {
        let casts = self.casts.lock();
        let only = casts.values().next().filter(|_| casts.len() == 1);
        let named = opening.session.and_then(|session| casts.get(&session));
        let Some(cast) = named.or(only) else {
            return match (casts.len(), opening.session) {
                (0, _) => Placed::Waits(stream),
                (count, None) => Placed::Refused(
                    stream,
                    format!(
                        "{count} casts use this port, and this receiver has not heard which one to join: receive from the origin (--server)"
                    ),
                ),
                (_, Some(_)) => Placed::Refused(stream, "this cast has ended".into()),
            };
        };
        match cast.connections.try_send((stream, address)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {
                cast.bell.ring();
                Placed::Taken
            }
            Err(TrySendError::Full((stream, _))) => Placed::Waits(stream),
        }
    }

    /// Hands a datagram to its cast.
    fn pass(&self, datagram: &[u8]) {
        let casts = self.casts.lock();
        let Some(cast) = session_of(datagram).and_then(|session| casts.get(&session)) else { return };
        if cast.datagrams.try_send(datagram.to_vec()).is_ok() {
            cast.bell.ring();
        }
    }

    /// Has the casts notice that nobody hands them anything any more.
    fn close(&self, reason: Option<String>) {
        *self.failure.lock() = Some(reason.unwrap_or_else(|| "its thread has ended".into()));
        let casts = std::mem::take(&mut *self.casts.lock());
        casts.into_values().for_each(|Route { connections, datagrams, bell }| {
            drop((connections, datagrams));
            bell.ring();
        });
    }
}

/// Tells the casts of the end of a port's thread, also by a panic.
struct Closing {
    routes: Arc<Routes>,
    reason: Option<String>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.routes.close(self.reason.take());
    }
}

/// A connection that no cast has yet.
struct Stranger {
    stream: TcpStream,
    address: IpAddr,
    ticket: Ticket,
    state: Saying,
}

/// What a stranger has said.
enum Saying {
    /// So much of its opening.
    Opening([u8; Opening::BYTES], usize),
    /// All of it.
    Opened(Opening),
    /// No cast takes it: it is closed when it has read that and ended.
    Refused,
}

impl Stranger {
    /// Reads what it says. Returns whether to keep it.
    fn read(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            let to = match &mut self.state {
                Saying::Opening(bytes, read) => &mut bytes[*read..],
                Saying::Opened(_) => return true,
                Saying::Refused => &mut rest[..],
            };
            match (self.stream.read(to), &mut self.state) {
                (Ok(0), _) => return false,
                (Ok(count), Saying::Opening(bytes, read)) => {
                    *read += count;
                    if *read == bytes.len() {
                        let Some(opening) = Opening::parse(bytes) else { return false };
                        self.state = Saying::Opened(opening);
                    }
                }
                (Ok(_), _) => return true,
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => return true,
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
                (Err(_), _) => return false,
            }
        }
    }

    /// Gives it to its cast, if it has said which one that is. Returns it if it stays.
    ///
    /// One that is refused is read until it ends: otherwise the kernel resets the connection before it has read why.
    fn place(self, routes: &Routes) -> Option<Self> {
        let Saying::Opened(opening) = self.state else { return Some(self) };
        match routes.hand_over(opening, self.stream, self.address) {
            Placed::Taken => None,
            Placed::Waits(stream) => Some(Self { stream, ..self }),
            Placed::Refused(mut stream, reason) => {
                let _ = stream.write(&Opening::refusal(&reason));
                let _ = stream.shutdown(Shutdown::Write);
                Some(Self { stream, state: Saying::Refused, ..self })
            }
        }
    }
}

/// The thread of a port.
struct PortThread {
    listener: TcpListener,
    feedback: BatchSocket,
    routes: Arc<Routes>,
    bell: Bell,
    strangers: Vec<Stranger>,
    admission: Admission,
    /// No connection is accepted before this time.
    accept_at: Option<Instant>,
    /// The last one that is dropped: then the sockets are closed, and the next port may have the number.
    closing: Closing,
}

impl PortThread {
    fn run(mut self) {
        self.closing.reason = self.serve().err().map(|error| error.with_causes());
    }

    fn serve(&mut self) -> Result<()> {
        while !self.routes.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.accept(now);
            self.read(now);
            for _ in 0..RECEIVES_AT_ONCE {
                let routes = &self.routes;
                if self.feedback.receive(|datagram| routes.pass(datagram))? == 0 {
                    break;
                }
            }
            self.wait()?;
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_AT_ONCE {
            if self.accept_at.is_some_and(|at| now < at) {
                return;
            }
            let (stream, address) = match self.listener.accept() {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_at = Some(now + ACCEPT_AGAIN);
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let entered = self.admission.enter(Source::of_host(address), now);
            self.strangers.retain(|stranger| Some(stranger.ticket) != entered.displaced);
            let state = Saying::Opening([0; Opening::BYTES], 0);
            self.strangers.push(Stranger { stream, address, ticket: entered.ticket, state });
        }
    }

    fn read(&mut self, now: Instant) {
        for mut stranger in std::mem::take(&mut self.strangers) {
            let ticket = stranger.ticket;
            let kept = if stranger.read() { stranger.place(&self.routes) } else { None };
            match kept.filter(|_| !self.admission.is_over(ticket, now)) {
                Some(stranger) => self.strangers.push(stranger),
                None => self.admission.leave(ticket),
            }
        }
    }

    fn wait(&self) -> Result<()> {
        let may_accept = self.accept_at.is_none_or(|at| Instant::now() >= at);
        // A cast that has no room for a connection does not say when it has.
        let waits = self.strangers.iter().any(|stranger| matches!(stranger.state, Saying::Opened(_)));
        let time = match () {
            () if waits => PLACE_AGAIN,
            () if may_accept => SLEEP_MAX,
            () => ACCEPT_AGAIN,
        };
        let mut interests = vec![
            Interest { descriptor: self.listener.as_fd(), to_read: may_accept, to_write: false },
            Interest { descriptor: self.feedback.socket.as_fd(), to_read: true, to_write: false },
        ];
        // One that has said everything has nothing to be read, and its end would wake this thread without a pause.
        let speaking = self.strangers.iter().filter(|it| !matches!(it.state, Saying::Opened(_)));
        interests.extend(speaking.map(|stranger| Interest {
            descriptor: stranger.stream.as_fd(),
            to_read: true,
            to_write: false,
        }));
        wait(&self.bell, &interests, time)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::ops::Range;

    use super::*;
    use crate::devices::place_of;
    use platter_cast::Family;

    const WAIT: Duration = Duration::from_secs(20);

    fn port() -> (CastPorts, Arc<Port>) {
        let ports = CastPorts::default();
        let port = ports.at(&place_of(Family::Ipv4, Some("127.0.0.1")).unwrap(), 0).unwrap();
        (ports, port)
    }

    fn connect(port: &Port, first: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(port.join).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.write_all(first).unwrap();
        stream
    }

    /// What a connection says until it ends.
    fn answer(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A datagram of this session, as far as its header says.
    fn datagram(session: u32, more: usize) -> Vec<u8> {
        let mut bytes = vec![1, 4, 0, 0];
        bytes.extend(session.to_le_bytes());
        bytes.extend(vec![7; more]);
        bytes
    }

    /// The lengths of the next datagrams.
    fn arrived(inbox: &Inbox, count: usize) -> Vec<usize> {
        (0..count).map(|_| inbox.datagrams.recv_timeout(WAIT).unwrap().len()).collect()
    }

    #[test]
    fn each_cast_gets_its_connections_and_datagrams_and_no_others() {
        let (ports, port) = port();
        let again = ports.at(&place_of(Family::Ipv4, Some("127.0.0.1")).unwrap(), 0).unwrap();
        assert_eq!(again.join, port.join, "the port is shared");
        assert_eq!(port.join, port.feedback, "the numbers of both ports are the same");
        let bell = Bell::new().unwrap();
        let inboxes = [1, 2].map(|session| port.register(session, &bell).unwrap());
        assert_eq!(port.register(2, &bell).unwrap_err().kind(), platter_image::ErrorKind::Transient);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (session, more) in [(2, 10), (3, 20), (1, 30), (2, 40)] {
            socket.send_to(&datagram(session, more), port.feedback).unwrap();
        }
        socket.send_to(b"", port.feedback).unwrap();
        socket.send_to(&[1, 4], port.feedback).unwrap();
        socket.send_to(&datagram(1, 50), port.feedback).unwrap();
        assert_eq!(arrived(&inboxes[0], 2), [38, 58]);
        assert_eq!(arrived(&inboxes[1], 2), [18, 48]);
        let told = |session, rest: &[u8]| [&Opening { session }.to_bytes()[..], rest].concat();
        let mut streams =
            vec![connect(&port, &told(Some(2), b"two")), connect(&port, &told(Some(1), b"one"))];
        // In pieces.
        let bytes = told(Some(1), b"ONE");
        let mut slow = connect(&port, &bytes[..3]);
        for part in [3..9, 9..13] as [Range<usize>; 2] {
            thread::sleep(Duration::from_millis(20));
            slow.write_all(&bytes[part]).unwrap();
        }
        streams.push(slow);
        let mut heard = Vec::new();
        for inbox in [&inboxes[1], &inboxes[0], &inboxes[0]] {
            let (mut stream, address) = inbox.connections.recv_timeout(WAIT).unwrap();
            assert!(address.is_loopback());
            stream.set_nonblocking(false).unwrap();
            let mut bytes = [0; 3];
            stream.read_exact(&mut bytes).unwrap();
            heard.push(bytes);
        }
        heard[1..].sort_unstable();
        assert_eq!(heard, [*b"two", *b"ONE", *b"one"]);
    }

    #[test]
    fn a_connection_that_no_cast_takes_is_told_so() {
        let (_ports, port) = port();
        let bell = Bell::new().unwrap();
        let opening = |session| Opening { session }.to_bytes();
        // The first cast may be about to begin.
        let _waiting = connect(&port, &opening(Some(1)));
        let only = port.register(1, &bell).unwrap();
        only.connections.recv_timeout(WAIT).unwrap();
        // It may be for an earlier cast: the only one answers.
        for session in [None, Some(9)] {
            let _kept = connect(&port, &opening(session));
            only.connections.recv_timeout(WAIT).unwrap();
        }
        let other = port.register(2, &bell).unwrap();
        // What follows is read, so that the answer arrives.
        let long = [&opening(Some(9))[..], &[5; 100_000]].concat();
        let stream = connect(&port, &long);
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(answer(stream).contains("this cast has ended"));
        assert!(answer(connect(&port, &opening(None))).contains("2 casts use this port"));
        assert_eq!(answer(connect(&port, b"GET / HTTP/1.1")), "", "another protocol");
        drop(other);
        let _kept = connect(&port, &opening(Some(2)));
        only.connections.recv_timeout(WAIT).unwrap();
    }

    #[test]
    fn a_port_that_is_not_needed_is_closed() {
        let (ports, port) = port();
        let address = port.join;
        let inbox = port.register(1, &Bell::new().unwrap()).unwrap();
        drop(port);
        TcpStream::connect(address).unwrap();
        drop(inbox);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // The next one gets the same number, also while the last one is being closed.
        let place = place_of(Family::Ipv4, Some("127.0.0.1")).unwrap();
        for _ in 0..50 {
            let port = ports.at(&place, address.port()).unwrap();
            assert_eq!(port.join, address);
            let closing = thread::spawn(move || drop(port));
            let next = ports.at(&place, address.port()).unwrap();
            assert_eq!(next.join, address);
            closing.join().unwrap();
        }
    }

    #[test]
    fn connections_wait_for_a_cast_that_is_busy() {
        let (_ports, port) = port();
        let inbox = port.register(1, &Bell::new().unwrap()).unwrap();
        // Of several machines, because those of one are limited.
        let streams: Vec<_> = (0..CONNECTION_QUEUE + 40)
            .map(|number| {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.bind(&SocketAddr::from(([127, 0, 1, (number % 200) as u8 + 1], 0)).into()).unwrap();
                socket.connect(&port.join.into()).unwrap();
                let mut stream = TcpStream::from(socket);
                stream.write_all(&Opening { session: Some(1) }.to_bytes()).unwrap();
                stream
            })
            .collect();
        for _ in &streams {
            inbox.connections.recv_timeout(WAIT).unwrap();
        }
        assert!(!inbox.has_more());
    }

    #[test]
    fn casts_of_a_port_that_fails_end() {
        let (ports, port) = port();
        let inbox = port.register(1, &Bell::new().unwrap()).unwrap();
        port.routes.is_over.store(true, Ordering::Relaxed);
        port.bell.ring();
        assert!(inbox.datagrams.recv_timeout(WAIT).is_err());
        let reason = "was closed: its thread has ended";
        assert!(inbox.receive(1, |_| {}).unwrap_err().to_string().contains(reason));
        assert!(port.register(2, &port.bell).unwrap_err().to_string().contains(reason));
        // The next cast opens another one.
        let next = ports.at(&place_of(Family::Ipv4, Some("127.0.0.1")).unwrap(), 0).unwrap();
        assert!(!Arc::ptr_eq(&next, &port));
    }
}
