//! The server: accepts clients, limits them, and shuts down cleanly.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use platter_image::{Error, IoContext, Result};
use platter_transport::Listener;

use super::event::NbdEvent;
use super::failures::Failures;
use super::handshake::shake_hands;
use super::session::{End, Job, Session, workers};
use super::state::NbdState;
use super::stream::Stream;
use super::tls::NbdTls;
use super::wire::PAYLOAD_BYTES_MAX;
use crate::Exports;
use crate::budget::{Account, Budget};
use crate::buffer::Buffers;
use crate::clients::{Client, ClientEvent, ClientLimits, Clients, Protocol};
use crate::moved::{MovedSession, Rest};
use crate::pause::Pause;
use crate::socket_server::SocketServer;
use crate::workers::Workers;

/// Options of a server.
#[derive(Clone)]
pub struct NbdOptions {
    /// Maximum number of clients; further ones are disconnected at once. One remote address may use half of them. TCP
    /// clients that have not selected a disk have few places of their own, where they displace each other.
    pub connections_max: usize,
    /// Maximum worker threads per disk, for requests that wait for it: a disk that does not answer blocks only its own workers.
    pub workers: usize,
    /// Maximum payload bytes of all clients in flight; at least 64 MiB, twice the largest request.
    pub bytes_in_flight_max: u64,
    /// TLS, mandatory for every client. Without it, only loopback addresses are allowed, because everybody who reaches
    /// the port can use the disks.
    pub tls: Option<NbdTls>,
    /// Without TLS, accept every client that reaches the port. Otherwise a TCP client must be a local process of the
    /// serving user or of root.
    pub insecure_loopback: bool,
    /// Time limit for the negotiation.
    pub handshake_time: Duration,
    /// A client that does not read its replies, or stalls within a request, for this long is disconnected.
    pub stall_time: Duration,
    /// At shutdown, clients have this long to disconnect, while their requests are refused. Remaining clients are then
    /// disconnected.
    pub farewell_time: Duration,
    /// After another such time, requests that still wait for a disk are abandoned.
    pub hang_time: Duration,
    /// Receives events from many threads; must not block.
    pub on_event: Arc<dyn Fn(&NbdEvent<'_>) + Send + Sync>,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            connections_max: 256,
            workers: 16,
            bytes_in_flight_max: 256 << 20,
            tls: None,
            insecure_loopback: false,
            handshake_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(60),
            farewell_time: Duration::from_secs(1),
            hang_time: Duration::from_secs(10),
            on_event: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for NbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdOptions").field("connections_max", &self.connections_max).finish_non_exhaustive()
    }
}

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) exports: Arc<dyn Exports>,
    pub(super) options: NbdOptions,
    pub(super) buffers: Buffers,
    pub(super) budget: Arc<Budget>,
    pub(super) failures: Failures,
    /// The workers of each disk in use.
    workers: Mutex<HashMap<String, Weak<Workers<Job>>>>,
    /// New requests are refused (shutdown).
    pub(super) is_stopping: AtomicBool,
}

impl Shared {
    pub(super) fn tell(&self, event: &NbdEvent<'_>) {
        (self.options.on_event)(event);
    }

    /// The workers of a disk.
    fn workers_of(&self, export: &str) -> Arc<Workers<Job>> {
        let mut all = self.workers.lock();
        if let Some(workers) = all.get(export).and_then(Weak::upgrade) {
            return workers;
        }
        all.retain(|_, workers| workers.strong_count() > 0);
        let workers = workers(self.options.workers);
        all.insert(export.to_owned(), Arc::downgrade(&workers));
        workers
    }
}

/// An NBD server.
pub struct NbdServer {
    shared: Arc<Shared>,
}

impl NbdServer {
    /// Creates a server, which serves once it runs: [`SocketServer::run`]. `sessions` stopped in another process and are resumed here.
    ///
    /// # Errors
    /// `Refused` when the options do not allow such a listener.
    pub fn over(
        listener: Listener,
        sessions: Vec<MovedSession>,
        exports: Arc<dyn Exports>,
        options: NbdOptions,
        pause: Arc<Pause>,
    ) -> Result<SocketServer> {
        let remote = listener.tcp_address().filter(|address| !address.ip().is_loopback());
        if let Some(address) = remote.filter(|_| options.tls.is_none()) {
            return Err(Error::refused(format!(
                "{address}: other machines can reach this address, so TLS is required (--tls-certificates)"
            )));
        }
        let NbdOptions { connections_max, handshake_time, farewell_time, hang_time, .. } = options;
        let clients = Clients::new(ClientLimits { connections_max, handshake_time }, &listener, pause);
        let shared = Arc::new(Shared {
            exports,
            budget: Budget::new(options.bytes_in_flight_max.max(2 * u64::from(PAYLOAD_BYTES_MAX))),
            options,
            buffers: Buffers::default(),
            failures: Failures::default(),
            workers: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        });
        let protocol = Arc::new(Self { shared });
        Ok(SocketServer::new(listener, clients, protocol, sessions, [farewell_time, hang_time]))
    }

