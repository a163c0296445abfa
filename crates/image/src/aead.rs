//! XChaCha20-Poly1305, the cipher of encrypted frames (draft-irtf-cfrg-xchacha, section 2.3).
//!
//! HChaCha20 derives the key of one payload from the key and the first 16 bytes of the nonce. ChaCha20-Poly1305 (RFC 8439)
//! then uses four zero bytes and the other 8 bytes as its nonce. `ring` has the second step in assembly, which
//! is twice as fast as the crate `chacha20poly1305`; a test compares both. This file knows no frame, and makes no nonces.
//! `ring` does not erase its copy of the key of a payload; nothing else can be decrypted with that key.

use chacha20::{R20, hchacha};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroizing;

/// Bytes of a nonce.
pub(crate) const NONCE_LENGTH: usize = 24;
/// Bytes of an authentication tag.
pub(crate) const TAG_LENGTH: usize = 16;

/// The payload was not encrypted with this key, nonce and binding, or was changed.
#[derive(Debug)]
pub(crate) struct NotAuthentic;

/// Encrypts `text` in place and returns the tag, which also authenticates `binding`. A nonce must never be used for two texts.
///
/// # Errors
/// When `text` is longer than 256 GiB.
pub(crate) fn seal(
    key: &[u8; 32],
    nonce: &[u8; NONCE_LENGTH],
    binding: &[u8],
    text: &mut [u8],
) -> Result<[u8; TAG_LENGTH], NotAuthentic> {
    let (key, nonce) = of_payload(key, nonce)?;
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(binding), text).map_err(|_| NotAuthentic)?;
    tag.as_ref().try_into().map_err(|_| NotAuthentic)
}

/// Decrypts `text` in place.
///
/// # Errors
/// When the tag is wrong; `text` is then unspecified.
pub(crate) fn open(
    key: &[u8; 32],
    nonce: &[u8; NONCE_LENGTH],
    binding: &[u8],
    tag: &[u8; TAG_LENGTH],
    text: &mut [u8],
) -> Result<(), NotAuthentic> {
    let (key, nonce) = of_payload(key, nonce)?;
    let opened = key.open_in_place_separate_tag(nonce, Aad::from(binding), Tag::from(*tag), text, 0..);
    opened.map(drop).map_err(|_| NotAuthentic)
}

/// The key of one payload, and the nonce to use it with.
fn of_payload(key: &[u8; 32], nonce: &[u8; NONCE_LENGTH]) -> Result<(LessSafeKey, Nonce), NotAuthentic> {
    let (mut input, mut rest) = ([0; 16], [0; 12]);
    input.copy_from_slice(&nonce[..16]);
    rest[4..].copy_from_slice(&nonce[16..]);
    let derived: Zeroizing<[u8; 32]> = Zeroizing::new(hchacha::<R20>(&(*key).into(), &input.into()).into());
    let key = UnboundKey::new(&CHACHA20_POLY1305, &*derived).map_err(|_| NotAuthentic)?;
    Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20poly1305::aead::{Aead, Payload};
    use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
    use proptest::prelude::*;

    proptest! {
        /// Another implementation writes the same bytes, and each decrypts what the other encrypted.
        #[test]
        fn another_implementation_agrees(
            key: [u8; 32],
            nonce: [u8; NONCE_LENGTH],
            aad in prop::collection::vec(any::<u8>(), 0..200),
            msg in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let other = XChaCha20Poly1305::new(&key.into());
            let expected = other.encrypt(&nonce.into(), Payload { msg: &msg, aad: &aad }).unwrap();
            let mut text = msg.clone();
            let tag = seal(&key, &nonce, &aad, &mut text).unwrap();
            let sealed = [&text[..], &tag].concat();
            prop_assert_eq!(&sealed, &expected);
            open(&key, &nonce, &aad, &tag, &mut text).unwrap();
            prop_assert_eq!(&text, &msg);
            let opened = other.decrypt(&nonce.into(), Payload { msg: &sealed, aad: &aad }).unwrap();
            prop_assert_eq!(&opened, &msg);
        }
    }

    /// The vector of the draft, section A.3.1.
    #[test]
    fn the_vector_of_the_draft() {
        let key = std::array::from_fn(|at| 0x80 + at as u8);
        let nonce = std::array::from_fn(|at| 0x40 + at as u8);
        let binding = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let mut text = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let tag = seal(&key, &nonce, &binding, &mut text).unwrap();
        assert_eq!(text[..8], [0xbd, 0x6d, 0x17, 0x9d, 0x3e, 0x83, 0xd4, 0x3b]);
        assert_eq!(
            tag,
            [0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79, 0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a, 0xcf, 0x49]
        );
    }

    #[test]
    fn what_was_changed_is_refused() {
        let (key, nonce) = ([1; 32], [2; NONCE_LENGTH]);
        let mut text = *b"contents";
        let tag = seal(&key, &nonce, b"header", &mut text).unwrap();
        let opens = |key, nonce, binding: &[u8], tag, mut text: [u8; 8]| {
            open(key, nonce, binding, tag, &mut text).is_ok()
        };
        assert!(opens(&key, &nonce, b"header", &tag, text));
        let (mut bad_tag, mut bad_text) = (tag, text);
        bad_tag[15] ^= 1;
        bad_text[0] ^= 1;
        assert!(!opens(&[3; 32], &nonce, b"header", &tag, text));
        assert!(!opens(&key, &[3; NONCE_LENGTH], b"header", &tag, text));
        assert!(!opens(&key, &nonce, b"Header", &tag, text));
        assert!(!opens(&key, &nonce, b"header", &bad_tag, text));
        assert!(!opens(&key, &nonce, b"header", &tag, bad_text));
    }
}
