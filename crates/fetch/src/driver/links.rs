//! Opens connections to peers and accepts connections from them.
//!
//! Owns the limits of both. Must never accept a node that is not in the directory. A connection counts as a stranger
//! until it has shown a known node's certificate: strangers have few places and little time, and displace each other
//! (`platter_admission`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Source, Ticket};
use platter_cast::peer::NodeId;
use platter_image::{Error, IoContext, Result};
use platter_transport::{Fingerprint, PEER_NAME, peer_client, peer_server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::directory::{Directory, KnownNode};
use super::identity::Identity;
use super::link::{self, Greeted, LinkContext};
use super::machine_linking::LINKS_MAX;

/// Longest time for connecting and for the handshake, each.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Limits of accepted connections. One machine can have many nodes, for tests; nodes behind one address translation
/// share an address as well.
const PLACES: Limits = Limits {
    strangers_max: 64,
    strangers_of_one_max: 16,
    stranger_time: CONNECT_TIME_MAX,
    // Twice the machine's limit of links, because a node may reconnect before the end of its old connection is noticed.
    known_max: 2 * LINKS_MAX,
    known_of_one_max: LINKS_MAX / 2,
};
/// Threads of removed strangers that have not ended yet, beyond those with places.
const LEAVING_MAX: usize = 64;
/// Pause between checks for strangers whose time is over.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Pause after a failed accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Context for opening and accepting connections.
pub(super) struct Links {
    pub(super) identity: Arc<Identity>,
    pub(super) directory: Arc<Directory>,
    pub(super) context: LinkContext,
    pub(super) next_number: AtomicU64,
}

impl Links {
    fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a connection to this node on a new thread, which becomes its reader and reports the end to the machine.
    /// Returns false if there is no thread for it.
    pub(super) fn dial(self: &Arc<Self>, node: NodeId) -> bool {
        let links = self.clone();
        let dialing = move || match links.connect(node) {
            Ok(greeted) => link::run(links.number(), greeted, &links.context),
            Err(_) => _ = links.context.act(|machine, now| machine.handle_not_linked(now, node)),
        };
        thread::Builder::new().name("peer-reader".to_owned()).spawn(dialing).is_ok()
    }

    fn connect(&self, node: NodeId) -> Result<Greeted> {
        let known = self.directory.get(&node);
        let Some(KnownNode { address: Some(address), fingerprint, .. }) = known else {
            return Err(Error::missing("this node's address is unknown"));
        };
        let mut socket = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)
            .map_err(|error| Error::transient(format!("no node listens at {address}")).with_source(error))?;
        let name = ServerName::try_from(PEER_NAME).map_err(|_| Error::bug("invalid server name of nodes"))?;
        let connection = ClientConnection::new(peer_client(&self.identity.tls, fingerprint)?, name)
            .map_err(|error| Error::bug(format!("TLS: {error}")))?;
        let mut connection = Connection::Client(connection);
        link::shake_hands(&mut connection, &mut socket, CONNECT_TIME_MAX)?;
        Ok(Greeted { connection, socket, node, is_own: true })
    }

    /// Accepts a connection on the calling thread, which becomes its reader.
    fn take_in(&self, config: Arc<ServerConfig>, mut socket: TcpStream, guest: &Guest) {
        let greeted = ServerConnection::new(config)
            .map_err(|error| Error::bug(format!("TLS: {error}")))
            .and_then(|connection| {
                let mut connection = Connection::Server(connection);
                link::shake_hands(&mut connection, &mut socket, CONNECT_TIME_MAX)?;
                let shown = connection.peer_certificates().and_then(|shown| shown.first());
                let node = shown.and_then(|shown| self.directory.node_of(&Fingerprint::of(shown)));
                let node = node.ok_or_else(|| Error::refused("a stranger"))?;
                guest.become_known()?;
                Ok(Greeted { connection, socket, node, is_own: false })
            });
        if let Ok(greeted) = greeted {
            link::run(self.number(), greeted, &self.context);
        }
    }
}

