//! The TLS identity of the server and the check of clients, from a certificate directory as used by QEMU and nbdkit.
//!
//! Owns the trust decision. TLS always needs a server certificate; the TLS library has no pre-shared keys.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use platter_image::{Error, Result};
use platter_transport::{read_certificates, read_key, read_many};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// The server certificate, followed by intermediate certificates.
const SERVER_CERTIFICATE: &str = "server-cert.pem";
/// Its key.
const SERVER_KEY: &str = "server-key.pem";
/// The authority that issues client certificates.
const AUTHORITY: &str = "ca-cert.pem";
/// Revoked certificates (optional file).
const REVOKED: &str = "ca-crl.pem";

/// TLS settings of a server.
#[derive(Clone)]
pub struct NbdTls(pub(super) Arc<ServerConfig>);

impl NbdTls {
    /// Reads `server-cert.pem` and `server-key.pem` from `folder`. With `verify_peer` it also reads `ca-cert.pem` and
    /// the optional `ca-crl.pem`, and only clients with a certificate of that authority are accepted. Without it, all
    /// clients are accepted.
    ///
    /// # Errors
    /// `Missing` when a file does not exist; `Refused` when its contents cannot be used.
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
        // Session tickets are disabled, so each connection has to show a currently valid certificate.
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
