//! What a server tells while it works. The library prints nothing: whoever runs the server decides.

use std::net::SocketAddr;

use platter_image::Error;

use super::wire::Kind;

/// Something happened. Connections are numbered from 1 in the order they came.
#[derive(Clone, Copy, Debug)]
pub enum NinepEvent<'a> {
    /// A client has come.
    Connected {
        /// Which connection.
        connection: u64,
        /// From where, unless over a unix socket.
        peer: Option<SocketAddr>,
    },
    /// A client had to go at once: there are as many connections as there may be, or no thread could be had.
    TurnedAway {
        /// What was lacking.
        error: &'a Error,
    },
    /// A connection could not be taken; the server goes on.
    AcceptFailed {
        /// Why.
        error: &'a Error,
    },
    /// What keeps the tree failed; the client was told a number. That a name is missing, or a wish refused, is not told.
    RequestFailed {
        /// Which connection.
        connection: u64,
        /// What it asked for.
        kind: Kind,
        /// Why.
        error: &'a Error,
    },
    /// A client has gone.
    Disconnected {
        /// Which connection.
        connection: u64,
        /// Why, unless it went in good order.
        error: Option<&'a Error>,
    },
}
