//! The connections of receivers at a sender: accepts them, keeps as many as is allowed, and carries their messages.
//!
//! Must never let connections over which nobody joins take the places of receivers.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Source, Ticket};
use platter_image::{IoContext, Result};

use crate::connection::Connection;
use crate::wake::Interest;

/// Limits for open connections. A connection over which no receiver has joined is a stranger.
const PLACES: Limits = Limits {
    strangers_max: 256,
    strangers_of_one_max: 64,
    stranger_time: Duration::from_secs(10),
    known_max: 4096,
    // Several receivers may run on one machine, in tests.
    known_of_one_max: 256,
};
/// Pause after a failed accept (such as too many open files).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The machine that the messages are for.
pub(crate) trait Host {
    /// Handles a message (without its length).
    fn handle_message(&mut self, now: Duration, connection: u64, from: IpAddr, message: &[u8]);
    /// Handles the end of a connection.
    fn handle_disconnect(&mut self, now: Duration, connection: u64);
    /// Whether a receiver has joined over this connection.
    fn has_joined(&self, connection: u64) -> bool;
}

struct Peer {
    number: u64,
    address: IpAddr,
    connection: Connection,
    ticket: Ticket,
    has_joined: bool,
}

/// The connections.
pub(crate) struct Joins {
    listener: TcpListener,
    peers: Vec<Peer>,
    next_peer: u64,
    /// Decides which connections are kept.
    admission: Admission,
    /// No connection is accepted before this time.
    accept_at: Duration,
    start: Instant,
}

impl Joins {
    /// Accepts joins. Times count from `start`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn over(listener: TcpListener, start: Instant) -> Result<Self> {
        listener.set_nonblocking(true).context(|| "setting a listener to non-blocking".into())?;
        Ok(Self {
            listener,
            peers: Vec::new(),
            next_peer: 0,
            admission: Admission::new(PLACES),
            accept_at: Duration::ZERO,
            start,
        })
    }

    /// The address of the listener.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().context(|| "reading the address of a listener".into())
    }

    /// Accepts connections, and passes on what arrived.
    pub(crate) fn receive(&mut self, now: Duration, host: &mut dyn Host) {
        self.accept(now, host);
        let (admission, instant) = (&mut self.admission, self.start + now);
        self.peers.retain_mut(|peer| {
            let (number, address) = (peer.number, peer.address);
            let mut keep = peer.connection.read(|message| host.handle_message(now, number, address, message));
            if !peer.has_joined && host.has_joined(number) {
                peer.has_joined = admission.make_known(peer.ticket).is_ok();
                keep &= peer.has_joined;
            }
            keep = keep && !admission.is_over(peer.ticket, instant) && peer.connection.flush();
            if !keep {
                admission.leave(peer.ticket);
                host.handle_disconnect(now, number);
            }
            keep
        });
    }

    fn accept(&mut self, now: Duration, host: &mut dyn Host) {
        while now >= self.accept_at {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_at = now + ACCEPT_AGAIN;
                    return;
                }
            };
            let Ok(connection) = Connection::new(stream) else { continue };
            let entered = self.admission.enter(Source::of_host(address.ip()), self.start + now);
            if let Some(displaced) = entered.displaced {
                self.end(now, host, |peer| peer.ticket == displaced);
            }
            self.next_peer += 1;
            let (number, ticket) = (self.next_peer, entered.ticket);
            let address = address.ip();
            self.peers.push(Peer { number, address, connection, ticket, has_joined: false });
        }
    }

    /// Closes the first connection that matches.
    fn end(&mut self, now: Duration, host: &mut dyn Host, is_it: impl Fn(&Peer) -> bool) {
        let Some(position) = self.peers.iter().position(is_it) else { return };
        let peer = self.peers.swap_remove(position);
        self.admission.leave(peer.ticket);
        host.handle_disconnect(now, peer.number);
    }

    /// Sends a message. A connection that does not take it is closed.
    pub(crate) fn send(&mut self, now: Duration, host: &mut dyn Host, connection: u64, message: &[u8]) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.number == connection) else { return };
        if !peer.connection.write(message) {
            self.end(now, host, |peer| peer.number == connection);
        }
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// What to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let may_accept = self.start.elapsed() >= self.accept_at;
        let listener = Interest { descriptor: self.listener.as_fd(), to_read: may_accept, to_write: false };
        let peers = self.peers.iter().map(|peer| Interest {
            descriptor: peer.connection.stream.as_fd(),
            to_read: true,
            to_write: peer.connection.wants_to_write(),
        });
        std::iter::once(listener).chain(peers)
    }
}
