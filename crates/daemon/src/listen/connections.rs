//! The places of connections: those of the unix socket, which no other can take, and those of TCP clients, of which the ones
//! that have shown a valid access token are kept apart from strangers.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_admission::{Admission, Limits, Refusal, Ticket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use crate::config::{
    CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX, OTHER_FILES, STRANGER_TIME_MAX, STRANGERS_MAX,
    STRANGERS_OF_ADDRESS_MAX, TURNED_AWAY_MAX, UNIX_CONNECTIONS_MAX,
};

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of the unix socket.
    unix: usize,
    tcp: Limits,
}

impl Places {
    /// Files that are open when all places are taken.
    pub(crate) const FILES: u64 =
        (UNIX_CONNECTIONS_MAX + CONNECTIONS_MAX + STRANGERS_MAX) as u64 + OTHER_FILES;

    /// As many as a process with so many open files can have: each kind is cut down to its share, so that the unix socket
    /// has places even where the system allows few files.
    pub(crate) fn within(files: u64) -> Self {
        let all = Self::FILES - OTHER_FILES;
        let left = files.saturating_sub(OTHER_FILES.min(files / 2)).min(all);
        let share = |count: usize| ((count as u64 * left / all) as usize).max(1);
        let (known_max, strangers_max) = (share(CONNECTIONS_MAX), share(STRANGERS_MAX));
        let tcp = Limits {
            strangers_max,
            strangers_of_one_max: STRANGERS_OF_ADDRESS_MAX.min(strangers_max),
            stranger_time: STRANGER_TIME_MAX,
            known_max,
            known_of_one_max: CONNECTIONS_OF_ADDRESS_MAX.min(known_max),
        };
        Self { unix: share(UNIX_CONNECTIONS_MAX), tcp }
    }
}

/// The connections of all listeners.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tcp: Mutex<Tcp>,
    unix: Arc<Semaphore>,
    /// For those that are told that there is no place.
    turned_away: Arc<Semaphore>,
    /// Connections that are served.
    open: watch::Sender<usize>,
}

#[derive(Debug)]
struct Tcp {
    admission: Admission,
    /// How to tell a connection that it has to go.
    must_go: HashMap<Ticket, Arc<Notify>>,
}

/// What a client of the unix socket gets.
pub(crate) enum UnixPlace {
    Served(Open, OwnedSemaphorePermit),
    TurnedAway(OwnedSemaphorePermit),
    /// Not even that.
    Closed,
}

/// Counts a connection that is served, while it is held.
pub(crate) struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|count| *count -= 1);
    }
}

/// A TCP connection's standing: a stranger's, until it shows a valid access token. Its place is free when the last clone is
/// dropped.
#[derive(Clone)]
pub(crate) struct Standing(Arc<OfConnection>);

struct OfConnection {
    open: Open,
    ticket: Ticket,
    is_known: AtomicBool,
    must_go: Arc<Notify>,
}

/// Why a stranger has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MustGo {
    /// Another one needs the place.
    Displaced,
    /// It did not show a token in time.
    TooSlow,
}

impl Connections {
    pub(crate) fn new(places: Places) -> Self {
        Self(Arc::new(Shared {
            tcp: Mutex::new(Tcp { admission: Admission::new(places.tcp), must_go: HashMap::new() }),
            unix: Arc::new(Semaphore::new(places.unix)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            open: watch::Sender::new(0),
        }))
    }

    /// A place for one more client of the unix socket.
    pub(crate) fn take_unix(&self) -> UnixPlace {
        if let Ok(place) = self.0.unix.clone().try_acquire_owned() {
            return UnixPlace::Served(Open::new(&self.0), place);
        }
        self.0.turned_away.clone().try_acquire_owned().map_or(UnixPlace::Closed, UnixPlace::TurnedAway)
    }

    /// A stranger's place for one more client from that address. Another stranger may have to go for it.
    pub(crate) fn enter(&self, address: IpAddr) -> Standing {
        let must_go = Arc::new(Notify::new());
        let ticket = {
            let mut tcp = self.0.tcp();
            let entered = tcp.admission.enter(address.into(), Instant::now());
            if let Some(displaced) = entered.displaced.and_then(|ticket| tcp.must_go.remove(&ticket)) {
                displaced.notify_one();
            }
            tcp.must_go.insert(entered.ticket, Arc::clone(&must_go));
            entered.ticket
        };
        let is_known = AtomicBool::new(false);
        Standing(Arc::new(OfConnection { open: Open::new(&self.0), ticket, is_known, must_go }))
    }

    /// Waits that long for all to end; gives how many have not.
    pub(crate) async fn wait_for_none(&self, time: Duration) -> usize {
        let mut open = self.0.open.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = tokio::time::timeout(time, open.wait_for(|count| *count == 0)).await;
        *self.0.open.borrow()
    }
}

impl Shared {
    fn tcp(&self) -> MutexGuard<'_, Tcp> {
        self.tcp.lock()
    }
}

