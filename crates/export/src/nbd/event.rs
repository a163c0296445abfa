//! Events of a running server. The library prints nothing; its caller decides what to print.

use std::net::SocketAddr;

use platter_image::Error;

use super::wire::Command;

/// An event. Connections are numbered from 1 in order of arrival.
#[derive(Clone, Copy, Debug)]
pub enum NbdEvent<'a> {
    /// A client connected.
    Connected {
        /// Connection number.
        connection: u64,
        /// Its address; `None` for unix sockets.
        peer: Option<SocketAddr>,
    },
    /// A client was rejected: too many connections, or no thread could be started.
    TurnedAway {
        /// The reason.
        error: &'a Error,
    },
    /// A connection could not be accepted; the server continues.
    AcceptFailed {
        /// The error.
        error: &'a Error,
    },
    /// A client opened an export.
    Opened {
        /// Connection number.
        connection: u64,
        /// Name of the export.
        export: &'a str,
    },
    /// A request failed and the client got an error. The same failure of a disk is reported at most once per minute.
    RequestFailed {
        /// Connection number.
        connection: u64,
        /// Name of the export.
        export: &'a str,
        /// The command.
        command: Command,
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        length: u32,
        /// The error.
        error: &'a Error,
        /// Unreported repetitions since the last report.
        repeats: u64,
    },
    /// A client disconnected.
    Disconnected {
        /// Connection number.
        connection: u64,
        /// The error, unless it was a normal end.
        error: Option<&'a Error>,
    },
}
