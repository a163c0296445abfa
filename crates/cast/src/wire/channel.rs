//! The encrypted reliable channel of a cast with a join key. Receiver and sender exchange nonces (GREETING) and derive a key for
//! each direction. Every later message is encrypted and numbered; the first one that opens proves that the other side knows
//! the join key.
//!
//! Must never accept a message twice, out of order, or from the other direction.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};

use crate::join_key::ConnectionKeys;

/// One end of a connection.
pub(crate) struct Channel {
    out: Direction,
    back: Direction,
}

struct Direction {
    cipher: Box<ChaCha20Poly1305>,
    messages: u64,
}

impl Direction {
    fn new(key: [u8; 32]) -> Self {
        Self { cipher: Box::new(ChaCha20Poly1305::new(&Key::from(key))), messages: 0 }
    }

    /// The number of a message is its nonce.
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.messages.to_le_bytes());
        Nonce::from(nonce)
    }
}

impl Channel {
    pub(crate) fn of_receiver(keys: &ConnectionKeys) -> Self {
        Self { out: Direction::new(keys.of_receiver), back: Direction::new(keys.of_sender) }
    }

    pub(crate) fn of_sender(keys: &ConnectionKeys) -> Self {
        Self { out: Direction::new(keys.of_sender), back: Direction::new(keys.of_receiver) }
    }

    /// Encrypts a message with its length. The result has a length, too.
    pub(crate) fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let text = message.get(4..).unwrap_or_default();
        // It fails only for texts of many gigabytes.
        let sealed =
            self.out.cipher.encrypt(&self.out.nonce(), Payload { msg: text, aad: b"" }).unwrap_or_default();
        self.out.messages += 1;
        let mut to = (sealed.len() as u32).to_le_bytes().to_vec();
        to.extend(sealed);
        to
    }

    /// Decrypts the next message, without its length. `None` if it is not the other side's next message.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Option<Vec<u8>> {
        let opened = self.back.cipher.decrypt(&self.back.nonce(), Payload { msg: sealed, aad: b"" }).ok()?;
        self.back.messages += 1;
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join_key::JoinKey;

    #[test]
    fn messages_open_once_in_order_and_at_the_other_end() {
        let keys = JoinKey::new([1; 32]).of_connection(&[2; 32], &[3; 32]);
        let (mut receiver, mut sender) = (Channel::of_receiver(&keys), Channel::of_sender(&keys));
        let mut stranger = Channel::of_sender(&JoinKey::new([9; 32]).of_connection(&[2; 32], &[3; 32]));
        let [first, second] = [b"....first", b"....other"].map(|message| receiver.seal(message));
        assert_eq!(u32::from_le_bytes(*first.first_chunk().unwrap()) as usize, first.len() - 4);
        assert_eq!(stranger.open(&first[4..]), None);
        assert_eq!(sender.open(&second[4..]), None, "out of order");
        assert_eq!(receiver.open(&first[4..]), None, "reflected");
        assert_eq!(sender.open(&first[4..]).as_deref(), Some(&b"first"[..]));
        assert_eq!(sender.open(&first[4..]), None, "twice");
        assert_eq!(sender.open(&second[4..]).as_deref(), Some(&b"other"[..]));
        let back = sender.seal(b"....back");
        assert_eq!(receiver.open(&back[4..]).as_deref(), Some(&b"back"[..]));
    }
}
