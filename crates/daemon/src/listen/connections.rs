//! Limits of connections. The unix socket has places that TCP clients cannot take. TCP clients that have shown a valid
//! access token are counted apart from those that have not (strangers).

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

/// The limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of all unix sockets.
    unix: usize,
    tcp: Limits,
}

impl Places {
    /// Open files when all places are taken.
    pub(crate) const FILES: u64 =
        (UNIX_CONNECTIONS_MAX + CONNECTIONS_MAX + STRANGERS_MAX) as u64 + OTHER_FILES;

    /// Returns the limits for a process with `files` open files. Each kind is reduced in proportion, so the unix socket
    /// has places even if the system allows few files.
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

/// The connections of all listening sockets.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tcp: Mutex<Tcp>,
    unix: Arc<Semaphore>,
    /// Places for connections that only get 503.
    turned_away: Arc<Semaphore>,
    /// Number of served connections.
    open: watch::Sender<usize>,
}

#[derive(Debug)]
struct Tcp {
    admission: Admission,
    /// Notifies a connection that it must end.
    must_go: HashMap<Ticket, Arc<Notify>>,
}

/// The outcome for a client of the unix socket.
pub(crate) enum UnixPlace {
    Served(Open, OwnedSemaphorePermit),
    TurnedAway(OwnedSemaphorePermit),
    /// Closed without a response: too many connections wait for their 503.
    Closed,
}

/// Counts a served connection while it is held.
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

/// The standing of a TCP connection: a stranger until it shows a valid access token. Its place becomes free when the
/// last clone is dropped.
#[derive(Clone)]
pub(crate) struct Standing(Arc<OfConnection>);

struct OfConnection {
    address: IpAddr,
    open: Open,
    ticket: Ticket,
    is_known: AtomicBool,
    must_go: Arc<Notify>,
}

/// Why a stranger's connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MustGo {
    /// Another connection needs the place.
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

    /// Admits one more client of the unix socket.
    pub(crate) fn take_unix(&self) -> UnixPlace {
        if let Ok(place) = self.0.unix.clone().try_acquire_owned() {
            return UnixPlace::Served(Open::new(&self.0), place);
        }
        self.0.turned_away.clone().try_acquire_owned().map_or(UnixPlace::Closed, UnixPlace::TurnedAway)
    }

    /// Admits one more client from this address as a stranger, which may displace another stranger.
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
        Standing(Arc::new(OfConnection { address, open: Open::new(&self.0), ticket, is_known, must_go }))
    }

    /// Waits up to `time` for all connections to end. Returns how many have not.
    pub(crate) async fn wait_for_none(&self, time: Duration) -> usize {
        let mut open = self.0.open.subscribe();
        // `self` owns the sender, so it exists.
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
    /// Returns the client's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// Notes that the client has shown a valid token. True for the first time on this connection.
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

    /// Waits until the connection must end: forever, once the client has shown a valid token.
    pub(crate) async fn must_go(&self) -> MustGo {
        let connection = &*self.0;
        let too_slow = async {
            sleep(STRANGER_TIME_MAX).await;
            if !connection.open.0.tcp().admission.is_over(connection.ticket, Instant::now()) {
                // The client has shown a token, or the two clocks differ by a moment and the connection is served a
                // little longer.
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
    async fn a_displaced_stranger_is_notified_and_a_client_with_a_token_stays() {
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
    fn every_kind_has_places_even_with_few_files() {
        let all = Places::within(u64::MAX);
        assert_eq!(all, Places::within(Places::FILES));
        let counts = |places: Places| (places.unix, places.tcp.strangers_max, places.tcp.known_max);
        assert_eq!(counts(all), (UNIX_CONNECTIONS_MAX, STRANGERS_MAX, CONNECTIONS_MAX));
        assert_eq!(counts(Places::within(1024)), (93, 46, 372));
        assert_eq!(counts(Places::within(0)), (1, 1, 1));
    }
}
