//! What an origin tells the program that runs it.

use std::path::PathBuf;
use std::sync::Arc;

/// What is worth telling.
#[derive(Clone, Debug)]
pub enum ServeEvent {
    /// Clients can come in at a unix socket.
    ListeningUnix(PathBuf),
    /// Clients can come in at a TCP address, and see a certificate of that fingerprint: the SHA-256 of its DER form in
    /// hexadecimal.
    ListeningTcp {
        /// The address; if port 0 was asked for, with the port it got.
        address: std::net::SocketAddr,
        /// 64 hexadecimal digits.
        fingerprint: String,
    },
    /// It ends: requests under way are finished.
    Ending,
    /// Something that a person should know, in a sentence.
    Note(String),
}

/// Who is told.
pub(crate) type OnEvent = Arc<dyn Fn(&ServeEvent) + Send + Sync>;
