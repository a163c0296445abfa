//! How datagrams are authenticated, and encrypted if the cast has a join key. The last 16 bytes of each are a tag.
//!
//! Owns the layout of flags and tag. A key serves one direction: that of the sender, or that of one receiver. The packet number
//! is the nonce, so it must never occur twice under a key. Must never return a byte of a datagram whose tag is wrong.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, Key, KeyInit, Nonce, Tag};

use super::format::{DATAGRAM_BYTES_MAX, FLAG_JOIN_KEY, HEADER_BYTES, TAG_BYTES};

/// Position of the flags in a datagram.
const FLAGS_AT: usize = 2;
/// Range of the packet number in a datagram.
const PACKET: std::ops::Range<usize> = 8..14;
/// Maximum difference between a number and the highest one before it, or the last one that the peer is known to have reached:
/// more datagrams than a sender sends before a receiver that hears nothing joins again, up to 9 Gbit/s. At higher rates, the next mark
/// helps.
const STEP_MAX: u64 = 1 << 22;
/// Bytes before the encrypted part of a receiver's datagrams: the receiver's id follows the header, because it tells the key.
pub(crate) const FEEDBACK_CLEAR_BYTES: usize = HEADER_BYTES + 4;

/// Protects and opens the datagrams of one direction.
pub(crate) struct DatagramKey {
    flags: u8,
    method: Method,
}

enum Method {
    /// A tag of keyed BLAKE3 over the whole datagram.
    Tag([u8; 32]),
    /// ChaCha20-Poly1305. The first bytes stay readable.
    Encrypt { cipher: Box<ChaCha20Poly1305>, clear_bytes: usize },
}

impl DatagramKey {
    /// Makes the key of the sender's datagrams, except announcements.
    pub(crate) fn of_sender(key: &[u8; 32], has_join_key: bool) -> Self {
        Self::new(key, has_join_key, HEADER_BYTES)
    }

    /// Makes the key of a receiver's datagrams.
    pub(crate) fn of_receiver(key: &[u8; 32], has_join_key: bool) -> Self {
        Self::new(key, has_join_key, FEEDBACK_CLEAR_BYTES)
    }

    /// Makes the key of announcements. They are never encrypted.
    pub(crate) fn of_announcements(key: [u8; 32], has_join_key: bool) -> Self {
        Self { flags: if has_join_key { FLAG_JOIN_KEY } else { 0 }, method: Method::Tag(key) }
    }

    fn new(key: &[u8; 32], has_join_key: bool, clear_bytes: usize) -> Self {
        match has_join_key {
            false => Self { flags: 0, method: Method::Tag(*key) },
            true => {
                let cipher = Box::new(ChaCha20Poly1305::new(&Key::from(*key)));
                Self { flags: FLAG_JOIN_KEY, method: Method::Encrypt { cipher, clear_bytes } }
            }
        }
    }

    /// Protects the datagram that starts at `start` and reaches to the end of `to`: sets its flags and appends the tag.
    pub(crate) fn seal(&self, to: &mut Vec<u8>, start: usize) {
        if let Some(flags) = to.get_mut(start + FLAGS_AT) {
            *flags = self.flags;
        }
        let datagram = to.get_mut(start..).unwrap_or_default();
        let tag: [u8; TAG_BYTES] = match &self.method {
            Method::Tag(key) => tag_of(key, datagram),
            Method::Encrypt { cipher, clear_bytes } => {
                let (clear, text) = datagram.split_at_mut((*clear_bytes).min(datagram.len()));
                // It fails only for texts of many gigabytes. A tag of zeros is not valid.
                cipher
                    .encrypt_inout_detached(&nonce_of(clear), clear, InOutBuf::from(text))
                    .map_or([0; TAG_BYTES], Into::into)
            }
        };
        to.extend_from_slice(&tag);
    }

    /// Verifies a datagram. Returns it without its tag, decrypted; `scratch` may be used for that. `None` if it was not made with
    /// this key, or was changed.
    pub(crate) fn open<'a>(&self, datagram: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if datagram.len() > DATAGRAM_BYTES_MAX || *datagram.get(FLAGS_AT)? != self.flags {
            return None;
        }
        let (front, tag) = datagram.split_last_chunk::<TAG_BYTES>()?;
        match &self.method {
            Method::Tag(key) => is_tag_of(key, front, tag).then_some(front),
            Method::Encrypt { cipher, clear_bytes } => {
                let (clear, text) = front.split_at_checked(*clear_bytes)?;
                scratch.clear();
                scratch.extend_from_slice(front);
                let plain = scratch.get_mut(*clear_bytes..)?;
                let buffer = InOutBuf::new(text, plain).ok()?;
                cipher.decrypt_inout_detached(&nonce_of(clear), clear, buffer, &Tag::from(*tag)).ok()?;
                Some(scratch)
            }
        }
    }
}

