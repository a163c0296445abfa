//! TLS between a client and an origin, and between two nodes.
//!
//! A client trusts an origin's certificate according to [`Trust`] and has none itself: it sends an access token.
//! Two nodes each show a certificate, and each trusts only certificates whose fingerprints the origin's registry named;
//! TLS proves that the other side has the key. Nodes use TLS 1.3 only and never resume a session, so that a node that
//! was removed from the registry cannot reconnect with an old one.

mod config;
mod known_peers;
mod pinned;
mod trust;

pub use config::{PEER_NAME, origin_client, origin_server, peer_client, peer_server};
pub use known_peers::KnownPeers;
pub use trust::Trust;
