//! What certificate of an origin is believed: one of an authority, or the very one whose fingerprint is known.

use std::path::Path;
use std::sync::Arc;

use platter_image::{BlockId, Error, Result};
use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};

use super::address::Trust;

/// How we speak TLS with an origin that is trusted by that.
///
/// # Errors
/// `Missing` or `Refused` when a file of authorities is not there or cannot be used, or this machine knows none.
pub(super) fn config(trust: &Trust) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Fingerprint(fingerprint) => {
            Arc::new(Pinned { fingerprint: *fingerprint, provider: provider.clone() })
        }
        Trust::System => authorities(system_roots()?, &provider)?,
        Trust::Authorities(file) => authorities(roots_in(file)?, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn authorities(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone()).build();
    Ok(verifier.map_err(|error| Error::refused(format!("the authorities cannot be used: {error}")))?)
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read, or used, is no reason not to use the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::refused(
            "this machine knows no certificate authority: name the origin's certificate by --fingerprint, or an \
             authority's by --ca",
        ));
    }
    Ok(roots)
}

fn roots_in(file: &Path) -> Result<RootCertStore> {
    let unusable = |error: &dyn std::fmt::Display| Error::refused(format!("{}: {error}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::missing(format!("there is no {}", file.display())),
        _ => Error::io(format!("reading {}", file.display()), error),
    })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(unusable(&"there is no certificate in it")) } else { Ok(roots) }
}

/// Believes one certificate, by its fingerprint. That the other side has its key is verified as ever.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) fingerprint: [u8; 32],
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = digest::digest(&digest::SHA256, certificate);
        if found.as_ref() == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let mut shown = BlockId([0; 32]);
        shown.0.copy_from_slice(found.as_ref());
        let why =
            std::io::Error::other(format!("its fingerprint is {shown}, and not the one that was named"));
        Err(CertificateError::Other(OtherError(Arc::new(why))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_certificate_is_believed_and_no_other() {
        let certificate = CertificateDer::from(vec![1, 2, 3]);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, &certificate).as_ref());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = Pinned { fingerprint, provider };
        let name = ServerName::try_from("origin").unwrap();
        let verify =
            |certificate| pinned.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).is_ok();
        assert!(verify(&certificate));
        assert!(!verify(&CertificateDer::from(vec![1, 2, 4])));
    }

    #[test]
    fn authorities_that_are_none_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let kind = || config(&Trust::Authorities(file.clone())).map(drop).unwrap_err().kind();
        assert_eq!(kind(), platter_image::ErrorKind::Missing);
        std::fs::write(&file, "nothing").unwrap();
        assert_eq!(kind(), platter_image::ErrorKind::Refused);
    }
}
