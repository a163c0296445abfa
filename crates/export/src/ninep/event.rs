//! Events of a running server. The library prints nothing; its caller decides what to print.

use std::net::SocketAddr;

use platter_image::Error;

use super::wire::Kind;

/// An event. Connections are numbered from 1 in order of arrival.
#[derive(Clone, Copy, Debug)]
pub enum NinepEvent<'a> {
    /// A client connected.
    Connected {
        /// Connection number.
        connection: u64,
        /// Its address; `None` for unix sockets.
        peer: Option<SocketAddr>,
    },
    /// A client was rejected: too many connections, or no thread could be started.
    TurnedAway {
        /// What was lacking.
        error: &'a Error,
    },
    /// A connection could not be accepted; the server continues.
    AcceptFailed {
        /// The error.
        error: &'a Error,
    },
    /// The tree failed, and the client got an error number. Missing names and refused requests are not reported.
    RequestFailed {
        /// Connection number.
        connection: u64,
        /// What it asked for.
        kind: Kind,
        /// The error.
        error: &'a Error,
    },
    /// A client disconnected.
    Disconnected {
        /// Connection number.
        connection: u64,
        /// The error, unless it was a normal end.
        error: Option<&'a Error>,
    },
}
