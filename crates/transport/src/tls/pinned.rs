//! Accepts one certificate, by its fingerprint. TLS still proves that the other side has its key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::Fingerprint;

/// Accepts the certificate with that fingerprint.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) fingerprint: Fingerprint,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(certificate);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let why =
            std::io::Error::other(format!("its fingerprint is {found}, and not the one that was named"));
        Err(CertificateError::Other(OtherError(Arc::new(why))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_certificate_is_accepted() {
        let certificate = CertificateDer::from(vec![1, 2, 3]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = Pinned { fingerprint: Fingerprint::of(&certificate), provider };
        let name = ServerName::try_from("origin").unwrap();
        let verify =
            |certificate| pinned.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).is_ok();
        assert!(verify(&certificate));
        assert!(!verify(&CertificateDer::from(vec![1, 2, 4])));
    }
}
