//! The four TLS configurations: each end of the two kinds of connection.

use std::sync::Arc;

use platter_image::{Error, Result};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};

use super::known_peers::{KnownPeers, RegisteredPeers};
use super::pinned::Pinned;
use super::trust::Trust;
use crate::{Fingerprint, Identity};

/// The host name in every node's certificate. It is never checked.
pub const PEER_NAME: &str = "platter-node";

/// Configuration for connecting to an origin.
///
/// # Errors
/// `Missing` or `Refused` when a file of authorities does not exist or cannot be used, or the system has none.
pub fn origin_client(trust: &Trust) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(trust.verifier(&provider)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Configuration of an origin for its clients.
///
/// # Errors
/// `Refused` when the certificate cannot be used with its key.
pub fn origin_server(identity: &Identity) -> Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(identity.chain(), identity.key())
        .map_err(|error| Error::refused(format!("{}: {error}", identity.file().display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Configuration for connecting to the node whose certificate has this fingerprint.
///
/// # Errors
/// `Bug` when our certificate cannot be used.
pub fn peer_client(identity: &Identity, peer: Fingerprint) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let verifier = Arc::new(Pinned { fingerprint: peer, provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(identity.chain(), identity.key())
        .map_err(unusable)?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Configuration for incoming connections of nodes: only known nodes are accepted.
///
/// # Errors
/// `Bug` when our certificate cannot be used.
pub fn peer_server(identity: &Identity, peers: Arc<dyn KnownPeers>) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let verifier = Arc::new(RegisteredPeers { peers, provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain(), identity.key())
        .map_err(unusable)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(error: rustls::Error) -> Error {
    Error::bug("a node's certificate cannot be used").with_source(error)
}
