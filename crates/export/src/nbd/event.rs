//! What a server tells while it works. The library prints nothing: whoever runs the server decides.

use std::net::SocketAddr;

use platter_image::Error;

use super::wire::Command;

/// Something happened. Connections are numbered from 1 in the order they came.
#[derive(Clone, Copy, Debug)]
pub enum NbdEvent<'a> {
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
    /// A client uses an export from now on.
    Opened {
        /// Which connection.
        connection: u64,
        /// The export's own name.
        export: &'a str,
    },
    /// A request failed; the client was told. The same failure of a disk is told once a minute, however often it comes.
    RequestFailed {
        /// Which connection.
        connection: u64,
        /// The export's own name.
        export: &'a str,
        /// What it asked for.
        command: Command,
        /// First byte of its range.
        offset: u64,
        /// Bytes of its range.
        length: u32,
        /// Why.
        error: &'a Error,
        /// How often the same failure came, and was not told, since it was told last.
        repeats: u64,
    },
    /// A client has gone.
    Disconnected {
        /// Which connection.
        connection: u64,
        /// Why, unless it went in good order.
        error: Option<&'a Error>,
    },
}
