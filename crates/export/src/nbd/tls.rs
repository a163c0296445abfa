//! Who we say we are over TLS, and who may come in: certificates of a folder laid out as QEMU and nbdkit have it.
//!
//! Owns the choice of what is believed. There is no way to have encryption without a certificate of ours, and no pre-shared
//! keys: the library below has none.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use platter_image::{Error, Result};
use platter_transport::{read_certificates, read_key, read_many};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// Our certificate, and those between it and the authority's.
const SERVER_CERTIFICATE: &str = "server-cert.pem";
/// Its key.
const SERVER_KEY: &str = "server-key.pem";
/// The authority whose certificates clients show.
const AUTHORITY: &str = "ca-cert.pem";
/// Certificates that are no longer good, if there is such a file.
const REVOKED: &str = "ca-crl.pem";

/// How a server speaks TLS.
#[derive(Clone)]
pub struct NbdTls(pub(super) Arc<ServerConfig>);

impl NbdTls {
    /// Reads `server-cert.pem` and `server-key.pem` in `folder`, and with `verify_peer` `ca-cert.pem` and, if it is there,
    /// `ca-crl.pem`: only clients that show a certificate of that authority are then let in. Without, whoever reaches the
    /// server is.
    ///
    /// # Errors
    /// `Missing` when a file is not there; `Refused` when what is in it cannot be used.
    pub fn open(folder: &Path, verify_peer: bool) -> Result<Self> {
        let chain = read_certificates(&folder.join(SERVER_CERTIFICATE))?;
        let key = read_key(&folder.join(SERVER_KEY))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::bug(error.to_string()))?;
        let config = if verify_peer {
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(authority(folder)?.into(), provider);
            let revoked = folder.join(REVOKED);
            if revoked.exists() {
                let lists: Vec<CertificateRevocationListDer<'static>> = read_many(&revoked)?;
                verifier = verifier.with_crls(lists).allow_unknown_revocation_status();
            }
            let verifier = verifier.build().map_err(|error| unusable(&folder.join(AUTHORITY), error))?;
            config.with_client_cert_verifier(verifier)
        } else {
            config.with_no_client_auth()
        };
        let mut config = config
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&folder.join(SERVER_CERTIFICATE), error))?;
        // Nobody comes back by a ticket, so that each connection shows a certificate that is good now.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for NbdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdTls").finish_non_exhaustive()
    }
}

fn authority(folder: &Path) -> Result<RootCertStore> {
    let path = folder.join(AUTHORITY);
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&path)? {
        roots.add(certificate).map_err(|error| unusable(&path, error))?;
    }
    Ok(roots)
}

fn unusable(path: &Path, error: impl fmt::Display) -> Error {
    Error::refused(format!("{}: {error}", path.display()))
}
