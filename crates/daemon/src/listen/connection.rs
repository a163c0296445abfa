//! Accepts clients, and runs each connection: handshake, requests one after another, graceful end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connections::{Connections, MustGo, Standing, UnixPlace};
use super::listener::{Client, Listener};
use super::stall::Stalling;
use crate::access::Entrance;
use crate::config::{
    HEAD_LENGTH_MAX, HEAD_TIME_MAX, REPLACED_IDLE_MAX, SEND_PAUSE_MAX, TURNED_AWAY_TIME_MAX,
};
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// Pause after a failed accept (too many open files).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The transport of a listening socket, which determines how clients are authenticated.
#[derive(Clone)]
pub(crate) enum Door {
    /// A unix socket: its file mode restricts access.
    Unix,
    /// TCP: with TLS and access tokens.
    Tls(Arc<ServerConfig>),
}

impl Door {
    /// How clients of this transport are authenticated.
    pub(crate) fn entrance(&self) -> Entrance {
        match self {
            Self::Unix => Entrance::Trusted,
            Self::Tls(_) => Entrance::Token,
        }
    }
}

/// Attached to every request of a connection. The strong count drops to 0 when the connection and its requests have
/// ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connected {
    pub(crate) alive: Arc<()>,
    /// The user id of a client of the unix socket.
    pub(crate) uid: Option<u32>,
}

/// Everything needed to serve the clients of one listening socket.
pub(crate) struct House {
    pub(crate) origin: Arc<Origin>,
    pub(crate) connections: Connections,
    /// Serves accepted connections.
    pub(crate) served: Router,
    /// Serves connections above the limit.
    pub(crate) turned_away: Router,
    /// Answers requests that may change something, once a successor has the store's lock.
    pub(crate) replaced: Router,
}

/// Accepts clients until the origin ends.
pub(crate) async fn accept_until(listener: Listener, door: Door, house: House, on_event: OnEvent) {
    let mut ending = house.origin.ending.clone();
    let mut failing = false;
    loop {
        let client = tokio::select! {
            client = listener.accept() => client,
            () = ended(&mut ending) => return,
        };
        match (client, &door) {
            (Err(error), _) => {
                if !failing {
                    on_event(&ServeEvent::Note(format!("cannot accept clients: {error}")));
                }
                failing = true;
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
            (Ok(Client::Unix(stream)), _) => house.take_unix(stream),
            (Ok(Client::Tcp(stream, address)), Door::Tls(config)) => {
                house.take_tcp(stream, address, Arc::clone(config));
            }
            // TCP without TLS is never served.
            (Ok(Client::Tcp(..)), Door::Unix) => {}
        }
        failing = false;
    }
}

impl House {
    fn take_unix(&self, stream: UnixStream) {
        let origin = Arc::clone(&self.origin);
        match self.connections.take_unix() {
            UnixPlace::Served(open, place) => {
                let connected =
                    Connected { uid: stream.peer_cred().ok().map(|peer| peer.uid()), ..Connected::default() };
                let routers = [self.served.clone(), self.replaced.clone()];
                let requests = requests(stream, routers, Arc::clone(&origin), None, connected);
                tokio::spawn(async move {
                    let _place = (open, place);
                    let _counted = Counted::new(&origin);
                    requests.await;
                });
            }
            UnixPlace::TurnedAway(place) => {
                origin.metrics.connections_turned_away.add(1);
                let routers = [self.turned_away.clone(), self.replaced.clone()];
                let requests = requests(stream, routers, Arc::clone(&origin), None, Connected::default());
                tokio::spawn(async move {
                    let _place = place;
                    // A client that is too slow gets no response.
                    let _ = timeout(TURNED_AWAY_TIME_MAX, requests).await;
                });
            }
            UnixPlace::Closed => origin.metrics.connections_turned_away.add(1),
        }
    }

    fn take_tcp(&self, stream: TcpStream, address: IpAddr, config: Arc<ServerConfig>) {
        let origin = Arc::clone(&self.origin);
        let routers = [self.served.clone(), self.replaced.clone()];
        let mut ending = self.origin.ending.clone();
        let standing = self.connections.enter(address);
        origin.metrics.connections_unauthenticated.add(1);
        tokio::spawn(async move {
            let _counted = Counted::new(&origin);
            let converse = async {
                let handshake = TlsAcceptor::from(config).accept(stream);
                tokio::pin!(handshake);
                let shaken = tokio::select! {
                    shaken = &mut handshake => shaken,
                    () = ended(&mut ending) => match origin.is_replaced.load(Ordering::Relaxed) {
                        true => handshake.await,
                        false => return,
                    },
                };
                // A failed handshake concerns only this client.
                if let Ok(stream) = shaken {
                    let standing = Some(standing.clone());
                    requests(stream, routers, Arc::clone(&origin), standing, Connected::default()).await;
                }
            };
            tokio::select! {
                () = converse => {}
                why = standing.must_go() => match why {
                    MustGo::Displaced => origin.metrics.connections_displaced.add(1),
                    MustGo::TooSlow => origin.metrics.connections_too_slow.add(1),
                },
            }
            if !standing.is_known() {
                origin.metrics.connections_unauthenticated.subtract(1);
            }
        });
    }
}

/// Counts a connection for as long as it exists.
struct Counted<'a>(&'a Origin);

impl<'a> Counted<'a> {
    fn new(origin: &'a Origin) -> Self {
        origin.metrics.connections.add(1);
        origin.metrics.connections_taken.add(1);
        Self(origin)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.subtract(1);
    }
}

/// Serves the requests of a connection, each with the connection's standing.
async fn requests<S>(
    stream: S,
    [router, replaced]: [Router; 2],
    origin: Arc<Origin>,
    standing: Option<Standing>,
    connected: Connected,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(Stalling::new(stream, SEND_PAUSE_MAX));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_LENGTH_MAX);
    let [router, replaced] = [router, replaced].map(TowerToHyperService::new);
    let (shared, mut ending) = (Arc::clone(&origin), origin.ending.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(standing) = &standing {
            request.extensions_mut().insert(standing.clone());
        }
        request.extensions_mut().insert(connected.clone());
        let is_refused = shared.writer.is_closed() && !request.method().is_safe();
        let response = if is_refused { replaced.call(request) } else { router.call(request) };
        let shared = Arc::clone(&shared);
        async move {
            let mut response = response.await?;
            if shared.is_replaced.load(Ordering::Relaxed) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http.serve_connection(stream, service);
    tokio::pin!(connection);
    // A broken connection is ignored: its client retries. Errors inside were reported in the response.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ended(&mut ending) => {}
    }
    if origin.is_replaced.load(Ordering::Relaxed) {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = sleep(REPLACED_IDLE_MAX) => {}
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Waits until the origin ends.
async fn ended(ending: &mut watch::Receiver<bool>) {
    // If the sender was dropped, the origin has ended as well.
    let _ = ending.wait_for(|ends| *ends).await;
}