/// Returns the flags of a datagram whose header is complete.
pub(crate) fn flags_of(datagram: &[u8]) -> u8 {
    datagram.get(FLAGS_AT).copied().unwrap_or_default()
}

fn tag_of(key: &[u8; 32], datagram: &[u8]) -> [u8; TAG_BYTES] {
    let hash = blake3::keyed_hash(key, datagram);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Compares in constant time, as `blake3::Hash` does: the time must not say how many bytes of a forged tag are right.
fn is_tag_of(key: &[u8; 32], datagram: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
    let padded = |tag: &[u8; TAG_BYTES]| {
        let mut bytes = [0; 32];
        bytes[..TAG_BYTES].copy_from_slice(tag);
        blake3::Hash::from_bytes(bytes)
    };
    padded(&tag_of(key, datagram)) == padded(tag)
}

fn nonce_of(header: &[u8]) -> Nonce {
    let mut nonce = [0; 12];
    if let Some(packet) = header.get(PACKET) {
        nonce[..6].copy_from_slice(packet);
    }
    Nonce::from(nonce)
}

/// Whether a packet number was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It was not.
    New,
    /// It was.
    Repeated,
    /// It is too old to say.
    Old,
    /// It is so much higher than all others that no sender can have reached it.
    Impossible,
}

/// Which packet numbers of a peer were accepted.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    highest: u64,
    /// What the peer is known to have reached, if that is known. Then no accepted number is more than [`STEP_MAX`] above it, and a
    /// window of twice as many numbers still has room for those that the peer really sends, whatever others with its key send.
    reached: Option<u64>,
    /// A bit for each of the last numbers, at the number modulo the count of bits.
    seen: Box<[u64]>,
}

impl ReplayWindow {
    /// Makes a window that remembers the last `words` × 64 numbers.
    pub(crate) fn new(words: usize) -> Self {
        Self { highest: 0, reached: None, seen: vec![0; words.max(1)].into() }
    }

    /// Makes a window of a peer that has reached this number.
    pub(crate) fn starting_at(words: usize, packet: u64) -> Self {
        Self { highest: packet, reached: Some(packet), ..Self::new(words) }
    }

    fn bits(&self) -> u64 {
        self.seen.len() as u64 * 64
    }