/// The listening socket for peers. Closed when this is dropped.
pub(super) struct Door {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
}

impl Door {
    /// Starts listening.
    ///
    /// # Errors
    /// `Io` when the address is not available, or a thread cannot be started.
    pub(super) fn open(address: SocketAddr, links: &Arc<Links>) -> Result<Self> {
        let doing = || format!("listening for peers at {address}");
        let listener = Arc::new(TcpListener::bind(address).context(doing)?);
        listener.set_nonblocking(true).context(doing)?;
        let address = listener.local_addr().context(doing)?;
        let config = peer_server(&links.identity.tls, links.directory.clone())?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let (accepting, links, closed) = (listener.clone(), links.clone(), is_closed.clone());
        thread::Builder::new()
            .name("peers-door".to_owned())
            .spawn(move || accept(&accepting, &links, &config, &closed))
            .context(|| "starting a thread for peers".to_owned())?;
        Ok(Self { listener, address, is_closed })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // This ends the wait for the next connection.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

/// The accepted connections.
struct Guests(Mutex<GuestTable>);

struct GuestTable {
    admission: Admission,
    sockets: HashMap<Ticket, TcpStream>,
    threads: usize,
}

/// An accepted connection. Its place becomes free when this is dropped.
struct Guest {
    guests: Arc<Guests>,
    ticket: Ticket,
}

impl Guests {
    fn new() -> Self {
        let admission = Admission::new(PLACES);
        Self(Mutex::new(GuestTable { admission, sockets: HashMap::new(), threads: 0 }))
    }

    fn table(&self) -> MutexGuard<'_, GuestTable> {
        self.0.lock()
    }

    /// Admits one more connection, which may displace a stranger.
    fn enter(self: &Arc<Self>, address: IpAddr, socket: &TcpStream) -> Result<Guest> {
        let socket = socket.try_clone().context(|| "accepting a peer".to_owned())?;
        let mut table = self.table();
        if table.threads >= PLACES.known_max + PLACES.strangers_max + LEAVING_MAX {
            return Err(Error::refused("there are too many connections"));
        }
        let entered = table.admission.enter(Source::from(address), Instant::now());
        entered.displaced.into_iter().for_each(|ticket| table.see_off(ticket));
        table.sockets.insert(entered.ticket, socket);
        table.threads += 1;
        Ok(Guest { guests: Arc::clone(self), ticket: entered.ticket })
    }

    fn see_off_slow_strangers(&self) {
        let mut table = self.table();
        for ticket in table.admission.expire(Instant::now()) {
            table.see_off(ticket);
        }
    }
}

impl GuestTable {
    /// Closes a stranger's connection, which ends its thread.
    fn see_off(&mut self, ticket: Ticket) {
        if let Some(socket) = self.sockets.remove(&ticket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Guest {
    fn become_known(&self) -> Result<()> {
        let mut table = self.guests.table();
        let known = table.admission.make_known(self.ticket);
        // From here on, the link closes the connection.
        table.sockets.remove(&self.ticket);
        known.map_err(|refusal| Error::refused(refusal.to_string()))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut table = self.guests.table();
        table.admission.leave(self.ticket);
        table.sockets.remove(&self.ticket);
        table.threads -= 1;
    }
}

fn accept(listener: &TcpListener, links: &Arc<Links>, config: &Arc<ServerConfig>, is_closed: &AtomicBool) {
    let guests = Arc::new(Guests::new());
    while !is_closed.load(Ordering::SeqCst) {
        // The next call shows the result.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&LOOK_EVERY));
        guests.see_off_slow_strangers();
        let (socket, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        if is_closed.load(Ordering::SeqCst) {
            return;
        }
        let Ok(guest) = guests.enter(address.ip(), &socket) else { continue };
        let (links, config) = (links.clone(), config.clone());
        let taking = move || links.take_in(config, socket, &guest);
        // If no thread can be started, the guest and its connection are dropped.
        drop(thread::Builder::new().name("peer-reader".to_owned()).spawn(taking));
    }
}
