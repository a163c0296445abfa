//! Who this node is for its peers: its cache's id, and a certificate of its own, made at the first start and kept beside the
//! cache.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use platter_cast::peer::NodeId;
use platter_image::{Error, IoContext, Result};
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::digest;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const CERTIFICATE: &str = "peer-certificate.pem";
const KEY: &str = "peer-key.pem";

/// SHA-256 of a certificate in its DER form.
pub(crate) type Fingerprint = [u8; 32];

/// A node's id and certificate.
pub(crate) struct Identity {
    pub(crate) id: NodeId,
    pub(crate) fingerprint: Fingerprint,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// The node of that id, with the certificate in that folder, which is made when it is missing.
    ///
    /// # Errors
    /// `Refused` when what is there cannot be used; `Io`.
    pub(crate) fn open(dir: &Path, id: NodeId) -> Result<Self> {
        let (certificate, key) = (dir.join(CERTIFICATE), dir.join(KEY));
        if !certificate.exists() || !key.exists() {
            make(&certificate, &key)?;
        }
        let shown =
            CertificateDer::from_pem_file(&certificate).map_err(|error| unreadable(&certificate, error))?;
        let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, error))?;
        Ok(Self { id, fingerprint: fingerprint_of(&shown), certificate: shown, key: secret })
    }
}

/// The SHA-256 of a certificate.
pub(super) fn fingerprint_of(certificate: &CertificateDer<'_>) -> Fingerprint {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    fingerprint
}

/// So many random bytes of the system's.
///
/// # Errors
/// `Io` when it has none.
pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::io("asking for random bytes", error.into()))?;
    Ok(bytes)
}

/// Writes a file that only its owner reads, in one step that a crash cannot halve.
///
/// # Errors
/// `Io`.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let doing = |what: &'static str| move || format!("{}: {what}", path.display());
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(new).context(doing("opening it"))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).context(doing("writing it anew"))?;
    fs::rename(new, path).context(doing("giving it its name"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).context(doing("syncing its directory"))
}

/// 32 lower-case hexadecimal digits.
pub(super) fn node_from_hex(text: &str) -> Option<NodeId> {
    platter_store::StoreId::from_hex(text).map(|id| NodeId(id.0))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a certificate. The key is written first: a crash in between makes both anew.
fn make(certificate: &Path, key: &Path) -> Result<()> {
    let failed = |error: rcgen::Error| Error::bug("making a certificate").with_source(error);
    let mut params = CertificateParams::new(vec![super::tls::NAME.to_owned()]).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "platter node");
    let pair = KeyPair::generate().map_err(failed)?;
    let signed = params.self_signed(&pair).map_err(failed)?;
    replace(key, pair.serialize_pem().as_bytes())?;
    replace(certificate, signed.pem().as_bytes())
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) => Error::io(format!("{}: reading it", path.display()), error),
        error => Error::refused(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let open = |folder: &tempfile::TempDir| Identity::open(folder.path(), NodeId([1; 16]));
        let (first, again) = (open(&folder).unwrap(), open(&folder).unwrap());
        assert_eq!((first.id, first.fingerprint), (again.id, again.fingerprint));
        let mode = fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(&other).unwrap().fingerprint, first.fingerprint);
        fs::write(folder.path().join(KEY), "nothing").unwrap();
        assert!(open(&folder).is_err());
    }
}