    fn place(&self, packet: u64) -> (usize, u64) {
        let bit = packet % self.bits();
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    pub(crate) fn freshness(&self, packet: u64) -> Freshness {
        let (word, bit) = self.place(packet);
        match packet.checked_sub(self.highest) {
            _ if packet > self.reached.unwrap_or(self.highest) + STEP_MAX => Freshness::Impossible,
            Some(1..) => Freshness::New,
            _ if self.highest - packet >= self.bits() => Freshness::Old,
            _ if self.seen[word] & bit == 0 => Freshness::New,
            _ => Freshness::Repeated,
        }
    }

    /// Records a new number that was accepted.
    pub(crate) fn mark(&mut self, packet: u64) {
        self.advance(packet);
        let (word, bit) = self.place(packet);
        self.seen[word] |= bit;
    }

    /// Takes the proof that the peer has reached this number. If that is far from what was seen,
    /// everything seen is forgotten.
    pub(crate) fn reached(&mut self, packet: u64) {
        self.reached = Some(packet);
        if packet > self.highest {
            self.advance(packet);
        } else if self.highest - packet >= self.bits() {
            self.seen.fill(0);
            self.highest = packet;
        }
    }

    /// Has numbers judged by the highest accepted one from now on.
    pub(crate) fn judge_by_highest(&mut self) {
        self.reached = None;
    }

    fn advance(&mut self, packet: u64) {
        if packet <= self.highest {
            return;
        }
        if packet - self.highest >= self.bits() {
            self.seen.fill(0);
        } else {
            for skipped in self.highest + 1..=packet {
                let (word, bit) = self.place(skipped);
                self.seen[word] &= !bit;
            }
        }
        self.highest = packet;
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{Header, MessageType, begin};
    use super::*;

    fn keys() -> Vec<DatagramKey> {
        vec![
            DatagramKey::of_sender(&[1; 32], false),
            DatagramKey::of_sender(&[1; 32], true),
            DatagramKey::of_sender(&[2; 32], false),
            DatagramKey::of_sender(&[2; 32], true),
            DatagramKey::of_receiver(&[2; 32], true),
            DatagramKey::of_announcements([1; 32], true),
        ]
    }

    fn datagram() -> Vec<u8> {
        let header = Header { message: MessageType::Plan, session: 7, packet: 9, sent_us: 3 };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        bytes.extend_from_slice(b"some fields of a plan");
        bytes
    }

    #[test]
    fn only_the_right_key_opens_and_every_bit_counts() {
        let mut scratch = Vec::new();
        for (number, key) in keys().iter().enumerate() {
            let mut sealed = b"before".to_vec();
            sealed.extend(datagram());
            key.seal(&mut sealed, 6);
            let sealed = &sealed[6..];
            let opened = key.open(sealed, &mut scratch).unwrap();
            assert_eq!((&opened[..2], &opened[3..]), (&datagram()[..2], &datagram()[3..]));
            for (other, key) in keys().iter().enumerate().filter(|(other, _)| *other != number) {
                assert!(key.open(sealed, &mut scratch).is_none(), "key {other} opens what {number} sealed");
            }
            for bit in 0..sealed.len() * 8 {
                let mut changed = sealed.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(key.open(&changed, &mut scratch).is_none(), "bit {bit} does not count");
            }
            for length in 0..sealed.len() {
                assert!(key.open(&sealed[..length], &mut scratch).is_none(), "{length} bytes");
            }
        }
    }

    #[test]
    fn encrypted_datagrams_show_only_the_front() {
        let mut sealed = datagram();
        DatagramKey::of_sender(&[1; 32], true).seal(&mut sealed, 0);
        assert_eq!(&sealed[3..HEADER_BYTES], &datagram()[3..HEADER_BYTES]);
        assert!(!sealed.windows(6).any(|bytes| bytes == b"fields"));
    }

    #[test]
    fn each_number_is_accepted_once() {
        let mut window = ReplayWindow::new(2);
        let mut judge = |packet| {
            let freshness = window.freshness(packet);
            if freshness == Freshness::New {
                window.mark(packet);
            }
            freshness
        };
        use Freshness::{Impossible, New, Old, Repeated};
        assert_eq!([5, 5, 3, 0, 3].map(&mut judge), [New, Repeated, New, New, Repeated]);
        assert_eq!([128, 1, 0, 5, 127, 127].map(&mut judge), [New, New, Old, Repeated, New, Repeated]);
        assert_eq!([130, 129, 2].map(&mut judge), [New, New, Old]);
        let far = 130 + STEP_MAX;
        assert_eq!([far + 1, far, far, 130].map(&mut judge), [Impossible, New, Repeated, Old]);
        assert_eq!([far - 127, far - 128].map(&mut judge), [New, Old]);
    }

    #[test]
    fn the_peer_itself_can_move_the_window() {
        let mut window = ReplayWindow::starting_at(1, 1000);
        assert_eq!(window.freshness(1000), Freshness::New);
        assert_eq!(window.freshness(999), Freshness::New, "it was sent shortly before");
        window.mark(1003);
        window.reached(1002);
        assert_eq!(window.freshness(1003), Freshness::Repeated);
        window.reached(1010);
        assert_eq!(window.freshness(1003), Freshness::Repeated);
        assert_eq!(window.freshness(1010), Freshness::New);
        window.reached(STEP_MAX * 9);
        assert_eq!(window.freshness(STEP_MAX * 9 + 1), Freshness::New);
        window.reached(2000);
        assert_eq!(window.freshness(2001), Freshness::New);
    }

    #[test]
    fn whoever_has_the_key_cannot_outdate_the_peer() {
        let mut window = ReplayWindow::starting_at(2 * STEP_MAX as usize / 64, 1000);
        for step in 1..=3 {
            let forged = 1000 + STEP_MAX * step;
            let expected = if step == 1 { Freshness::New } else { Freshness::Impossible };
            assert_eq!(window.freshness(forged), expected, "step {step}");
            if expected == Freshness::New {
                window.mark(forged);
            }
        }
        assert_eq!(window.freshness(1001), Freshness::New);
        window.mark(1001);
        assert_eq!(window.freshness(1001), Freshness::Repeated);
        window.reached(5000);
        assert_eq!(window.freshness(5000 + STEP_MAX), Freshness::New);
        assert_eq!(window.freshness(5001), Freshness::New);
        assert_eq!(window.freshness(1001), Freshness::Repeated);
    }
}
