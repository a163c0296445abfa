//! Takes clients, and runs each connection: the handshake, requests one after another, and an end in good order.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
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
use crate::config::{HEAD_LENGTH_MAX, HEAD_TIME_MAX, SEND_PAUSE_MAX, TURNED_AWAY_TIME_MAX};
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// After a client could not be taken (too many open files), the next is taken no sooner.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How clients come in, and so who they are.
#[derive(Clone)]
pub(crate) enum Door {
    /// Through a file that not everybody may open.
    Unix,
    /// From anywhere: over TLS, and with an access token.
    Tls(Arc<ServerConfig>),
}

impl Door {
    /// Whether who comes in there has to show an access token.
    pub(crate) fn entrance(&self) -> Entrance {
        match self {
            Self::Unix => Entrance::Trusted,
            Self::Tls(_) => Entrance::Token,
        }
    }
}

/// Goes with every request of a connection, and lives no longer than the connection and what it asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connected(pub(crate) Arc<()>);

/// What is needed to serve those who come in at one door.
pub(crate) struct House {
    pub(crate) origin: Arc<Origin>,
    pub(crate) connections: Connections,
    /// Answers those who have a place.
    pub(crate) served: Router,
    /// Answers those for whom there is none.
    pub(crate) turned_away: Router,
}

/// Takes clients until the origin ends.
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
                    on_event(&ServeEvent::Note(format!("clients cannot be taken: {error}")));
                }
                failing = true;
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
            (Ok(Client::Unix(stream)), _) => house.take_unix(stream),
            (Ok(Client::Tcp(stream, address)), Door::Tls(config)) => {
                house.take_tcp(stream, address, Arc::clone(config));
            }
            // Nothing is ever said over TCP without TLS.
            (Ok(Client::Tcp(..)), Door::Unix) => {}
        }
        failing = false;
    }
}

impl House {
    fn take_unix(&self, stream: UnixStream) {
        let (origin, ending) = (Arc::clone(&self.origin), self.origin.ending.clone());
        match self.connections.take_unix() {
            UnixPlace::Served(open, place) => {
                let requests = requests(stream, self.served.clone(), ending, None);
                tokio::spawn(async move {
                    let _place = (open, place);
                    let _counted = Counted::new(&origin);
                    requests.await;
                });
            }
            UnixPlace::TurnedAway(place) => {
                origin.metrics.connections_turned_away.add(1);
                let requests = requests(stream, self.turned_away.clone(), ending, None);
                tokio::spawn(async move {
                    let _place = place;
                    // Whoever does not take the answer in time goes without it.
                    let _ = timeout(TURNED_AWAY_TIME_MAX, requests).await;
                });
            }
            UnixPlace::Closed => origin.metrics.connections_turned_away.add(1),
        }
    }

    fn take_tcp(&self, stream: TcpStream, address: IpAddr, config: Arc<ServerConfig>) {
        let (origin, router) = (Arc::clone(&self.origin), self.served.clone());
        let (ending, mut ending_early) = (self.origin.ending.clone(), self.origin.ending.clone());
        let standing = self.connections.enter(address);
        origin.metrics.connections_unauthenticated.add(1);
        tokio::spawn(async move {
            let _counted = Counted::new(&origin);
            let converse = async {
                let shaken = tokio::select! {
                    shaken = TlsAcceptor::from(config).accept(stream) => shaken,
                    () = ended(&mut ending_early) => return,
                };
                // What goes wrong here is between the client and the network.
                if let Ok(stream) = shaken {
                    requests(stream, router, ending, Some(standing.clone())).await;
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

/// Counts a connection while it lives, however it ends.
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

/// Answers requests, each of which has the connection's standing with it.
async fn requests<S>(stream: S, router: Router, mut ending: watch::Receiver<bool>, standing: Option<Standing>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(Stalling::new(stream, SEND_PAUSE_MAX));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_LENGTH_MAX);
    let (router, connected) = (TowerToHyperService::new(router), Connected::default());
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(standing) = &standing {
            request.extensions_mut().insert(standing.clone());
        }
        request.extensions_mut().insert(connected.clone());
        router.call(request)
    });
    let connection = http.serve_connection(stream, service);
    tokio::pin!(connection);
    // A connection that breaks is its client's affair: it asks again. What went wrong inside, the answer said.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ended(&mut ending) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Waits until the origin ends.
async fn ended(ending: &mut watch::Receiver<bool>) {
    // Nobody who could say so any more: that is the end, too.
    let _ = ending.wait_for(|ends| *ends).await;
}
