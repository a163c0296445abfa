//! Secret keys: creating a pair of key files, and signing statements.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use minisign::{KeyPair, SecretKey, SecretKeyBox};
use platter_image::{Error, IoContext, Result};
use platter_records::{Signature, VersionRecord};

use crate::statement::Statement;
use crate::trusted_keys::{TrustedKey, read_text};

/// Maximum length of a key file in bytes.
pub(crate) const KEY_FILE_LENGTH_MAX: u64 = 4096;

/// Creates a pair of keys: the secret key in the file `path`, readable by its owner only, and the public key in `path` with
/// `.pub` added. Returns the public key. The secret key is encrypted if there is a password.
///
/// # Errors
/// `Refused` when one of the files exists; `Io`.
pub fn create_key(path: &Path, password: Option<String>) -> Result<TrustedKey> {
    let pair = match password {
        Some(password) => KeyPair::generate_encrypted_keypair(Some(password)),
        None => KeyPair::generate_unencrypted_keypair(),
    };
    let failed = |error| Error::bug("a signing key could not be created").with_source(error);
    let KeyPair { pk, sk } = pair.map_err(failed)?;
    let public_path = public_path(path);
    let secret = sk.to_box(Some("platter: secret key, for signing versions")).map_err(failed)?.into_string();
    let public = pk.to_box().map_err(failed)?.into_string();
    write_new(path, 0o600, &secret)?;
    if let Err(error) = write_new(&public_path, 0o644, &public) {
        drop(fs::remove_file(path));
        return Err(error);
    }
    TrustedKey::read(&public_path)
}

/// The name of the file with the public key.
fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<()> {
    let text = format!("{}\n", text.trim_end());
    let mut file = match fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::refused(format!(
                "{} exists: a key is never overwritten; choose another name",
                path.display()
            )));
        }
        made => made.context(|| format!("creating {}", path.display()))?,
    };
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .context(|| format!("writing {}", path.display()))
}

/// A secret key.
pub struct SigningKey {
    secret: SecretKey,
    public: TrustedKey,
}

impl SigningKey {
    /// Reads a secret key file. `password` is called if the key is encrypted.
    ///
    /// # Errors
    /// `Refused` when it is no secret key, or the password is wrong; `Missing`, `Io`.
    pub fn read(path: &Path, password: impl FnOnce() -> Result<String>) -> Result<Self> {
        let text = read_text(path, KEY_FILE_LENGTH_MAX)?;
        if let Some(secret) = TrustedKey::read(path).is_ok().then(|| path.with_extension("")) {
            return Err(Error::refused(format!(
                "{} is a public key: versions are signed with the secret key, which `platter key create` wrote to {}",
                path.display(),
                secret.display()
            )));
        }
        let parse = || SecretKeyBox::from_string(&text);
        let is_no_key = |error| {
            let hint = "expected a secret key made by `platter key create` or `minisign -G`";
            Error::refused(format!("{}: {hint}", path.display())).with_source(error)
        };
        let key = parse().map_err(is_no_key)?;
        if let Ok(secret) = key.into_unencrypted_secret_key() {
            return Self::of(secret, path);
        }
        let key = parse().map_err(is_no_key)?.into_secret_key(Some(password()?));
        let secret = key.map_err(|error| {
            Error::refused(format!("{}: the password is wrong, or the file is damaged", path.display()))
                .with_source(error)
        });
        Self::of(secret?, path)
    }

    fn of(secret: SecretKey, path: &Path) -> Result<Self> {
        let public = minisign::PublicKey::from_secret_key(&secret).map_err(|error| {
            Error::refused(format!("{}: not a usable key", path.display())).with_source(error)
        })?;
        Ok(Self { secret, public: TrustedKey::of(public, path) })
    }

    /// Its id, in hexadecimal.
    pub fn id(&self) -> &str {
        &self.public.id
    }

    /// Returns whether this key has signed a version.
    pub fn has_signed(&self, record: &VersionRecord) -> bool {
        let mut signatures = record.signatures.iter();
        signatures.any(|signature| self.public.has_signed(&Statement::of(signature.store, record), signature))
    }

    /// Signs a statement.
    ///
    /// # Errors
    /// `Bug` when the library cannot sign.
    pub fn sign(&self, statement: &Statement) -> Result<Signature> {
        let comment = format!("signature of {}@{}", statement.image, statement.number);
        let signed =
            minisign::sign(None, &self.secret, statement.text().as_bytes(), Some(&comment), Some("platter"));
        let signed =
            signed.map_err(|error| Error::bug("a statement could not be signed").with_source(error))?;
        Ok(Signature { store: statement.store, text: signed.into_string() })
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}
