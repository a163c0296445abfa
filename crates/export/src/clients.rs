//! The clients of a server of any protocol: accepts them, bounds their number, pauses them, and disconnects them at the
//! end.
//!
//! Owns the table of connections. Each client is one connection with one thread that runs its protocol. This file must
//! never read from or write to a client. A TCP client is a stranger until its protocol reports it as known; strangers
//! have few places and little time, and displace each other (`platter_admission`). When a pause is ordered, every
//! thread stops between two requests and leaves its session here, for [`Clients::go_on`] in this process or another.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Refusal, Source, Ticket};
use platter_image::{Error, Result};
use platter_transport::Listener;
use socket2::Socket;

use crate::moved::{MovedSession, Rest};
use crate::pause::Pause;
use crate::same_user;

/// After a pause was ordered, a client that still negotiates is disconnected after this time.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// A pause is abandoned if requests take longer than this.
const PAUSE_TIME: Duration = Duration::from_millis(400);
/// Maximum sleep, so that a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Pause after a failed accept (too many open files).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How long a new client waits for the threads of displaced clients to end, before it is rejected.
const ROOM_TIME: Duration = Duration::from_secs(1);
/// Maximum number of TCP clients that have not finished their negotiation.
const STRANGERS_MAX: usize = 64;
/// Maximum number of such clients from one remote address.
const STRANGERS_OF_ADDRESS_MAX: usize = 16;

/// Limits on clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// Maximum number of clients.
    pub(crate) connections_max: usize,
    /// Time limit for a TCP client to become known.
    pub(crate) handshake_time: Duration,
}

impl ClientLimits {
    /// The limits for a listener. Local clients share one address and may use all places; a remote address may use
    /// half.
    fn on(&self, listener: &Listener) -> Limits {
        let is_remote = listener.tcp_address().is_some_and(|address| !address.ip().is_loopback());
        let of_one = |remote: usize| if is_remote { remote } else { usize::MAX };
        Limits {
            strangers_max: STRANGERS_MAX,
            strangers_of_one_max: of_one(STRANGERS_OF_ADDRESS_MAX),
            stranger_time: self.handshake_time,
            known_max: self.connections_max,
            known_of_one_max: of_one(self.connections_max.div_ceil(2)),
        }
    }
}

