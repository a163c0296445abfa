//! Certificates and keys in PEM files, with errors that name the file.

use std::path::Path;

use platter_image::{Error, Result};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// All items of one kind in a file, at least one.
///
/// # Errors
/// `Missing` when the file does not exist; `Refused` when it holds no such item or an invalid one; `Io`.
pub fn read_many<T: PemObject>(path: &Path) -> Result<Vec<T>> {
    let items: Vec<T> =
        T::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unreadable(path, error))?;
    if items.is_empty() {
        return Err(unreadable(path, pem::Error::NoItemsFound));
    }
    Ok(items)
}

/// The certificates of a file.
///
/// # Errors
/// As [`read_many`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    read_many(path)
}

/// The private key of a file.
///
/// # Errors
/// As [`read_many`].
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Error::missing(format!("there is no {}", path.display()))
        }
        pem::Error::Io(error) => Error::io(format!("{}: reading it", path.display()), error),
        error => Error::refused(format!("{}: {error}", path.display())),
    }
}
