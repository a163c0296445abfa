//! Random bytes of the system's, for secrets and for names that nobody may guess.

use platter_image::{Error, Result};

/// So many random bytes in hexadecimal.
///
/// # Errors
/// `Io` when the system has none.
pub(crate) fn random_hex<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0_u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::io("asking for random bytes", error.into()))?;
    Ok(hex(&bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
