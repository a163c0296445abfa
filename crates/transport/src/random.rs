//! Random bytes from the operating system, for secrets and for names that nobody may guess.

use platter_image::{Error, Result};

use crate::to_hex;

/// That many random bytes.
///
/// # Errors
/// `Io` when the system has none.
pub fn random_bytes<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::io("asking for random bytes", error.into()))?;
    Ok(bytes)
}

/// That many random bytes, in hexadecimal.
///
/// # Errors
/// `Io` when the system has none.
pub fn random_hex<const BYTES: usize>() -> Result<String> {
    Ok(to_hex(&random_bytes::<BYTES>()?))
}
