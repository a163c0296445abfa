//! The certificate and key of this process: files chosen by the user, or a self-signed pair that is created at the first start.

use std::path::{Path, PathBuf};

use platter_image::{Error, Result};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::pem_file::{read_certificates, read_key};
use crate::{Fingerprint, private_file};

/// Paths of a certificate and its key, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// The certificate of this process with its key.
pub struct Identity {
    /// Path of the certificate file, for messages.
    file: PathBuf,
    fingerprint: Fingerprint,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// `Missing` when a file does not exist; `Refused` when its contents cannot be used; `Io`.
    pub fn read(files: &TlsFiles) -> Result<Self> {
        let chain = read_certificates(&files.certificate)?;
        let key = read_key(&files.key)?;
        // `read_certificates` gives at least one.
        let fingerprint = Fingerprint::of(&chain[0]);
        Ok(Self { file: files.certificate.clone(), fingerprint, chain, key })
    }

    /// Reads a certificate and its key. If they are missing, first makes a self-signed pair for the first of these
    /// lists of host names that is valid in a certificate.
    ///
    /// # Errors
    /// As [`Identity::read`].
    pub fn read_or_make(files: &TlsFiles, common_name: &str, names: &[&[&str]]) -> Result<Self> {
        if !files.certificate.exists() || !files.key.exists() {
            make(files, common_name, names)?;
        }
        Self::read(files)
    }

    /// The certificate's fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The certificate file, for messages.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

/// Makes a certificate. The key is written first: after a crash in between, the next start makes both again.
fn make(files: &TlsFiles, common_name: &str, names: &[&[&str]]) -> Result<()> {
    let failed = |error: rcgen::Error| Error::bug("making a certificate").with_source(error);
    let mut params = Err(rcgen::Error::CouldNotParseCertificate);
    for names in names {
        params = params.or_else(|_| {
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        });
    }
    let mut params = params.map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    private_file::replace(&files.key, key.serialize_pem().as_bytes())?;
    private_file::replace(&files.certificate, certificate.pem().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use platter_image::ErrorKind;

    use super::*;

    fn files(folder: &tempfile::TempDir) -> TlsFiles {
        TlsFiles { certificate: folder.path().join("c.pem"), key: folder.path().join("k.pem") }
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let open =
            || Identity::read_or_make(&files, "test", &[&["\u{e9}"], &["localhost"]]).unwrap().fingerprint();
        let first = open();
        assert_eq!(open(), first);
        let mode = fs::metadata(&files.key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_file(&files.certificate).unwrap();
        let second = open();
        assert_ne!(second, first);
        fs::remove_file(&files.key).unwrap();
        assert_ne!(open(), second);
    }

    #[test]
    fn files_without_a_certificate_or_a_key_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let kind = || Identity::read(&files).err().map(|error| error.kind());
        assert_eq!(kind(), Some(ErrorKind::Missing));
        fs::write(&files.certificate, "nothing").unwrap();
        assert_eq!(kind(), Some(ErrorKind::Refused));
        fs::remove_file(&files.certificate).unwrap();
        Identity::read_or_make(&files, "test", &[&["localhost"]]).unwrap();
        fs::write(&files.key, "nothing").unwrap();
        assert_eq!(kind(), Some(ErrorKind::Refused));
    }
}