    /// Serves until `stop` is true, and then until all clients have disconnected or were disconnected. Every started
    /// request is then finished. Only flushes requested by clients are done.
    ///
    /// # Errors
    /// `Refused` when the options do not allow such a listener; `Transient` when a disk does not answer at shutdown,
    /// and the threads waiting for it are abandoned; `Io` when threads or polling fail.
    pub fn serve(
        listener: Listener,
        exports: Arc<dyn Exports>,
        options: NbdOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut server = Self::over(listener, Vec::new(), exports, options, Arc::new(Pause::new()?))?;
        server.run(stop).map(drop)
    }
}

impl Protocol for NbdServer {
    fn reader_name(&self) -> &'static str {
        "nbd-reader"
    }

    fn lets_in_same_user_only(&self) -> bool {
        self.shared.options.tls.is_none() && !self.shared.options.insecure_loopback
    }

    fn tell(&self, event: &ClientEvent<'_>) {
        self.shared.tell(&match *event {
            ClientEvent::Connected { connection, peer } => NbdEvent::Connected { connection, peer },
            ClientEvent::TurnedAway { error } => NbdEvent::TurnedAway { error },
            ClientEvent::AcceptFailed { error } => NbdEvent::AcceptFailed { error },
            ClientEvent::Disconnected { connection, error } => NbdEvent::Disconnected { connection, error },
        });
    }

    fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
    }

    fn converse(&self, client: &Client, rest: Option<Rest>) -> Result<Option<Rest>> {
        converse(&self.shared, client, rest)
    }
}

/// Runs the protocol of a connection, from its start or from `rest`.
fn converse(shared: &Arc<Shared>, client: &Client, rest: Option<Rest>) -> Result<Option<Rest>> {
    let Client { connection, socket, is_tcp, .. } = client;
    let limit = |what: &'static str| move || format!("setting a connection's {what}");
    let stall_time = Some(shared.options.stall_time);
    if *is_tcp {
        socket.set_tcp_nodelay(true).context(limit("promptness"))?;
    }
    let stream = Arc::new(Stream::new(Arc::clone(socket)));
    let (agreed, unread) = match rest {
        Some(Rest { state, unread }) => (NbdState::from_text(&state)?.agreed(&*shared.exports)?, unread),
        None => {
            socket.set_write_timeout(Some(shared.options.handshake_time)).context(limit("write timeout"))?;
            let deadline = Instant::now() + shared.options.handshake_time;
            let tls = shared.options.tls.as_ref();
            let Some(agreed) = shake_hands(&stream, &*shared.exports, tls, deadline)? else {
                stream.say_goodbye();
                return Ok(None);
            };
            shared.tell(&NbdEvent::Opened { connection: *connection, export: &agreed.name });
            (agreed, Vec::new())
        }
    };
    client.become_known()?;
    client.settle();
    socket.set_read_timeout(stall_time).context(limit("read timeout"))?;
    socket.set_write_timeout(stall_time).context(limit("write timeout"))?;
    let state = NbdState::of(&agreed);
    let session = Session {
        shared: Arc::clone(shared),
        connection: *connection,
        stream: Arc::clone(&stream),
        workers: shared.workers_of(&agreed.name),
        agreed,
        outbox: Default::default(),
        account: Account::default(),
        pace: Default::default(),
    };
    let end = Arc::new(session).run(client.pause(), unread)?;
    match end {
        End::Paused(unread) if !stream.is_encrypted() => {
            return Ok(Some(Rest { state: state.to_text()?, unread }));
        }
        _ => stream.say_goodbye(),
    }
    match end {
        End::Paused(_) => Err(Error::transient(
            "another process takes over, and cannot go on with TLS: the client has to connect again",
        )),
        End::Gone => Ok(None),
    }
}
