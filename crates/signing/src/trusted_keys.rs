//! The public keys that a machine trusts: files `NAME.pub` in one directory. They have the format of minisign.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use minisign::{PublicKeyBox, SignatureBox};
use platter_image::{Error, IoContext, Result};
use platter_records::Signature;

use crate::signing_key::KEY_FILE_LENGTH_MAX;
use crate::statement::Statement;

/// Maximum number of trusted keys.
const KEYS_MAX: usize = 256;

/// The directory of the trusted keys if none is named: `/etc/platter/trusted-keys` for root, otherwise
/// `~/.config/platter/trusted-keys`. `None` for a user without a home.
pub fn default_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/etc/platter/trusted-keys"));
    }
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")));
    config.map(|config| config.join("platter/trusted-keys"))
}

/// A public key.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    /// Its id, in hexadecimal.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    key: minisign::PublicKey,
}

impl TrustedKey {
    /// Reads a public key file.
    ///
    /// # Errors
    /// `Refused` when it is no public key; `Missing`, `Io`.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, KEY_FILE_LENGTH_MAX)?;
        let key = PublicKeyBox::from_string(&text).and_then(PublicKeyBox::into_public_key);
        let key = key.map_err(|error| {
            let hint = "expected a public key made by `platter key create` or `minisign -G`";
            Error::refused(format!("{}: {hint}", path.display())).with_source(error)
        })?;
        Ok(Self::of(key, path))
    }

    pub(crate) fn of(key: minisign::PublicKey, path: &Path) -> Self {
        Self { id: id_text(key.keynum()), path: path.to_owned(), key }
    }

    /// The key as one line of text, as minisign's option `-P` takes it.
    pub fn line(&self) -> String {
        self.key.to_base64()
    }

    /// Returns whether this key signed the statement.
    pub fn has_signed(&self, statement: &Statement, signature: &Signature) -> bool {
        if signature.store != statement.store {
            return false;
        }
        let Ok(signed) = SignatureBox::from_string(&signature.text) else { return false };
        let text = Cursor::new(statement.text());
        minisign::verify(&self.key, &signed, text, true, false, false).is_ok()
    }
}

/// Returns the id of the key that made a signature, or claims to have made it; `None` if it is no signature.
pub(crate) fn signer(signature: &Signature) -> Option<String> {
    SignatureBox::from_string(&signature.text).ok().map(|signed| id_text(signed.keynum()))
}

/// The text of a key's id, as minisign prints it.
fn id_text(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02X}")).collect()
}

/// The keys that this machine trusts.
#[derive(Clone, Debug)]
pub struct TrustedKeys {
    directory: PathBuf,
    keys: Vec<TrustedKey>,
}

impl TrustedKeys {
    /// Reads all files of a directory whose names end with `.pub`. A missing directory has no keys.
    ///
    /// # Errors
    /// `Refused` when one of them is no public key, or there are too many; `Io`. So a damaged file never means that fewer keys, or
    /// none, are required.
    pub fn read(directory: &Path) -> Result<Self> {
        let listed = match fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { directory: directory.to_owned(), keys: Vec::new() });
            }
            listed => listed.context(|| format!("reading the trusted keys in {}", directory.display()))?,
        };
        let mut paths = Vec::new();
        for entry in listed {
            let path = entry.context(|| format!("reading {}", directory.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                paths.push(path);
            }
        }
        if paths.len() > KEYS_MAX {
            return Err(Error::refused(format!(
                "{} has {} keys; at most {KEYS_MAX} are supported",
                directory.display(),
                paths.len()
            )));
        }
        paths.sort();
        let keys: Result<Vec<_>> = paths.iter().map(|path| TrustedKey::read(path)).collect();
        Ok(Self { directory: directory.to_owned(), keys: keys? })
    }

    /// The keys in these files.
    ///
    /// # Errors
    /// As [`TrustedKey::read`].
    pub fn of_files(paths: &[PathBuf]) -> Result<Self> {
        let keys: Result<Vec<_>> = paths.iter().map(|path| TrustedKey::read(path)).collect();
        let directory = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new("."));
        Ok(Self { directory: directory.to_owned(), keys: keys? })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The keys, by the names of their files.
    pub fn keys(&self) -> &[TrustedKey] {
        &self.keys
    }

    /// Adds a public key to the directory, which is created if it is missing. Returns the key with its new path.
    ///
    /// # Errors
    /// `Refused` when it is no public key, or the directory has another file of that name; `Io`.
    pub fn add(&mut self, path: &Path) -> Result<TrustedKey> {
        let mut key = TrustedKey::read(path)?;
        if let Some(present) = self.keys.iter().find(|present| present.id == key.id) {
            return Ok(present.clone());
        }
        let name = path.file_name().unwrap_or_default();
        let mut target = self.directory.join(name);
        if target.extension().is_none_or(|extension| extension != "pub") {
            target.as_mut_os_string().push(".pub");
        }
        if target.exists() {
            return Err(Error::refused(format!(
                "{} is another key: copy this one to a file with another name first",
                target.display()
            )));
        }
        fs::create_dir_all(&self.directory).context(|| format!("creating {}", self.directory.display()))?;
        platter_transport::private_file::replace(&target, read_text(path, KEY_FILE_LENGTH_MAX)?.as_bytes())?;
        key.path = target;
        self.keys.push(key.clone());
        Ok(key)
    }

    /// Removes the key with that id, and returns it.
    ///
    /// # Errors
    /// `Missing` when there is none; `Io`.
    pub fn remove(&mut self, id: &str) -> Result<TrustedKey> {
        let found = self.keys.iter().position(|key| key.id.eq_ignore_ascii_case(id));
        let Some(at) = found else {
            return Err(Error::missing(format!(
                "no trusted key in {} has the id {id}: `platter key list` prints the ids",
                self.directory.display()
            )));
        };
        let key = self.keys.remove(at);
        fs::remove_file(&key.path).context(|| format!("removing {}", key.path.display()))?;
        Ok(key)
    }
}

/// Reads a text file of limited length.
pub(crate) fn read_text(path: &Path, length_max: u64) -> Result<String> {
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::missing(format!("{} does not exist", path.display())),
        _ => Error::io(format!("opening {}", path.display()), error),
    })?;
    let mut text = String::new();
    file.take(length_max + 1).read_to_string(&mut text).context(|| format!("reading {}", path.display()))?;
    if text.len() as u64 > length_max {
        return Err(Error::refused(format!(
            "{}: longer than {length_max} bytes, so not what was expected here",
            path.display()
        )));
    }
    Ok(text)
}
