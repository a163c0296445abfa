//! What the keys of casts on demand are derived from. A restarted origin has the same one, so that receivers can go on.

use std::fmt;
use std::path::Path;

use platter_image::{Domain, Error, Result};
use platter_net::JoinKey;
use platter_transport::{private_file, random_bytes};

/// The file in the directory of a store from which the keys of its casts are derived.
const SECRET_FILE: &str = "cast-secret";

pub(super) struct Secret([u8; 32]);

impl Secret {
    /// Returns the secret of the store in `dir`.
    ///
    /// # Errors
    /// `Refused` without the key of an encrypted store; `Corrupt` or `Io` if the secret cannot be read or made.
    pub(super) fn of(dir: &Path, domain: Domain) -> Result<Self> {
        match domain.is_encrypted() {
            // A file with it would open recorded casts of encrypted data for who has only the store's files.
            true => Ok(Self(*domain.keys()?.of_casts())),
            false => Self::read_or_make(&dir.join(SECRET_FILE)),
        }
    }

    fn read_or_make(path: &Path) -> Result<Self> {
        match private_file::read(path, 33)? {
            Some(bytes) => bytes.try_into().map(Self).map_err(|_| {
                Error::corrupt(format!(
                    "{} does not have 32 bytes: delete it, and it is made anew",
                    path.display()
                ))
            }),
            None => {
                let secret = random_bytes()?;
                private_file::replace(path, &secret)?;
                Ok(Self(secret))
            }
        }
    }

    /// The join key of the casts of a subject.
    pub(super) fn key_of(&self, subject: &[u8; 32]) -> [u8; 32] {
        JoinKey::derive(&self.0, subject)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
