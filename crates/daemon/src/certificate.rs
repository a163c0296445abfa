//! What the origin shows over TLS: a certificate that a person names, or one of its own, made at the first start and kept in
//! the store's directory. Clients know it by its fingerprint, the SHA-256 of its DER form.

use std::path::Path;
use std::sync::Arc;

use platter_image::{Error, ErrorKind, Result};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;
use crate::private_file;
use crate::random::hex;

const CERTIFICATE: &str = "serve-certificate.pem";
const KEY: &str = "serve-key.pem";

/// How an origin speaks TLS.
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// 64 hexadecimal digits.
    pub(crate) fingerprint: String,
}

impl Tls {
    /// Reads the files that were named, or those in the store's directory, which are made if they are missing.
    ///
    /// # Errors
    /// `Missing` when a named file is not there; `Refused` when what is in it cannot be used; `Io`.
    pub(crate) fn open(files: Option<&TlsFiles>, dir: &Path) -> Result<Self> {
        let own = TlsFiles { certificate: dir.join(CERTIFICATE), key: dir.join(KEY) };
        if files.is_none() && !own.certificate.exists() {
            make(&own)?;
        }
        let files = files.unwrap_or(&own);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(&files.certificate, error))?;
        let shown = chain.first().ok_or_else(|| unreadable(&files.certificate, pem::Error::NoItemsFound))?;
        let fingerprint = hex(ring::digest::digest(&ring::digest::SHA256, shown).as_ref());
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::bug(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| Error::refused(format!("{}: {error}", files.certificate.display())))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint })
    }
}

/// Makes a certificate. The key is written first: a crash in between makes both anew.
fn make(files: &TlsFiles) -> Result<()> {
    let failed = |error: rcgen::Error| Error::bug("making a certificate").with_source(error);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [host.trim(), "localhost"].map(String::from).to_vec();
    // A host may have a name that no certificate can: it is known by its fingerprint.
    let mut params = CertificateParams::new(names)
        .or_else(|_| CertificateParams::new(vec!["localhost".to_owned()]))
        .map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "platter origin");
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    private_file::replace(&files.key, key.serialize_pem().as_bytes())?;
    private_file::replace(&files.certificate, certificate.pem().as_bytes())
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::Missing, format!("there is no {}", path.display()))
        }
        pem::Error::Io(error) => Error::io(format!("{}: reading it", path.display()), error),
        error => Error::refused(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let first = Tls::open(None, folder.path()).unwrap();
        assert_eq!(Tls::open(None, folder.path()).unwrap().fingerprint, first.fingerprint);
        let mode = std::fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(folder.path().join(CERTIFICATE)).unwrap();
        assert_ne!(Tls::open(None, folder.path()).unwrap().fingerprint, first.fingerprint);
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("c"), key: folder.path().join("k") };
        let open = || Tls::open(Some(&files), folder.path()).err().map(|error| error.kind());
        assert_eq!(open(), Some(ErrorKind::Missing));
        std::fs::write(&files.certificate, "nothing").unwrap();
        assert_eq!(open(), Some(ErrorKind::Refused));
    }
}
