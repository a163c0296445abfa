//! Encrypts a temporary file with a key that only this process has: when the process ends, nobody can read what is left of the
//! file on the disk. It must never use the same key stream for two contents, so each piece is encrypted under a number that is
//! never used again.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use platter_image::Result;
use zeroize::Zeroizing;

use crate::master_key::fill;

/// The file is encrypted in pieces of this length.
pub const SPOOL_PIECE_LENGTH: usize = 4096;

/// The key of one temporary file. It is erased when it is dropped.
pub struct SpoolKey(Zeroizing<[u8; 32]>);

impl SpoolKey {
    /// A new random key.
    ///
    /// # Errors
    /// `Io` when the system has no random bytes.
    pub fn random() -> Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        fill(&mut *key)?;
        Ok(Self(key))
    }

    /// Encrypts or decrypts the start of a piece (at most [`SPOOL_PIECE_LENGTH`] bytes), which was written `writes` times. The
    /// caller must never encrypt a piece twice under the same number.
    pub fn apply(&self, piece: u64, writes: u32, bytes: &mut [u8]) {
        debug_assert!(bytes.len() <= SPOOL_PIECE_LENGTH);
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&piece.to_le_bytes());
        nonce[8..].copy_from_slice(&writes.to_le_bytes());
        ChaCha20::new(&(*self.0).into(), &nonce.into()).apply_keystream(bytes);
    }
}

impl std::fmt::Debug for SpoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SpoolKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_streams_differ_by_key_piece_and_number() {
        let (key, other) = (SpoolKey::random().unwrap(), SpoolKey::random().unwrap());
        let stream = |key: &SpoolKey, piece, writes| {
            let mut bytes = [0; SPOOL_PIECE_LENGTH];
            key.apply(piece, writes, &mut bytes);
            bytes
        };
        let first = stream(&key, 7, 1);
        assert!(first == stream(&key, 7, 1));
        for other in [stream(&key, 7, 2), stream(&key, 8, 1), stream(&key, 7 << 32, 1), stream(&other, 7, 1)]
        {
            assert!(first.chunks(16).zip(other.chunks(16)).all(|(one, other)| one != other));
        }
    }
}
