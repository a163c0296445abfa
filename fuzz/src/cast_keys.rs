//! The keys of a cast or a probe, made a second time from docs/formats/cast-wire.md: so a target can speak as sender and as receiver, also
//! with a join key.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, Key, KeyInit, Nonce, Tag};

/// Bytes of a datagram's tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes that are never encrypted: the header, and the receiver's number in its datagrams.
const SENDER_CLEAR_BYTES: usize = 18;
const RECEIVER_CLEAR_BYTES: usize = 22;
/// The last type of the sender's datagrams; those of receivers follow.
const SENDER_TYPE_MAX: u8 = 3;
/// Where a GREETING, with its length, has its nonce, and where a WELCOME of a cast has its two keys.
const NONCE_AT: usize = 6;
const WELCOME_KEYS_AT: usize = 10;

/// The keys of one receiver.
pub(crate) struct CastKeys {
    is_encrypted: bool,
    announcements: [u8; 32],
    receiver: [u8; 32],
    sender: [u8; 32],
}

impl CastKeys {
    /// The keys in the WELCOME of a cast, which is not encrypted any more.
    pub(crate) fn of_welcome(welcome: &[u8], join_key: Option<&[u8; 32]>) -> Self {
        let key = |at: usize| array(welcome, WELCOME_KEYS_AT + at);
        let announcements =
            join_key.map(|key| blake3::derive_key("platter 2026-11-25 cast announcements", key));
        Self {
            is_encrypted: join_key.is_some(),
            announcements: announcements.unwrap_or_else(|| key(32)),
            receiver: key(0),
            sender: key(32),
        }
    }

    /// The key of a datagram of this type, and where its encrypted part begins, if it has one.
    fn of(&self, kind: u8) -> (&[u8; 32], Option<usize>) {
        match kind {
            1 => (&self.announcements, None),
            kind if kind <= SENDER_TYPE_MAX => {
                (&self.sender, self.is_encrypted.then_some(SENDER_CLEAR_BYTES))
            }
            _ => (&self.receiver, self.is_encrypted.then_some(RECEIVER_CLEAR_BYTES)),
        }
    }

    /// Decrypts a datagram in place. Its tag stays.
    ///
    /// # Panics
    /// When it was not made with these keys.
    pub(crate) fn open(&self, datagram: &mut [u8]) {
        let (key, Some(clear_bytes)) = self.of(datagram[1]) else { return };
        let (front, tag) = datagram.split_last_chunk_mut::<TAG_BYTES>().expect("a tag");
        let (clear, text) = front.split_at_mut(clear_bytes);
        let cipher = ChaCha20Poly1305::new(&Key::from(*key));
        let opened =
            cipher.decrypt_inout_detached(&nonce_of(clear), clear, InOutBuf::from(text), &Tag::from(*tag));
        opened.expect("a datagram of this cast");
    }

    /// Encrypts a datagram without a tag, and appends a valid one.
    pub(crate) fn seal(&self, datagram: &mut Vec<u8>) {
        let (key, clear_bytes) = self.of(datagram.get(1).copied().unwrap_or_default());
        let tag: [u8; TAG_BYTES] = match clear_bytes {
            None => array(blake3::keyed_hash(key, datagram).as_bytes(), 0),
            Some(clear_bytes) => {
                let clear_bytes = clear_bytes.min(datagram.len());
                let (clear, text) = datagram.split_at_mut(clear_bytes);
                let cipher = ChaCha20Poly1305::new(&Key::from(*key));
                let sealed = cipher.encrypt_inout_detached(&nonce_of(clear), clear, InOutBuf::from(text));
                sealed.expect("a short text").into()
            }
        };
        datagram.extend_from_slice(&tag);
    }
}

/// Decrypts the first message of a sender to a receiver after both GREETINGs. All have their length; so has the result, though it is the old one.
///
/// # Panics
/// When it was not made with this key.
pub(crate) fn open_welcome(
    join_key: &[u8; 32],
    from_receiver: &[u8],
    from_sender: &[u8],
    welcome: &[u8],
) -> Vec<u8> {
    let nonces = [from_receiver, from_sender].map(|greeting| array::<32>(greeting, NONCE_AT));
    let material = [*join_key, nonces[0], nonces[1]].concat();
    let key = blake3::derive_key("platter 2026-11-25 cast connection, from the sender", &material);
    let mut opened = welcome.to_vec();
    let (front, tag) = opened.split_last_chunk_mut::<TAG_BYTES>().expect("a tag");
    let cipher = ChaCha20Poly1305::new(&Key::from(key));
    let text = InOutBuf::from(&mut front[4..]);
    cipher
        .decrypt_inout_detached(&Nonce::from([0; 12]), b"", text, &Tag::from(*tag))
        .expect("a WELCOME for this receiver");
    opened.truncate(welcome.len() - TAG_BYTES);
    opened
}

/// The packet number is the nonce.
fn nonce_of(header: &[u8]) -> Nonce {
    let mut nonce = [0; 12];
    if let Some(packet) = header.get(8..14) {
        nonce[..6].copy_from_slice(packet);
    }
    Nonce::from(nonce)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length of the range")
}
