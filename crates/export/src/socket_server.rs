//! A server of clients that connect to a socket, for any protocol. It runs until it stops or pauses; a paused server
//! can be handed to another process.
//!
//! ```text
//!  run ──stop──▶ clients are disconnected
//!   └───pause──▶ run again: all sessions continue   or   to_parcels, leave: another server continues
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_image::{Error, Result};
use platter_transport::{Listener, Parcel};

use crate::clients::{Clients, Protocol};
use crate::moved::MovedSession;

/// A server, running or not.
pub struct SocketServer {
    listener: Option<Listener>,
    clients: Arc<Clients>,
    protocol: Arc<dyn Protocol>,
    /// Sessions that have not been resumed here yet.
    sessions: Vec<MovedSession>,
    farewell_time: Duration,
    hang_time: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It was stopped. No clients are connected.
    Stopped,
    /// A pause was ordered, and all sessions have stopped between two requests.
    Paused,
    /// A pause was ordered, but requests took too long. Clients are served when it runs again.
    Busy,
}

/// The state that a server passes to its successor.
pub struct SocketHandover {
    /// The listening socket. New connections wait in its queue.
    pub listener: Listener,
    /// The stopped sessions.
    pub sessions: Vec<MovedSession>,
}

impl SocketServer {
    pub(crate) fn new(
        listener: Listener,
        clients: Clients,
        protocol: Arc<dyn Protocol>,
        sessions: Vec<MovedSession>,
        [farewell_time, hang_time]: [Duration; 2],
    ) -> Self {
        let (listener, clients) = (Some(listener), Arc::new(clients));
        Self { listener, clients, protocol, sessions, farewell_time, hang_time }
    }

    /// Serves until `stop` is true or a pause is ordered. After a stop, returns when all clients have disconnected or
    /// were disconnected. After a pause was ordered, returns when all sessions have stopped or did not stop in time; it
    /// may then run again.
    ///
    /// # Errors
    /// `Transient` when a disk does not answer at the end: the threads that wait for it are left behind; `Io` when threads
    /// or polling fail.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd> {
        let listener = self.listener.as_ref().ok_or_else(|| Error::bug("a server that was stopped"))?;
        self.sessions.append(&mut self.clients.take_paused());
        self.clients.go_on(&self.protocol, std::mem::take(&mut self.sessions));
        let result = self.clients.accept_until(listener, &self.protocol, stop);
        if result.is_ok() && !stop.load(Ordering::Relaxed) {
            let paused = self.clients.wait_until_paused();
            return Ok(if paused.is_ok() { RunEnd::Paused } else { RunEnd::Busy });
        }
        self.protocol.stop();
        self.listener = None;
        let gone = self.clients.say_farewell(self.farewell_time, self.hang_time);
        result.and(gone).map(|()| RunEnd::Stopped)
    }

    /// Returns the state for the successor, after a run that ended paused. Until [`SocketServer::leave`], this server may run again instead.
    ///
    /// # Errors
    /// `Bug` when it was stopped; `Io` when there are too many open files.
    pub fn to_parcels(&mut self) -> Result<Vec<Parcel>> {
        let listener = self.listener.as_ref().ok_or_else(|| Error::bug("a server that was stopped"))?;
        self.sessions.append(&mut self.clients.take_paused());
        let sessions = self.sessions.iter().map(MovedSession::to_parcel);
        std::iter::once(listener.to_parcel()).chain(sessions).collect()
    }

    /// Ends this server, because its successor has the complete state.
    pub fn leave(self) {
        if let Some(listener) = self.listener {
            listener.leave();
        }
    }
}

impl SocketHandover {
    /// Receives the result of [`SocketServer::to_parcels`].
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub fn from_parcels(parcels: Vec<Parcel>) -> Result<Self> {
        let mut parcels = parcels.into_iter();
        let listener = parcels.next().ok_or_else(|| Error::corrupt("a moved server has a listener"))?;
        let listener = Listener::from_parcel(listener)?;
        Ok(Self { listener, sessions: parcels.map(MovedSession::from_parcel).collect::<Result<_>>()? })
    }
}
