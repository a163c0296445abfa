//! The clients of a server of any protocol: takes them, bounds their number, and sees them off at the end.
//!
//! Owns the table of connections. A client is a connection, and a connection is a thread that runs its protocol; this
//! must never read from a client nor write to one. Over TCP a client is a stranger until its protocol says that it is known:
//! strangers have few places and little time, and displace each other (`platter_admission`).

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Refusal, Source, Ticket};
use platter_image::{Error, Result};
use platter_transport::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use crate::same_user;

/// Longest sleep, so that a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// After a client could not be taken (too many open files), the next is taken no sooner.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// So long the next client waits for threads to end that had to go, before it is turned away.
const ROOM_TIME: Duration = Duration::from_secs(1);
/// TCP clients that have not agreed on anything yet.
const STRANGERS_MAX: usize = 64;
/// Of these, from one address of another machine.
const STRANGERS_OF_ADDRESS_MAX: usize = 16;

/// How many clients there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// Clients that are served.
    pub(crate) connections_max: usize,
    /// How long a TCP client may take until it is known.
    pub(crate) handshake_time: Duration,
}

impl ClientLimits {
    /// Of a listener. All clients of this machine have one address, and may have all places; one other machine has half.
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

/// What happened to a connection. They are numbered from 1 in the order they came.
pub(crate) enum ClientEvent<'a> {
    /// A client has come.
    Connected { connection: u64, peer: Option<SocketAddr> },
    /// A client had to go at once.
    TurnedAway { error: &'a Error },
    /// A connection could not be taken; the server goes on.
    AcceptFailed { error: &'a Error },
    /// A client has gone; why, unless it went in good order.
    Disconnected { connection: u64, error: Option<&'a Error> },
}

/// What a server speaks with its clients.
pub(crate) trait Protocol: Send + Sync {
    /// The name of the threads that read from clients.
    fn reader_name(&self) -> &'static str;

    /// Whether a client over TCP has to be of the user of this process, or root.
    fn lets_in_same_user_only(&self) -> bool;

    /// Hears what happens, from many threads; must not wait.
    fn tell(&self, event: &ClientEvent<'_>);

    /// A connection's whole life. As soon as the client has agreed on something, it is to become known.
    ///
    /// # Errors
    /// Why it ended, unless it ended in good order.
    fn converse(&self, client: &Client) -> Result<()>;
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
    /// It is no stranger any more.
    ///
    /// # Errors
    /// `Refused` when there is no place for it.
    pub(crate) fn become_known(&self) -> Result<()> {
        let known = self.clients.connections().admission.make_known(self.ticket);
        known.map_err(|refusal| refused(&refusal))
    }
}

fn refused(refusal: &Refusal) -> Error {
    Error::refused(match refusal {
        Refusal::Full(count) => format!("there are {count} clients already"),
        Refusal::FullForSource(count) => format!("there are {count} clients from its address already"),
        Refusal::Gone => "it had not agreed on anything, and others needed its place".to_owned(),
    })
}

struct Table {
    admission: Admission,
    sockets: HashMap<Ticket, Arc<Socket>>,
    /// Threads of connections that have not said yet that they end.
    threads: usize,
    threads_max: usize,
}

impl Table {
    fn new(limits: Limits) -> Self {
        // Those that had to go need a moment for it: see `ROOM_TIME`.
        let threads_max = limits.known_max + 2 * limits.strangers_max;
        Self { admission: Admission::new(limits), sockets: HashMap::new(), threads: 0, threads_max }
    }

    /// Disconnects a stranger that has no place any more; its thread ends by itself.
    fn see_off(&mut self, ticket: Ticket) {
        if let Some(socket) = self.sockets.remove(&ticket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_full(&self) -> bool {
        self.threads >= self.threads_max
    }

    /// The place of one more client.
    fn enter(&mut self, source: Source, socket: &Arc<Socket>) -> Result<Ticket> {
        if self.is_full() {
            return Err(Error::refused(format!("there are {} connections already", self.threads)));
        }
        let entered = self.admission.enter(source, Instant::now());
        if let Some(displaced) = entered.displaced {
            self.see_off(displaced);
        }
        // Only those get that far on a unix socket who may have the disks.
        let known = if source == Source::Unix { self.admission.make_known(entered.ticket) } else { Ok(()) };
        if let Err(refusal) = known {
            self.admission.leave(entered.ticket);
            return Err(refused(&refusal));
        }
        self.sockets.insert(entered.ticket, Arc::clone(socket));
        self.threads += 1;
        Ok(entered.ticket)
    }

    /// False when it had to go before.
    fn leave(&mut self, ticket: Ticket) -> bool {
        self.admission.leave(ticket);
        self.sockets.remove(&ticket).is_some()
    }
}

/// The clients that are here.
pub(crate) struct Clients {
    connections: Mutex<Table>,
    /// A thread of a connection ends.
    gone: Condvar,
}

impl Clients {
    /// None yet, and never more than that at once.
    pub(crate) fn new(limits: ClientLimits, listener: &Listener) -> Self {
        Self { connections: Mutex::new(Table::new(limits.on(listener))), gone: Condvar::new() }
    }

    fn connections(&self) -> MutexGuard<'_, Table> {
        self.connections.lock()
    }

    /// Takes clients until `stop` is true. Each has a thread of its own, which outlives this only when it is left behind:
    /// see [`Clients::say_farewell`].
    ///
    /// # Errors
    /// `Io` when polling fails.
    pub(crate) fn accept_until(
        self: &Arc<Self>,
        listener: &Listener,
        protocol: &Arc<dyn Protocol>,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut connection = 0;
        while !stop.load(Ordering::Relaxed) {
            wait_readable(&listener.socket())?;
            self.see_off_slow_strangers();
            let (socket, peer) = match listener.socket().accept() {
                Ok(accepted) => accepted,
                Err(error) if is_passing(&error) => continue,
                Err(error) => {
                    protocol.tell(&ClientEvent::AcceptFailed { error: &Error::io("taking a client", error) });
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                }
            };
            connection += 1;
            if let Err(error) = self.take(protocol, connection, socket, peer.as_socket()) {
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

    /// Starts a connection's thread, if there is room.
    fn take(
        self: &Arc<Self>,
        protocol: &Arc<dyn Protocol>,
        connection: u64,
        socket: Socket,
        peer: Option<SocketAddr>,
    ) -> Result<()> {
        let socket = Arc::new(socket);
        let source = peer.map_or(Source::Unix, |peer| Source::from(peer.ip()));
        let mut table = self.connections();
        self.gone.wait_while_for(&mut table, |table| table.is_full(), ROOM_TIME);
        let ticket = table.enter(source, &socket)?;
        drop(table);
        protocol.tell(&ClientEvent::Connected { connection, peer });
        let clients = Arc::clone(self);
        let client = Client { connection, socket, is_tcp: peer.is_some(), ticket, clients };
        let speaker = Arc::clone(protocol);
        match thread::Builder::new().name(protocol.reader_name().into()).spawn(move || run(client, speaker)) {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut connections = self.connections();
                connections.leave(ticket);
                connections.threads -= 1;
                Err(Error::io("starting a thread", error))
            }
        }
    }

    /// Waits that long for the clients to go; those that do not are disconnected, with replies to what they asked if
    /// they read them. `hang_time` later those are given up that wait for something else than their client.
    ///
    /// # Errors
    /// `Transient` when some are given up.
    pub(crate) fn say_farewell(&self, time: Duration, hang_time: Duration) -> Result<()> {
        let connections = self.wait_for_none(self.connections(), time);
        for socket in connections.sockets.values() {
            // A reader that waits for its client ends in good order.
            let _ = socket.shutdown(Shutdown::Read);
        }
        let connections = self.wait_for_none(connections, time);
        for socket in connections.sockets.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        match self.wait_for_none(connections, hang_time).threads {
            0 => Ok(()),
            count => Err(Error::transient(format!(
                "{count} clients have requests that their disks do not answer: these are given up"
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

/// A connection's thread.
fn run(client: Client, speaker: Arc<dyn Protocol>) {
    let converse = || {
        if client.is_tcp && speaker.lets_in_same_user_only() && !same_user::check(&client.socket)? {
            return Ok(());
        }
        speaker.converse(&client)
    };
    let result = catch_unwind(AssertUnwindSafe(converse));
    let mut result = result.unwrap_or_else(|_| Err(Error::bug("a client's thread panicked")));
    // The client hears the end before the place is free again.
    let _ = client.socket.shutdown(Shutdown::Both);
    let Client { connection, ticket, clients, .. } = client;
    if !clients.connections().leave(ticket) {
        result = Err(refused(&Refusal::Gone));
    }
    speaker.tell(&ClientEvent::Disconnected { connection, error: result.as_ref().err() });
    drop(speaker);
    clients.connections().threads -= 1;
    clients.gone.notify_all();
}

fn wait_readable(socket: &Socket) -> Result<()> {
    let mut descriptors = [PollFd::new(socket, PollFlags::IN)];
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP_MAX.subsec_nanos()) };
    match poll(&mut descriptors, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io("waiting for clients", error.into())),
    }
}

/// Nobody is there, or nobody any more.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
