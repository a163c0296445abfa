//! How two nodes know each other: both show a certificate of their own, and each believes the one whose fingerprint the
//! origin's registry told. That the other side has its key, TLS proves.
//!
//! TLS 1.3 only, and no session is taken up again: whoever is no longer known does not come in by an old one.

use std::sync::Arc;

use platter_image::{Error, Result};
use rustls::client::Resumption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};

use super::directory::Directory;
use super::identity::{Fingerprint, Identity, fingerprint_of};
use crate::remote::Pinned;

/// The name in every certificate: nobody goes by it.
pub(super) const NAME: &str = "platter-node";

/// How we speak with the node of that fingerprint.
///
/// # Errors
/// `Bug` when our certificate cannot be used.
pub(super) fn client(identity: &Identity, fingerprint: Fingerprint) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let verifier = Arc::new(Pinned { fingerprint, provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .map_err(unusable)?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// How we speak with nodes that come to us: with those that are known, and nobody else.
///
/// # Errors
/// `Bug` when our certificate cannot be used.
pub(super) fn server(identity: &Identity, directory: Arc<Directory>) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let verifier = Arc::new(KnownNodes { directory, provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
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

/// Believes the certificates of nodes that are known.
#[derive(Debug)]
struct KnownNodes {
    directory: Arc<Directory>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for KnownNodes {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.directory.node_of(&fingerprint_of(certificate)) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => {
                self.directory.note_stranger();
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
