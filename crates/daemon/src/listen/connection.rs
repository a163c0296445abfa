//! Takes clients, and runs each connection: the handshake, requests one after another, and an end in good order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connections::{Connections, Place};
use super::listener::{Client, Listener};
use super::stall::Stalling;
use crate::api::{Entrance, router, too_many_router};
use crate::config::{
    HANDSHAKE_TIME_MAX, HEAD_LENGTH_MAX, HEAD_TIME_MAX, SEND_PAUSE_MAX, TURNED_AWAY_TIME_MAX,
};
use crate::origin::Origin;
use crate::serve::{OnEvent, ServeEvent};

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

/// Takes clients until the origin ends.
pub(crate) async fn accept_until(
    listener: Listener,
    door: Door,
    origin: Arc<Origin>,
    connections: Connections,
    on_event: OnEvent,
) {
    let entrance = match door {
        Door::Unix => Entrance::Trusted,
        Door::Tls(_) => Entrance::Token,
    };
    let (served, turned_away) = (router(&origin, entrance), too_many_router());
    let mut ending = origin.ending.clone();
    let mut failing = false;
    loop {
        let client = tokio::select! {
            client = listener.accept() => client,
            () = ended(&mut ending) => return,
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                if !failing {
                    on_event(&ServeEvent::Note(format!("clients cannot be taken: {error}")));
                }
                failing = true;
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        failing = false;
        let (origin, ending) = (Arc::clone(&origin), ending.clone());
        match connections.take() {
            Place::Served(place) => {
                let converse = converse(client, door.clone(), served.clone(), ending);
                tokio::spawn(async move {
                    let _place = place;
                    origin.metrics.connections_taken.add(1);
                    let _counted = Counted::new(&origin);
                    converse.await;
                });
            }
            Place::TurnedAway(place) => {
                origin.metrics.connections_turned_away.add(1);
                let converse = converse(client, door.clone(), turned_away.clone(), ending);
                tokio::spawn(async move {
                    let _place = place;
                    // Whoever does not take the answer in time goes without it.
                    let _ = timeout(TURNED_AWAY_TIME_MAX, converse).await;
                });
            }
            Place::Closed => origin.metrics.connections_turned_away.add(1),
        }
    }
}

/// Counts a connection while it lives, however it ends.
struct Counted<'a>(&'a Origin);

impl<'a> Counted<'a> {
    fn new(origin: &'a Origin) -> Self {
        origin.metrics.connections.add(1);
        Self(origin)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.subtract(1);
    }
}

async fn converse(client: Client, door: Door, router: Router, ending: watch::Receiver<bool>) {
    match (client, door) {
        (Client::Unix(stream), _) => requests(stream, router, ending).await,
        (Client::Tcp(stream), Door::Tls(config)) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            // What goes wrong here is between the client and the network.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIME_MAX, handshake).await {
                requests(stream, router, ending).await;
            }
        }
        // Nothing is ever said over TCP without TLS.
        (Client::Tcp(_), Door::Unix) => {}
    }
}

async fn requests<S>(stream: S, router: Router, mut ending: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(Stalling::new(stream, SEND_PAUSE_MAX));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_LENGTH_MAX);
    let connection = http.serve_connection(stream, TowerToHyperService::new(router));
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
