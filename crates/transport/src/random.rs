//! Random bytes from the operating system, for secrets and for names that must not be guessable.

use platter_image::{Error, Result};

use crate::to_hex;

/// Returns `BYTES` random bytes.
///
/// # Errors
/// `Io` when the system cannot provide them.
pub fn random_bytes<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::io("asking for random bytes", error.into()))?;
    Ok(bytes)
}

/// Returns `BYTES` random bytes in hexadecimal.
///
/// # Errors
/// `Io` when the system cannot provide them.
pub fn random_hex<const BYTES: usize>() -> Result<String> {
    Ok(to_hex(&random_bytes::<BYTES>()?))
}