/// An event of a connection. Connections are numbered from 1 in order of arrival.
pub(crate) enum ClientEvent<'a> {
    /// A client connected.
    Connected { connection: u64, peer: Option<SocketAddr> },
    /// A client was rejected at once.
    TurnedAway { error: &'a Error },
    /// A connection could not be accepted; the server continues.
    AcceptFailed { error: &'a Error },
    /// A client disconnected, with the error unless it was a normal end.
    Disconnected { connection: u64, error: Option<&'a Error> },
}

/// The protocol of a server.
pub(crate) trait Protocol: Send + Sync {
    /// Name of the threads that read from clients.
    fn reader_name(&self) -> &'static str;

    /// Whether a TCP client must belong to the user of this process or to root.
    fn lets_in_same_user_only(&self) -> bool;

    /// Receives events from many threads; must not block.
    fn tell(&self, event: &ClientEvent<'_>);

    /// New requests are refused from now on.
    fn stop(&self);

    /// Runs the protocol of a connection, from its start or from `rest`, where an earlier call stopped. Must report the
    /// client as known as soon as the negotiation has succeeded. Returns the state to continue from when a pause is
    /// ordered, and `None` when the connection has ended normally.
    ///
    /// # Errors
    /// The reason for any other end.
    fn converse(&self, client: &Client, rest: Option<Rest>) -> Result<Option<Rest>>;
}

/// A connection, for its protocol.
#[derive(Clone)]
pub(crate) struct Client {
    /// Its number.
    pub(crate) connection: u64,
    pub(crate) socket: Arc<Socket>,
    pub(crate) is_tcp: bool,
    ticket: Ticket,
    clients: Arc<Clients>,
}

impl Client {
    /// Reports the client as known.
    ///
    /// # Errors
    /// `Refused` when all places are taken.
    pub(crate) fn become_known(&self) -> Result<()> {
        let known = self.clients.connections().admission.make_known(self.ticket);
        known.map_err(|refusal| refused(&refusal))
    }

    /// Marks that the connection can stop between two requests from now on, when a pause is ordered.
    pub(crate) fn settle(&self) {
        if let Some(entry) = self.clients.connections().entries.get_mut(&self.ticket) {
            entry.is_settled = true;
        }
    }

    /// The order to pause.
    pub(crate) fn pause(&self) -> &Pause {
        &self.clients.pause
    }
}

fn refused(refusal: &Refusal) -> Error {
    Error::refused(match refusal {
        Refusal::Full(count) => format!("the limit of {count} clients is reached"),
        Refusal::FullForSource(count) => format!("the limit of {count} clients from its address is reached"),
        Refusal::Gone => "it had not finished its negotiation, and other clients needed its place".to_owned(),
    })
}

/// A connection of this process.
struct Entry {
    socket: Arc<Socket>,
    is_settled: bool,
}

struct Table {
    admission: Admission,
    entries: HashMap<Ticket, Entry>,
    /// Sessions that stopped because a pause is ordered.
    paused: Vec<MovedSession>,
    /// Connection threads that have not reported their end.
    threads: usize,
    threads_max: usize,
}

impl Table {
    fn new(limits: Limits) -> Self {
        // Displaced clients need a moment to end: see `ROOM_TIME`.
        let threads_max = limits.known_max + 2 * limits.strangers_max;
        Self {
            admission: Admission::new(limits),
            entries: HashMap::new(),
            paused: Vec::new(),
            threads: 0,
            threads_max,
        }
    }

    /// Disconnects a displaced stranger; its thread then ends.
    fn see_off(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.remove(&ticket) {
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
    }

    fn is_full(&self) -> bool {
        self.threads >= self.threads_max
    }

    /// Admits one more client.
    fn enter(&mut self, source: Source, socket: &Arc<Socket>) -> Result<Ticket> {
        if self.is_full() {
            return Err(Error::refused(format!("the limit of {} connections is reached", self.threads)));
        }
        let entered = self.admission.enter(source, Instant::now());
        if let Some(displaced) = entered.displaced {
            self.see_off(displaced);
        }
        // The mode of a unix socket already restricts who can connect.
        let known = if source == Source::Unix { self.admission.make_known(entered.ticket) } else { Ok(()) };
        if let Err(refusal) = known {
            self.admission.leave(entered.ticket);
            return Err(refused(&refusal));
        }
        let entry = Entry { socket: Arc::clone(socket), is_settled: false };
        self.entries.insert(entered.ticket, entry);
        self.threads += 1;
        Ok(entered.ticket)
    }

    /// False if the client was displaced before.
    fn leave(&mut self, ticket: Ticket) -> bool {
        self.admission.leave(ticket);
        self.entries.remove(&ticket).is_some()
    }
}

/// The connected clients.
pub(crate) struct Clients {
    connections: Mutex<Table>,
    /// A connection thread ends.
    gone: Condvar,
    /// Connections are numbered from 1.
    last_connection: AtomicU64,
    pub(crate) pause: Arc<Pause>,
}

impl Clients {
    /// An empty table with these limits.
    pub(crate) fn new(limits: ClientLimits, listener: &Listener, pause: Arc<Pause>) -> Self {
        Self {
            connections: Mutex::new(Table::new(limits.on(listener))),
            gone: Condvar::new(),
            last_connection: AtomicU64::new(0),
            pause,
        }
    }

    fn connections(&self) -> MutexGuard<'_, Table> {
        self.connections.lock()
    }

    /// Accepts clients until `stop` is true or a pause is ordered. Each has a separate thread, which outlives this call
    /// only if it is abandoned: see [`Clients::say_farewell`].
    ///
    /// # Errors
    /// `Io` when polling fails.
    pub(crate) fn accept_until(
        self: &Arc<Self>,
        listener: &Listener,
        protocol: &Arc<dyn Protocol>,
        stop: &AtomicBool,
    ) -> Result<()> {
        while !stop.load(Ordering::Relaxed) && !self.pause.is_ordered() {
            let woken = self.pause.wait(listener.socket(), Some(SLEEP_MAX));
            woken.map_err(|error| Error::io("waiting for clients", error))?;
            if self.pause.is_ordered() {
                break;
            }
            self.see_off_slow_strangers();
            let (socket, peer) = match listener.socket().accept() {
                Ok(accepted) => accepted,
                Err(error) if is_passing(&error) => continue,
                Err(error) => {
                    protocol
                        .tell(&ClientEvent::AcceptFailed { error: &Error::io("accepting a client", error) });
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                }
            };
            let connection = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
            let peer = peer.as_socket();
            let taken = self.take(protocol, connection, socket, peer, None);
            if let Err(error) = taken.map_err(|(error, _)| error) {
                protocol.tell(&ClientEvent::TurnedAway { error: &error });
            }
        }
        Ok(())
    }

    fn see_off_slow_strangers(&self) {
        let mut connections = self.connections();
        for ticket in connections.admission.expire(Instant::now()) {
            connections.see_off(ticket);
        }
    }

    /// Starts the thread of a connection, if there is a place.
    ///
    /// # Errors
    /// The reason why there is none, and the session that was to be resumed.
    fn take(
        self: &Arc<Self>,
        protocol: &Arc<dyn Protocol>,
        connection: u64,
        socket: Socket,
        peer: Option<SocketAddr>,
        rest: Option<Rest>,
    ) -> Result<(), (Error, Option<Rest>)> {
        let socket = Arc::new(socket);
        let source = peer.map_or(Source::Unix, |peer| Source::from(peer.ip()));
        let mut table = self.connections();
        self.gone.wait_while_for(&mut table, |table| table.is_full(), ROOM_TIME);
        let ticket = match table.enter(source, &socket) {
            Ok(ticket) => ticket,
            Err(error) => return Err((error, rest)),
        };
        drop(table);
        if rest.is_none() {
            protocol.tell(&ClientEvent::Connected { connection, peer });
        }
        let clients = Arc::clone(self);
        let client = Client { connection, socket, is_tcp: peer.is_some(), ticket, clients };
        let speaker = Arc::clone(protocol);
        let name = protocol.reader_name().into();
        match thread::Builder::new().name(name).spawn(move || run(client, speaker, rest)) {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut connections = self.connections();
                connections.leave(ticket);
                connections.threads -= 1;
                Err((Error::io("starting a thread", error), None))
            }
        }
    }

    /// Resumes sessions that stopped in this process or another.
    pub(crate) fn go_on(self: &Arc<Self>, protocol: &Arc<dyn Protocol>, sessions: Vec<MovedSession>) {
        for MovedSession { connection, socket, rest } in sessions {
            self.last_connection.fetch_max(connection, Ordering::Relaxed);
            let peer = socket.peer_addr().ok().and_then(|peer| peer.as_socket());
            if let Err((error, _)) = self.take(protocol, connection, socket, peer, Some(rest)) {
                protocol.tell(&ClientEvent::Disconnected { connection, error: Some(&error) });
            }
        }
    }

    /// Returns the stopped sessions.
    pub(crate) fn take_paused(&self) -> Vec<MovedSession> {
        std::mem::take(&mut self.connections().paused)
    }

    /// Waits until every session has stopped after a pause was ordered. Clients that still negotiate are disconnected after a
    /// moment.
    ///
    /// # Errors
    /// `Transient` when requests take too long: these sessions have not stopped.
    pub(crate) fn wait_until_paused(&self) -> Result<()> {
        let connections = self.wait_for_none(self.connections(), SETTLE_TIME);
        for entry in connections.entries.values().filter(|entry| !entry.is_settled) {
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
        match self.wait_for_none(connections, PAUSE_TIME).threads {
            0 => Ok(()),
            count => Err(Error::transient(format!(
                "{count} clients have requests that their disks have not answered yet"
            ))),
        }
    }

    /// Waits for the clients to disconnect. Remaining clients are disconnected after their pending replies. After
    /// another `hang_time`, threads that still wait for something other than their client are abandoned.
    ///
    /// # Errors
    /// `Transient` when threads are abandoned.
    pub(crate) fn say_farewell(&self, time: Duration, hang_time: Duration) -> Result<()> {
        let connections = self.wait_for_none(self.connections(), time);
        for entry in connections.entries.values() {
            // A reader that waits for its client ends normally.
            let _ = entry.socket.shutdown(Shutdown::Read);
        }
        let connections = self.wait_for_none(connections, time);
        for entry in connections.entries.values() {
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
        match self.wait_for_none(connections, hang_time).threads {
            0 => Ok(()),
            count => Err(Error::transient(format!(
                "{count} clients have requests that their disks do not answer; these requests are abandoned"
            ))),
        }
    }

    fn wait_for_none<'a>(
        &'a self,
        mut connections: MutexGuard<'a, Table>,
        time: Duration,
    ) -> MutexGuard<'a, Table> {
        self.gone.wait_while_for(&mut connections, |connections| connections.threads > 0, time);
        connections
    }
}

/// Runs the thread of a connection.
fn run(client: Client, speaker: Arc<dyn Protocol>, mut rest: Option<Rest>) {
    let result = loop {
        let was_let_in = rest.is_some();
        let converse = || {
            let is_checked = was_let_in || !client.is_tcp || !speaker.lets_in_same_user_only();
            if !is_checked && !same_user::check(&client.socket)? {
                return Ok(None);
            }
            speaker.converse(&client, rest.take())
        };
        let result = catch_unwind(AssertUnwindSafe(converse));
        match result.unwrap_or_else(|_| Err(Error::bug("a client's thread panicked"))) {
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
            // The order may have been lifted meanwhile.
            Ok(Some(stopped)) => match client.stop(stopped) {
                Some(stopped) => rest = Some(stopped),
                None => return,
            },
        }
    };
    // The client learns of the end before its place is freed.
    let _ = client.socket.shutdown(Shutdown::Both);
    let Client { connection, ticket, clients, .. } = client;
    let result = if clients.connections().leave(ticket) { result } else { Err(refused(&Refusal::Gone)) };
    speaker.tell(&ClientEvent::Disconnected { connection, error: result.as_ref().err() });
    drop(speaker);
    clients.connections().threads -= 1;
    clients.gone.notify_all();
}

impl Client {
    /// Stores the state of the session for the caller that ordered the pause. Returns it if the order was lifted, or if
    /// the socket cannot be duplicated.
    fn stop(&self, rest: Rest) -> Option<Rest> {
        let Ok(socket) = self.socket.try_clone() else { return Some(rest) };
        let mut connections = self.clients.connections();
        if !self.clients.pause.is_ordered() {
            return Some(rest);
        }
        connections.leave(self.ticket);
        connections.paused.push(MovedSession { connection: self.connection, socket, rest });
        connections.threads -= 1;
        drop(connections);
        self.clients.gone.notify_all();
        None
    }
}

/// No client is waiting.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
