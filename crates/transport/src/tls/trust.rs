//! Selects the certificates of an origin that are trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_image::{Error, Result};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;

use super::pinned::Pinned;
use crate::Fingerprint;
use crate::pem_file::read_certificates;

/// How the certificate of an origin is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the certificate authorities of the system.
    System,
    /// By the certificate authorities in this PEM file.
    Authorities(PathBuf),
    /// By its fingerprint only; the contents of the certificate do not matter.
    Fingerprint(Fingerprint),
}

impl Trust {
    /// Trust in one certificate; as [`Fingerprint::parse`].
    ///
    /// # Errors
    /// `Refused` when the text is not a fingerprint.
    pub fn fingerprint(text: &str) -> Result<Self> {
        Fingerprint::parse(text).map(Self::Fingerprint)
    }

    pub(super) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>> {
        match self {
            Self::Fingerprint(fingerprint) => {
                Ok(Arc::new(Pinned { fingerprint: *fingerprint, provider: provider.clone() }))
            }
            Self::System => authorities(system_roots()?, provider),
            Self::Authorities(file) => authorities(roots_in(file)?, provider),
        }
    }
}

fn authorities(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone()).build();
    Ok(verifier.map_err(|error| Error::refused(format!("the authorities cannot be used: {error}")))?)
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // An invalid certificate is skipped.
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
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file)? {
        roots.add(certificate).map_err(|error| Error::refused(format!("{}: {error}", file.display())))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;
    use crate::origin_client;

    #[test]
    fn a_file_without_an_authority_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let kind = || origin_client(&Trust::Authorities(file.clone())).map(drop).unwrap_err().kind();
        assert_eq!(kind(), ErrorKind::Missing);
        std::fs::write(&file, "nothing").unwrap();
        assert_eq!(kind(), ErrorKind::Refused);
    }
}
