//! The server: takes clients, bounds them, and ends in good order.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use platter_image::{Error, IoContext, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::buffer::Buffers;
use super::event::NbdEvent;
use super::handshake::shake_hands;
use super::listener::NbdListener;
use super::session::{Job, Session, run_worker};
use crate::Exports;

/// Requests of all clients that no worker has begun.
const QUEUE_REQUESTS_MAX: usize = 256;
/// Longest sleep, so that a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// After a client could not be taken (too many open files), the next is taken no sooner.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How a server serves.
#[derive(Clone)]
pub struct NbdOptions {
    /// Clients at once; the next one is let in and out again.
    pub connections_max: usize,
    /// Threads for requests that wait for the disk, for all clients together.
    pub workers: usize,
    /// Listen on addresses that other machines reach. There is no TLS: whoever reaches the port has the disks.
    pub allow_remote: bool,
    /// How long a client may take until its first request can come.
    pub handshake_time: Duration,
    /// A client that owes a reading, or the rest of a request, for that long is disconnected.
    pub stall_time: Duration,
    /// At the end, clients have that long to go by themselves; their requests are refused.
    pub farewell_time: Duration,
    /// Hears what happens, from many threads; must not wait.
    pub on_event: Arc<dyn Fn(&NbdEvent<'_>) + Send + Sync>,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            connections_max: 256,
            workers: 16,
            allow_remote: false,
            handshake_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(60),
            farewell_time: Duration::from_secs(1),
            on_event: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for NbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdOptions").field("connections_max", &self.connections_max).finish_non_exhaustive()
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) exports: Arc<dyn Exports>,
    pub(super) options: NbdOptions,
    pub(super) buffers: Buffers,
    /// New requests are refused.
    pub(super) is_stopping: AtomicBool,
    connections: Mutex<HashMap<u64, Arc<Socket>>>,
    /// A connection has gone.
    gone: Condvar,
}

impl Shared {
    pub(super) fn tell(&self, event: &NbdEvent<'_>) {
        (self.options.on_event)(event);
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Socket>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An NBD server.
pub struct NbdServer {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

impl NbdServer {
    /// Serves until `stop` is true, and then until all clients have gone or been disconnected. Every request that had
    /// begun is then done. Nothing is flushed that no client flushed.
    ///
    /// # Errors
    /// `Refused` when the options do not allow such a listener; `Io` when threads or polling fail.
    pub fn serve(
        listener: NbdListener,
        exports: Arc<dyn Exports>,
        options: NbdOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        let remote = listener.tcp_address().filter(|address| !address.ip().is_loopback());
        if let Some(address) = remote.filter(|_| !options.allow_remote) {
            return Err(Error::refused(format!(
                "{address}: other machines reach this address, and there is no TLS; use a loopback address or allow it"
            )));
        }
        let workers = options.workers.max(1);
        let shared = Arc::new(Shared {
            exports,
            options,
            buffers: Buffers::default(),
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            gone: Condvar::new(),
        });
        let (jobs, queue) = bounded(QUEUE_REQUESTS_MAX);
        thread::scope(|scope| {
            // Dropping it, and the clones of all connections, ends the workers.
            let server = Self { shared, jobs };
            for _ in 0..workers {
                let queue = queue.clone();
                let started = thread::Builder::new()
                    .name("nbd-worker".into())
                    .spawn_scoped(scope, move || run_worker(&queue));
                started.context(|| "starting a thread".into())?;
            }
            let result = server.accept_until(scope, &listener, stop);
            server.shared.is_stopping.store(true, Ordering::Relaxed);
            drop(listener);
            server.say_farewell();
            result
        })
    }

    fn accept_until<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        listener: &NbdListener,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut connection = 0;
        while !stop.load(Ordering::Relaxed) {
            wait_readable(&listener.socket)?;
            let (socket, peer) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_passing(&error) => continue,
                Err(error) => {
                    self.shared.tell(&NbdEvent::AcceptFailed { error: &Error::io("taking a client", error) });
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                }
            };
            connection += 1;
            if let Err(error) = self.take(scope, connection, socket, peer.as_socket()) {
                self.shared.tell(&NbdEvent::TurnedAway { error: &error });
            }
        }
        Ok(())
    }

    /// Starts a connection's thread, if there is room.
    fn take<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        connection: u64,
        socket: Socket,
        peer: Option<std::net::SocketAddr>,
    ) -> Result<()> {
        let connections_max = self.shared.options.connections_max;
        let socket = Arc::new(socket);
        {
            let mut connections = self.shared.connections();
            if connections.len() >= connections_max {
                return Err(Error::refused(format!("there are {connections_max} clients already")));
            }
            connections.insert(connection, Arc::clone(&socket));
        }
        self.shared.tell(&NbdEvent::Connected { connection, peer });
        let (shared, jobs) = (Arc::clone(&self.shared), self.jobs.clone());
        let run = move || {
            let result = converse(&shared, &jobs, connection, &socket, peer.is_some());
            // The client hears the end before the place is free again.
            let _ = socket.shutdown(Shutdown::Both);
            shared.connections().remove(&connection);
            shared.gone.notify_all();
            shared.tell(&NbdEvent::Disconnected { connection, error: result.as_ref().err() });
        };
        match thread::Builder::new().name("nbd-reader".into()).spawn_scoped(scope, run) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.shared.connections().remove(&connection);
                Err(Error::io("starting a thread", error))
            }
        }
    }

    /// Waits for the clients to go; those that do not are cut off.
    fn say_farewell(&self) {
        let deadline = Instant::now() + self.shared.options.farewell_time;
        let mut connections = self.shared.connections();
        while !connections.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.gone.wait_timeout(connections, left);
            connections = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for socket in connections.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A connection's whole life.
fn converse(
    shared: &Arc<Shared>,
    jobs: &Sender<Job>,
    connection: u64,
    socket: &Arc<Socket>,
    is_tcp: bool,
) -> Result<()> {
    let limit = |what: &'static str| move || format!("setting a connection's {what}");
    let stall_time = Some(shared.options.stall_time);
    if is_tcp {
        socket.set_tcp_nodelay(true).context(limit("promptness"))?;
    }
    socket.set_write_timeout(Some(shared.options.handshake_time)).context(limit("time to write"))?;
    let deadline = Instant::now() + shared.options.handshake_time;
    let Some(agreed) = shake_hands(socket, &*shared.exports, deadline)? else { return Ok(()) };
    socket.set_read_timeout(stall_time).context(limit("time to read"))?;
    socket.set_write_timeout(stall_time).context(limit("time to write"))?;
    shared.tell(&NbdEvent::Opened { connection, export: &agreed.name });
    let session = Session {
        shared: Arc::clone(shared),
        connection,
        socket: Arc::clone(socket),
        agreed,
        outbox: Default::default(),
        pace: Default::default(),
    };
    Arc::new(session).run(jobs)
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
