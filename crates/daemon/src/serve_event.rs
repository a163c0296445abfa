//! Events that an origin reports to the program that runs it.

use std::path::PathBuf;
use std::sync::Arc;

/// An event of an origin.
#[derive(Clone, Debug)]
pub enum ServeEvent {
    /// The origin accepts connections on a unix socket.
    ListeningUnix(PathBuf),
    /// The origin accepts connections on a TCP address, with a certificate that has this fingerprint: the SHA-256 of
    /// its DER form in hexadecimal.
    ListeningTcp {
        /// The address, with the assigned port if port 0 was requested.
        address: std::net::SocketAddr,
        /// 64 hexadecimal digits.
        fingerprint: String,
    },
    /// The origin ends: it still finishes the requests under way.
    Ending,
    /// Another process serves from now on; this one finishes the requests under way.
    HandedOver,
    /// A notice for a person: one sentence.
    Note(String),
}

/// Receives the events.
pub(crate) type OnEvent = Arc<dyn Fn(&ServeEvent) + Send + Sync>;