impl Standing {
    /// The client has shown a valid token. True when it is the first of this connection.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(crate) fn become_known(&self) -> Result<bool, Refusal> {
        let connection = &*self.0;
        if connection.is_known.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut tcp = connection.open.0.tcp();
        tcp.admission.make_known(connection.ticket)?;
        Ok(!connection.is_known.swap(true, Ordering::Relaxed))
    }

    /// Whether the client has shown a valid token.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_known.load(Ordering::Relaxed)
    }

    /// Waits until the connection has to go; for ever, once it is known.
    pub(crate) async fn must_go(&self) -> MustGo {
        let connection = &*self.0;
        let too_slow = async {
            sleep(STRANGER_TIME_MAX).await;
            if !connection.open.0.tcp().admission.is_over(connection.ticket, Instant::now()) {
                // It is known, or the two clocks differ by a moment, and then it is served a little longer.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = connection.must_go.notified() => MustGo::Displaced,
            () = too_slow => MustGo::TooSlow,
        }
    }
}

impl Drop for OfConnection {
    fn drop(&mut self) {
        let mut tcp = self.open.0.tcp();
        tcp.admission.leave(self.ticket);
        tcp.must_go.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn the_unix_socket_has_places_that_tcp_clients_cannot_take() {
        let places = Places { unix: 2, ..Places::within(Places::FILES) };
        let connections = Connections::new(places);
        let strangers: Vec<Standing> = (0..3000).map(|_| connections.enter(HERE)).collect();
        let served: Vec<UnixPlace> = (0..2).map(|_| connections.take_unix()).collect();
        assert!(served.iter().all(|place| matches!(place, UnixPlace::Served(..))));
        let told: Vec<UnixPlace> = (0..TURNED_AWAY_MAX).map(|_| connections.take_unix()).collect();
        assert!(told.iter().all(|place| matches!(place, UnixPlace::TurnedAway(_))));
        assert!(matches!(connections.take_unix(), UnixPlace::Closed));
        drop(strangers);
        assert_eq!(connections.wait_for_none(Duration::from_millis(1)).await, 2);
        drop(served);
        assert!(matches!(connections.take_unix(), UnixPlace::Served(..)));
        assert_eq!(connections.wait_for_none(Duration::from_secs(60)).await, 0);
    }

    #[tokio::test]
    async fn a_displaced_stranger_hears_of_it_and_who_showed_a_token_stays() {
        let connections = Connections::new(Places::within(Places::FILES));
        let (known, first) = (connections.enter(HERE), connections.enter(HERE));
        assert_eq!((known.become_known(), known.become_known()), (Ok(true), Ok(false)));
        let crowd: Vec<Standing> = (0..STRANGERS_OF_ADDRESS_MAX).map(|_| connections.enter(HERE)).collect();
        assert_eq!(first.must_go().await, MustGo::Displaced);
        assert_eq!(first.become_known(), Err(Refusal::Gone));
        assert!(tokio::time::timeout(Duration::from_millis(1), known.must_go()).await.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(1), crowd[1].must_go()).await.is_err());
    }

    #[test]
    fn every_kind_has_places_however_few_files_there_are() {
        let all = Places::within(u64::MAX);
        assert_eq!(all, Places::within(Places::FILES));
        let counts = |places: Places| (places.unix, places.tcp.strangers_max, places.tcp.known_max);
        assert_eq!(counts(all), (UNIX_CONNECTIONS_MAX, STRANGERS_MAX, CONNECTIONS_MAX));
        assert_eq!(counts(Places::within(1024)), (93, 46, 372));
        assert_eq!(counts(Places::within(0)), (1, 1, 1));
    }
}
