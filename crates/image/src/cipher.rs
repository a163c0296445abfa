//! The ciphers of encrypted frames: XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha, section 2.3) and XAES-256-GCM (C2SP).
//!
//! Both have nonces of 24 bytes, which may be random, and tags of 16. Both derive the key of one payload from the key and the start of
//! the nonce: the first with HChaCha20, the second with AES-256-CMAC. With it they use a cipher of TLS, ChaCha20-Poly1305 or
//! AES-256-GCM, and the rest of the nonce. `ring` has these in assembly. Tests compare with another implementation and the vectors of the
//! specifications. This file knows no frame, and makes no nonces. `ring` does not erase its copy of the key of a payload; nothing
//! else can be decrypted with that key.

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use chacha20::{R20, hchacha};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY_LENGTH: usize = 32;
/// Bytes of a nonce.
pub(crate) const NONCE_LENGTH: usize = 24;
/// Bytes of an authentication tag.
pub(crate) const TAG_LENGTH: usize = 16;

/// Whether and how the encoded payload of a frame is encrypted. The values are stored in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cipher {
    /// Not encrypted.
    None = 0,
    /// XChaCha20-Poly1305: nonce, ciphertext, tag.
    XChaCha20Poly1305 = 1,
    /// XAES-256-GCM: the same parts.
    XAes256Gcm = 2,
}

/// The payload was not encrypted with this cipher, key, nonce and binding, or was changed.
#[derive(Debug)]
pub(crate) struct NotAuthentic;

/// The key and nonce with which one payload is encrypted.
type OfPayload = (LessSafeKey, Nonce);

impl Cipher {
    /// The cipher for new frames: the one that is faster on this processor.
    pub(crate) fn of_new_frames() -> Self {
        if has_aes_instructions() { Self::XAes256Gcm } else { Self::XChaCha20Poly1305 }
    }

    /// Encrypts `text` in place and returns the tag, which also authenticates `binding`. A nonce must never be used for two texts.
    ///
    /// # Errors
    /// When `text` is longer than the cipher allows, or there is no cipher.
    pub(crate) fn seal(
        self,
        key: &[u8; KEY_LENGTH],
        nonce: &[u8; NONCE_LENGTH],
        binding: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LENGTH], NotAuthentic> {
        let (key, nonce) = self.of_payload(key, nonce)?;
        let tag =
            key.seal_in_place_separate_tag(nonce, Aad::from(binding), text).map_err(|_| NotAuthentic)?;
        tag.as_ref().try_into().map_err(|_| NotAuthentic)
    }

    /// Decrypts `text` in place.
    ///
    /// # Errors
    /// When the tag is wrong; `text` is then unspecified.
    pub(crate) fn open(
        self,
        key: &[u8; KEY_LENGTH],
        nonce: &[u8; NONCE_LENGTH],
        binding: &[u8],
        tag: &[u8; TAG_LENGTH],
        text: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let (key, nonce) = self.of_payload(key, nonce)?;
        let opened = key.open_in_place_separate_tag(nonce, Aad::from(binding), Tag::from(*tag), text, 0..);
        opened.map(drop).map_err(|_| NotAuthentic)
    }

    fn of_payload(
        self,
        key: &[u8; KEY_LENGTH],
        nonce: &[u8; NONCE_LENGTH],
    ) -> Result<OfPayload, NotAuthentic> {
        let mut rest = [0; 12];
        let (algorithm, derived) = match self {
            Self::None => return Err(NotAuthentic),
            Self::XChaCha20Poly1305 => {
                let mut input = [0; 16];
                input.copy_from_slice(&nonce[..16]);
                rest[4..].copy_from_slice(&nonce[16..]);
                let derived = hchacha::<R20>(&(*key).into(), &input.into());
                (&CHACHA20_POLY1305, Zeroizing::new(derived.into()))
            }
            Self::XAes256Gcm => {
                rest.copy_from_slice(&nonce[12..]);
                (&AES_256_GCM, key_of_xaes(key, nonce))
            }
        };
        let key = UnboundKey::new(algorithm, &*derived).map_err(|_| NotAuthentic)?;
        Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(rest)))
    }
}

