//! The server: options, threads, and clean shutdown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_image::{Error, IoContext, Result};
use platter_transport::Listener;

use super::connection::{Connection, Job};
use super::event::NinepEvent;
use crate::buffer::Buffers;
use crate::clients::{Client, ClientEvent, ClientLimits, Clients, Protocol};
use crate::moved::{MovedSession, Rest};
use crate::pause::Pause;
use crate::socket_server::SocketServer;
use crate::tree::Tree;
use crate::workers::Workers;

/// Options of a server.
#[derive(Clone)]
pub struct NinepOptions {
    /// Maximum number of clients; further ones are disconnected at once. TCP clients that have not negotiated a version
    /// have few places of their own, where they displace each other.
    pub connections_max: usize,
    /// Maximum fids per client. Linux keeps one for each cached name.
    pub fids_max: usize,
    /// Maximum worker threads for requests that wait, shared by all clients.
    pub workers: usize,
    /// Accept every client that reaches the port. Otherwise a TCP client must be a local process of the serving user or
    /// of root.
    pub insecure_loopback: bool,
    /// Time limit for the first message, and over TCP for the version negotiation.
    pub handshake_time: Duration,
    /// A client that does not read its replies, or stalls within a message, for this long is disconnected.
    pub stall_time: Duration,
    /// At shutdown, clients have this long to disconnect, while their requests are refused.
    pub farewell_time: Duration,
    /// After another such time, requests that still wait for the tree are abandoned.
    pub hang_time: Duration,
    /// Receives events from many threads; must not block.
    pub on_event: Arc<dyn Fn(&NinepEvent<'_>) + Send + Sync>,
}

impl Default for NinepOptions {
    fn default() -> Self {
        Self {
            connections_max: 64,
            fids_max: 32 << 10,
            workers: 16,
            insecure_loopback: false,
            handshake_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(60),
            farewell_time: Duration::from_secs(1),
            hang_time: Duration::from_secs(10),
            on_event: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for NinepOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NinepOptions").field("connections_max", &self.connections_max).finish_non_exhaustive()
    }
}

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) options: NinepOptions,
    pub(super) buffers: Buffers,
    /// New requests are refused (shutdown).
    pub(super) is_stopping: AtomicBool,
}

impl Shared {
    pub(super) fn tell(&self, event: &NinepEvent<'_>) {
        (self.options.on_event)(event);
    }
}

/// A 9P server.
pub struct NinepServer {
    shared: Arc<Shared>,
    workers: Arc<Workers<Job>>,
}

impl NinepServer {
    /// Creates a server, which serves once it runs: [`SocketServer::run`]. `sessions` stopped in another process and are resumed here.
    ///
    /// # Errors
    /// `Refused` when the options do not allow such a listener.
    pub fn over(
        listener: Listener,
        sessions: Vec<MovedSession>,
        tree: Arc<dyn Tree>,
        options: NinepOptions,
        pause: Arc<Pause>,
    ) -> Result<SocketServer> {
        let remote = listener.tcp_address().filter(|address| !address.ip().is_loopback());
        if let Some(address) = remote {
            return Err(Error::refused(format!(
                "{address}: other machines can reach this address, and 9P has no TLS; use a loopback address"
            )));
        }
        let workers = Workers::new("9p-worker", options.workers, Job::run);
        let NinepOptions { connections_max, handshake_time, farewell_time, hang_time, .. } = options;
        let clients = Clients::new(ClientLimits { connections_max, handshake_time }, &listener, pause);
        let (buffers, is_stopping) = (Buffers::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { tree, options, buffers, is_stopping });
        let protocol = Arc::new(Self { shared, workers });
        Ok(SocketServer::new(listener, clients, protocol, sessions, [farewell_time, hang_time]))
    }

    /// Serves until `stop` is true, and then until all clients have disconnected or were disconnected. Every started
    /// request is then finished. Only syncs and closes requested by clients are done.
    ///
    /// # Errors
    /// `Refused` when the options do not allow such a listener; `Io` when threads or polling fail.
    pub fn serve(
        listener: Listener,
        tree: Arc<dyn Tree>,
        options: NinepOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut server = Self::over(listener, Vec::new(), tree, options, Arc::new(Pause::new()?))?;
        server.run(stop).map(drop)
    }
}

impl Protocol for NinepServer {
    fn reader_name(&self) -> &'static str {
        "9p-reader"
    }

    fn lets_in_same_user_only(&self) -> bool {
        !self.shared.options.insecure_loopback
    }

    fn tell(&self, event: &ClientEvent<'_>) {
        self.shared.tell(&match *event {
            ClientEvent::Connected { connection, peer } => NinepEvent::Connected { connection, peer },
            ClientEvent::TurnedAway { error } => NinepEvent::TurnedAway { error },
            ClientEvent::AcceptFailed { error } => NinepEvent::AcceptFailed { error },
            ClientEvent::Disconnected { connection, error } => NinepEvent::Disconnected { connection, error },
        });
    }

    fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
    }

    fn converse(&self, client: &Client, rest: Option<Rest>) -> Result<Option<Rest>> {
        if client.is_tcp {
            client.socket.set_tcp_nodelay(true).context(|| "setting a connection's promptness".into())?;
        }
        let connection = Connection {
            shared: Arc::clone(&self.shared),
            client: client.clone(),
            outbox: Default::default(),
            pace: Default::default(),
            tags: Default::default(),
        };
        Arc::new(connection).run(&self.workers, rest)
    }
}
