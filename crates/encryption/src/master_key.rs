//! The master key of an encrypted store. All keys that encrypt or name something are derived from it (`platter_image::DomainKeys`).

use platter_image::{Domain, DomainKeys, Error, MASTER_KEY_LENGTH, Result};
use zeroize::Zeroizing;

/// A master key. It is erased when it is dropped.
pub struct MasterKey(Zeroizing<[u8; MASTER_KEY_LENGTH]>);

impl MasterKey {
    /// A new random key.
    ///
    /// # Errors
    /// `Io` when the system has no random bytes.
    pub fn random() -> Result<Self> {
        let mut key = Zeroizing::new([0; MASTER_KEY_LENGTH]);
        fill(&mut *key)?;
        Ok(Self(key))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; MASTER_KEY_LENGTH]);
        if bytes.len() != key.len() {
            return None;
        }
        key.copy_from_slice(bytes);
        Some(Self(key))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..]
    }

    /// The identity domain of stores with this key.
    pub fn domain(&self) -> Domain {
        Domain::of(&self.0)
    }

    /// From now on, this process can read and write data of the key's domain.
    ///
    /// # Errors
    /// `Io` when the system has no random bytes; `Refused` when the process has too many keys.
    pub fn use_in_process(&self) -> Result<()> {
        let mut seed = Zeroizing::new([0; 32]);
        fill(&mut *seed)?;
        DomainKeys::derive(&self.0, &seed).add_to_process()
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey")
    }
}

/// Fills `bytes` with random bytes.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| Error::io("asking the system for random bytes", error.into()))
}
