//! Connections between processes of Platter: listening sockets, passing open files to another process, TLS,
//! certificates, private files, random bytes, the limit of open files, and notifications for systemd.
//!
//! A separate crate, because the origin, its clients, nodes and the NBD server need the same few security decisions,
//! and each must be made in one place. It contains no protocol. It must never accept a certificate that is neither
//! pinned nor signed by a configured authority, and never print.

mod files_limit;
mod fingerprint;
mod hex;
mod identity;
mod listener;
mod notify;
mod parcel;
mod pem_file;
mod privacy;
pub mod private_file;
mod random;
mod tls;

pub use files_limit::raise_files_limit;
pub use fingerprint::Fingerprint;
pub use hex::to_hex;
pub use identity::{Identity, TlsFiles};
pub use listener::Listener;
pub use notify::{notify, notify_main_process};
pub use parcel::{PARCEL_DESCRIPTORS_MAX, Parcel};
pub use pem_file::{read_certificates, read_key, read_many};
pub use privacy::make_files_private;
pub use random::{random_bytes, random_hex};
pub use tls::{KnownPeers, PEER_NAME, Trust, origin_client, origin_server, peer_client, peer_server};
