//! Who opens connections, and who takes them: the door where peers come in, and the way to theirs.
//!
//! Owns the bounds on both. Must never take in who is not in the directory.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use platter_cast::peer::NodeId;
use platter_image::{Error, IoContext, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::directory::{Directory, KnownNode};
use super::identity::{Identity, fingerprint_of};
use super::link::{self, Greeted, LinkContext};
use super::machine::Event;
use super::tls;

/// Connecting, and shaking hands, may take that long each.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Peers that come in and have not said who they are.
const STRANGERS_MAX: usize = 64;
/// After a failure to take one in, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What opening and taking connections need.
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

    /// Opens a connection to that node, on a thread of its own, which becomes its reader. The machine is told how it ends;
    /// false when there is no thread for it.
    pub(super) fn dial(self: &Arc<Self>, node: NodeId) -> bool {
        let links = self.clone();
        let dialing = move || match links.connect(node) {
            Ok(greeted) => link::run(links.number(), greeted, &links.context),
            Err(_) => drop(links.context.events.send(Event::NotLinked(node))),
        };
        thread::Builder::new().name("peer-reader".to_owned()).spawn(dialing).is_ok()
    }

    fn connect(&self, node: NodeId) -> Result<Greeted> {
        let known = self.directory.get(&node);
        let Some(KnownNode { address: Some(address), fingerprint, .. }) = known else {
            return Err(Error::missing("nobody knows where that node is"));
        };
        let mut socket = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)
            .map_err(|error| Error::transient(format!("no node listens at {address}")).with_source(error))?;
        let name = ServerName::try_from(tls::NAME).map_err(|_| Error::bug("the name of nodes is none"))?;
        let connection = ClientConnection::new(tls::client(&self.identity, fingerprint)?, name)
            .map_err(|error| Error::bug(format!("TLS: {error}")))?;
        let mut connection = Connection::Client(connection);
        link::shake_hands(&mut connection, &mut socket, CONNECT_TIME_MAX)?;
        Ok(Greeted { connection, socket, node, is_own: true })
    }

    /// Takes a connection in, on the calling thread, which becomes its reader.
    fn take_in(&self, config: Arc<ServerConfig>, mut socket: TcpStream, strangers: &AtomicUsize) {
        let greeted = ServerConnection::new(config)
            .map_err(|error| Error::bug(format!("TLS: {error}")))
            .and_then(|connection| {
                let mut connection = Connection::Server(connection);
                link::shake_hands(&mut connection, &mut socket, CONNECT_TIME_MAX)?;
                let shown = connection.peer_certificates().and_then(|shown| shown.first());
                let node = shown.and_then(|shown| self.directory.node_of(&fingerprint_of(shown)));
                let node = node.ok_or_else(|| Error::refused("a stranger"))?;
                Ok(Greeted { connection, socket, node, is_own: false })
            });
        strangers.fetch_sub(1, Ordering::SeqCst);
        if let Ok(greeted) = greeted {
            link::run(self.number(), greeted, &self.context);
        }
    }
}

/// Where peers come in. It closes with this.
pub(super) struct Door {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
}

impl Door {
    /// Opens it.
    ///
    /// # Errors
    /// `Io` when the address cannot be had, or a thread not be started.
    pub(super) fn open(address: SocketAddr, links: &Arc<Links>) -> Result<Self> {
        let doing = || format!("listening for peers at {address}");
        let listener = Arc::new(TcpListener::bind(address).context(doing)?);
        let address = listener.local_addr().context(doing)?;
        let config = tls::server(&links.identity, links.directory.clone())?;
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
        // It ends the wait for the next one.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, links: &Arc<Links>, config: &Arc<ServerConfig>, is_closed: &AtomicBool) {
    let strangers = Arc::new(AtomicUsize::new(0));
    while !is_closed.load(Ordering::SeqCst) {
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if is_closed.load(Ordering::SeqCst) {
            return;
        }
        if strangers.fetch_add(1, Ordering::SeqCst) >= STRANGERS_MAX {
            strangers.fetch_sub(1, Ordering::SeqCst);
            let _ = socket.shutdown(Shutdown::Both);
            continue;
        }
        let (links, config, counted) = (links.clone(), config.clone(), strangers.clone());
        let taking = move || links.take_in(config, socket, &counted);
        if thread::Builder::new().name("peer-reader".to_owned()).spawn(taking).is_err() {
            strangers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
