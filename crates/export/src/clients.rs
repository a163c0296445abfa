//! The clients of a server of any protocol: takes them, bounds their number, and sees them off at the end.
//!
//! Owns the table of connections. A client is a connection, and a connection is a thread that runs its protocol; this
//! must never read from a client nor write to one.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use platter_image::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use crate::{Listener, same_user};

/// Longest sleep, so that a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// After a client could not be taken (too many open files), the next is taken no sooner.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

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

    /// A connection's whole life.
    ///
    /// # Errors
    /// Why it ended, unless it ended in good order.
    fn converse(&self, connection: u64, socket: &Arc<Socket>, is_tcp: bool) -> Result<()>;
}

#[derive(Default)]
struct Table {
    sockets: HashMap<u64, Arc<Socket>>,
    /// Threads of connections that have not said yet that they end.
    threads: usize,
}

/// The clients that are here.
pub(crate) struct Clients {
    connections_max: usize,
    connections: Mutex<Table>,
    /// A thread of a connection ends.
    gone: Condvar,
}

impl Clients {
    /// None yet, and never more than that at once.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, connections: Mutex::default(), gone: Condvar::new() }
    }

    fn connections(&self) -> MutexGuard<'_, Table> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
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
            wait_readable(&listener.socket)?;
            let (socket, peer) = match listener.socket.accept() {
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

    /// Starts a connection's thread, if there is room.
    fn take(
        self: &Arc<Self>,
        protocol: &Arc<dyn Protocol>,
        connection: u64,
        socket: Socket,
        peer: Option<SocketAddr>,
    ) -> Result<()> {
        let socket = Arc::new(socket);
        {
            let mut connections = self.connections();
            if connections.sockets.len() >= self.connections_max {
                return Err(Error::refused(format!("there are {} clients already", self.connections_max)));
            }
            connections.sockets.insert(connection, Arc::clone(&socket));
            connections.threads += 1;
        }
        protocol.tell(&ClientEvent::Connected { connection, peer });
        let (clients, speaker) = (Arc::clone(self), Arc::clone(protocol));
        let run = move || {
            let converse = || {
                if peer.is_some() && speaker.lets_in_same_user_only() {
                    same_user::check(&socket)?;
                }
                speaker.converse(connection, &socket, peer.is_some())
            };
            let result = catch_unwind(AssertUnwindSafe(converse));
            let result = result.unwrap_or_else(|_| Err(Error::bug("a client's thread panicked")));
            // The client hears the end before the place is free again.
            let _ = socket.shutdown(Shutdown::Both);
            clients.connections().sockets.remove(&connection);
            speaker.tell(&ClientEvent::Disconnected { connection, error: result.as_ref().err() });
            drop(speaker);
            clients.connections().threads -= 1;
            clients.gone.notify_all();
        };
        match thread::Builder::new().name(protocol.reader_name().into()).spawn(run) {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut connections = self.connections();
                connections.sockets.remove(&connection);
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
        connections: MutexGuard<'a, Table>,
        time: Duration,
    ) -> MutexGuard<'a, Table> {
        let waited = self.gone.wait_timeout_while(connections, time, |connections| connections.threads > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
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