/// The key of one payload: AES-256-CMAC of two blocks, which contain a counter and the first 12 bytes of the nonce.
fn key_of_xaes(key: &[u8; KEY_LENGTH], nonce: &[u8; NONCE_LENGTH]) -> Zeroizing<[u8; KEY_LENGTH]> {
    let aes = Aes256::new(&(*key).into());
    let mut block = [0; 16].into();
    aes.encrypt_block(&mut block);
    // The subkey of CMAC for complete blocks: the encrypted zero block, doubled in GF(2^128).
    let zero = u128::from_be_bytes(block.into());
    let subkey = Zeroizing::new(((zero << 1) ^ ((zero >> 127) * 0x87)).to_be_bytes());
    let mut derived = Zeroizing::new([0; KEY_LENGTH]);
    for (counter, half) in (1..=2).zip(derived.chunks_exact_mut(16)) {
        let mut input = [0, counter, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        input[4..].copy_from_slice(&nonce[..12]);
        input.iter_mut().zip(subkey.iter()).for_each(|(byte, mask)| *byte ^= mask);
        let mut block = input.into();
        aes.encrypt_block(&mut block);
        half.copy_from_slice(&block);
    }
    derived
}

/// Whether the processor has the instructions without which AES-256-GCM is slow.
fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20poly1305::XChaCha20Poly1305;
    use chacha20poly1305::aead::{Aead, Payload};
    use proptest::prelude::*;

    const CIPHERS: [Cipher; 2] = [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    proptest! {
        /// Another implementation of the first cipher writes the same bytes, and each decrypts what the other encrypted.
        #[test]
        fn another_implementation_agrees(
            key: [u8; KEY_LENGTH],
            nonce: [u8; NONCE_LENGTH],
            aad in prop::collection::vec(any::<u8>(), 0..200),
            msg in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let other = XChaCha20Poly1305::new(&key.into());
            let expected = other.encrypt(&nonce.into(), Payload { msg: &msg, aad: &aad }).unwrap();
            let mut text = msg.clone();
            let tag = Cipher::XChaCha20Poly1305.seal(&key, &nonce, &aad, &mut text).unwrap();
            let sealed = [&text[..], &tag].concat();
            prop_assert_eq!(&sealed, &expected);
            Cipher::XChaCha20Poly1305.open(&key, &nonce, &aad, &tag, &mut text).unwrap();
            prop_assert_eq!(&text, &msg);
            let opened = other.decrypt(&nonce.into(), Payload { msg: &sealed, aad: &aad }).unwrap();
            prop_assert_eq!(&opened, &msg);
        }
    }

    /// The vector of the draft, section A.3.1.
    #[test]
    fn xchacha20_poly1305_has_the_specified_vector() {
        let key = std::array::from_fn(|at| 0x80 + at as u8);
        let nonce = std::array::from_fn(|at| 0x40 + at as u8);
        let binding = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let mut text = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let tag = Cipher::XChaCha20Poly1305.seal(&key, &nonce, &binding, &mut text).unwrap();
        assert_eq!(hex(&text[..8]), "bd6d179d3e83d43b");
        assert_eq!(hex(&tag), "c0875924c1c7987947deafd8780acf49");
    }

    /// The vectors of the specification. In the first, the most significant bit of the encrypted zero block is 0, in the second 1.
    #[test]
    fn xaes_256_gcm_has_the_specified_vectors() {
        let nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX";
        for (key, binding, expected) in [
            (1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
        ] {
            let mut text = *b"XAES-256-GCM";
            let tag = Cipher::XAes256Gcm.seal(&[key; 32], nonce, binding.as_bytes(), &mut text).unwrap();
            assert_eq!(hex(&[&text[..], &tag].concat()), expected);
            Cipher::XAes256Gcm.open(&[key; 32], nonce, binding.as_bytes(), &tag, &mut text).unwrap();
            assert_eq!(&text, b"XAES-256-GCM");
        }
    }

    #[test]
    fn what_was_changed_is_refused() {
        let (key, nonce) = ([1; KEY_LENGTH], [2; NONCE_LENGTH]);
        for cipher in CIPHERS {
            let mut text = *b"contents";
            let tag = cipher.seal(&key, &nonce, b"header", &mut text).unwrap();
            let opens = |key: &_, nonce: &_, binding: &[u8], tag: &_, mut text: [u8; 8]| {
                cipher.open(key, nonce, binding, tag, &mut text).is_ok()
            };
            assert!(opens(&key, &nonce, b"header", &tag, text));
            let (mut bad_tag, mut bad_text) = (tag, text);
            bad_tag[15] ^= 1;
            bad_text[0] ^= 1;
            assert!(!opens(&[3; KEY_LENGTH], &nonce, b"header", &tag, text));
            for at in 0..NONCE_LENGTH {
                let mut bad = nonce;
                bad[at] ^= 1;
                assert!(!opens(&key, &bad, b"header", &tag, text), "{cipher:?}, byte {at} of the nonce");
            }
            assert!(!opens(&key, &nonce, b"Header", &tag, text));
            assert!(!opens(&key, &nonce, b"header", &bad_tag, text));
            assert!(!opens(&key, &nonce, b"header", &tag, bad_text));
        }
    }
}
