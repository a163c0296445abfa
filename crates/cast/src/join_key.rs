//! The join key of a cast: a secret that the sender shares with its receivers before they meet.
//!
//! Owns the derivation of every key that depends on it. Must never be printed.

use std::fmt;

/// A secret of 256 bits. With it, a cast is encrypted, and only who knows it can announce, join or answer (design: trust).
#[derive(Clone, PartialEq, Eq)]
pub struct JoinKey([u8; 32]);

/// The keys of one connection of the reliable channel, one for each direction.
pub(crate) struct ConnectionKeys {
    pub(crate) of_receiver: [u8; 32],
    pub(crate) of_sender: [u8; 32],
}

impl JoinKey {
    /// Uses 256 random bits, or bits that were derived from them.
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Derives the bits of a key from a secret, for one of many casts.
    pub fn derive(secret: &[u8; 32], cast: &[u8]) -> [u8; 32] {
        blake3::derive_key("platter 2026-11-26 cast join key of a version", &[secret, cast].concat())
    }

    /// Derives the key from a secret of any length, such as the contents of a file. It must be as hard to guess as 256 random
    /// bits.
    pub fn from_secret(secret: &[u8]) -> Self {
        Self(blake3::derive_key("platter 2026-11-25 cast join key", secret))
    }

    /// Returns the key that authenticates announcements.
    pub(crate) fn of_announcements(&self) -> [u8; 32] {
        blake3::derive_key("platter 2026-11-25 cast announcements", &self.0)
    }

    /// Returns the keys of a connection. The nonces make them unique, as long as either side never repeats its own.
    pub(crate) fn of_connection(&self, receiver_nonce: &[u8; 32], sender_nonce: &[u8; 32]) -> ConnectionKeys {
        let material = [self.0, *receiver_nonce, *sender_nonce].concat();
        ConnectionKeys {
            of_receiver: blake3::derive_key(
                "platter 2026-11-25 cast connection, from the receiver",
                &material,
            ),
            of_sender: blake3::derive_key("platter 2026-11-25 cast connection, from the sender", &material),
        }
    }
}

impl fmt::Debug for JoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinKey(secret)")
    }
}
