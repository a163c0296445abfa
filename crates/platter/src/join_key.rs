//! The key file of casts: read by receivers, created or read by the sender.

use std::path::Path;

use platter_jobs::{Error, JoinKey, Result};

use crate::output::Output;
use crate::unlock::{NewKeyFile, read_new_secret_file, read_secret_file};

/// The least bytes of a key file: 256 random bits.
const LENGTH_MIN: usize = 32;

/// Reads the join key in a file.
///
/// # Errors
/// `Missing`, `Io`; `Refused` when the file is too short.
pub(crate) fn read(path: &Path, output: &Output) -> Result<JoinKey> {
    of(&read_secret_file(path, output)?, path)
}

fn of(secret: &[u8], path: &Path) -> Result<JoinKey> {
    if secret.len() < LENGTH_MIN {
        return Err(Error::refused(format!(
            "the key file {} has {} bytes: at least {LENGTH_MIN} random bytes are needed",
            path.display(),
            secret.len()
        )));
    }
    Ok(JoinKey::from_secret(secret))
}

/// Reads the join key in a file, which is created with random contents if it is missing.
///
/// # Errors
/// As [`read`]; `Refused` when a file that exists is another user's, or can be written by others.
pub(crate) fn read_or_create(path: &Path, output: &Output) -> Result<JoinKey> {
    if let Some(created) = NewKeyFile::create_if_missing(None, path)? {
        created.keep("copy it to the receivers", output);
    }
    of(&read_new_secret_file(path, output)?, path)
}
