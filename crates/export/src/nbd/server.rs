//! The server: takes clients, bounds them, and ends in good order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use platter_image::{Error, IoContext, Result};
use socket2::Socket;

use super::NbdListener;
use super::event::NbdEvent;
use super::handshake::shake_hands;
use super::session::{Job, Session, run_worker};
use super::stream::Stream;
use super::tls::NbdTls;
use crate::Exports;
use crate::buffer::Buffers;
use crate::clients::{ClientEvent, Clients, Protocol};

/// Requests of all clients that no worker has begun.
const QUEUE_REQUESTS_MAX: usize = 256;

/// How a server serves.
#[derive(Clone)]
pub struct NbdOptions {
    /// Clients at once; the next one is let in and out again.
    pub connections_max: usize,
    /// Threads for requests that wait for the disk, for all clients together.
    pub workers: usize,
    /// TLS, which every client then has to speak. Without, only addresses of this machine are listened on: whoever
    /// reaches the port has the disks.
    pub tls: Option<NbdTls>,
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
            tls: None,
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
}

impl Shared {
    pub(super) fn tell(&self, event: &NbdEvent<'_>) {
        (self.options.on_event)(event);
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
        if let Some(address) = remote.filter(|_| options.tls.is_none()) {
            return Err(Error::refused(format!(
                "{address}: other machines reach this address; that takes TLS, and so certificates"
            )));
        }
        let workers = options.workers.max(1);
        let clients = Arc::new(Clients::new(options.connections_max));
        let shared = Arc::new(Shared {
            exports,
            options,
            buffers: Buffers::default(),
            is_stopping: AtomicBool::new(false),
        });
        let (jobs, queue) = bounded(QUEUE_REQUESTS_MAX);
        thread::scope(|scope| {
            // Dropping it, and the clones of all connections, ends the workers.
            let server: Arc<dyn Protocol> = Arc::new(Self { shared: Arc::clone(&shared), jobs });
            for _ in 0..workers {
                let queue = queue.clone();
                let started = thread::Builder::new()
                    .name("nbd-worker".into())
                    .spawn_scoped(scope, move || run_worker(&queue));
                started.context(|| "starting a thread".into())?;
            }
            let result = clients.accept_until(scope, &listener, &server, stop);
            shared.is_stopping.store(true, Ordering::Relaxed);
            drop(listener);
            clients.say_farewell(shared.options.farewell_time);
            result
        })
    }
}

impl Protocol for NbdServer {
    fn reader_name(&self) -> &'static str {
        "nbd-reader"
    }

    fn tell(&self, event: &ClientEvent<'_>) {
        self.shared.tell(&match *event {
            ClientEvent::Connected { connection, peer } => NbdEvent::Connected { connection, peer },
            ClientEvent::TurnedAway { error } => NbdEvent::TurnedAway { error },
            ClientEvent::AcceptFailed { error } => NbdEvent::AcceptFailed { error },
            ClientEvent::Disconnected { connection, error } => NbdEvent::Disconnected { connection, error },
        });
    }

    fn converse(&self, connection: u64, socket: &Arc<Socket>, is_tcp: bool) -> Result<()> {
        converse(&self.shared, &self.jobs, connection, socket, is_tcp)
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
    let stream = Arc::new(Stream::new(Arc::clone(socket)));
    let tls = shared.options.tls.as_ref();
    let Some(agreed) = shake_hands(&stream, &*shared.exports, tls, deadline)? else {
        stream.say_goodbye();
        return Ok(());
    };
    socket.set_read_timeout(stall_time).context(limit("time to read"))?;
    socket.set_write_timeout(stall_time).context(limit("time to write"))?;
    shared.tell(&NbdEvent::Opened { connection, export: &agreed.name });
    let session = Session {
        shared: Arc::clone(shared),
        connection,
        stream: Arc::clone(&stream),
        agreed,
        outbox: Default::default(),
        pace: Default::default(),
    };
    Arc::new(session).run(jobs)?;
    stream.say_goodbye();
    Ok(())
}
