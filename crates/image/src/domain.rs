//! Identity domains: how blocks are named and whether they are encrypted (design: encryption).
//!
//! A domain without a key is the plain one. Every other domain has a random master key, from which one key for the ids of
//! data, one for the ids of pages, and one for frames are derived. This file alone holds such keys, names blocks
//! with them, and encrypts and decrypts payloads of frames.
//!
//! The keys of a process are in one list, because frames are decoded in many places, and the header of each says which
//! key it needs. A key in the list gives no permission that its process does not have: whoever holds it has the
//! secret. Nothing here reads files or asks the system for randomness; whoever adds a key brings a random seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::cipher::{Cipher, NONCE_LENGTH, TAG_LENGTH};
use crate::{BlockId, Error, Kind, Result};

/// Bytes of a master key.
pub const MASTER_KEY_LENGTH: usize = 32;
/// Bytes of the keys that [`DomainKeys::export`] returns.
pub const EXPORTED_KEYS_LENGTH: usize = 4 * 32;
/// Bytes by which encryption makes a payload longer: nonce and tag.
pub(crate) const SEAL_LENGTH: usize = NONCE_LENGTH + TAG_LENGTH;
/// The most keys that one process holds.
const KEYS_MAX: usize = 64;

/// The keys of this process.
static KEYRING: RwLock<Vec<Arc<DomainKeys>>> = RwLock::new(Vec::new());

/// The identity domain: ids are valid, and data is deduplicated, only within one domain. All zeros is the
/// domain of stores that are not encrypted; any other value is derived from the master key of an encrypted store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(pub [u8; 16]);

impl Domain {
    /// The domain of stores that are not encrypted: the ids are plain hashes.
    pub const SHARED: Self = Self([0; 16]);

    /// The domain of a master key.
    pub fn of(master: &[u8; MASTER_KEY_LENGTH]) -> Self {
        let mut domain = Self::SHARED;
        let digest = blake3::derive_key("platter 2026-11-25 identity domain", master);
        domain.0.copy_from_slice(&digest[..16]);
        domain
    }

    /// Parses 32 lower-case hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || digits.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let mut domain = Self::SHARED;
        for (byte, pair) in domain.0.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        Some(domain)
    }

    /// Whether blocks and pages of this domain are encrypted, and their ids keyed.
    pub fn is_encrypted(self) -> bool {
        self != Self::SHARED
    }

    /// Refuses what needs the key of the domain, if this process does not have it.
    ///
    /// # Errors
    /// `Refused`.
    pub fn check_open(self) -> Result<()> {
        if self.is_encrypted() {
            self.keys()?;
        }
        Ok(())
    }

    /// Whether this process can read and write the domain.
    pub fn is_open(self) -> bool {
        self.check_open().is_ok()
    }

    /// The id of `contents` in this domain. Keyed are the ids of data and pages; records, boot sets and changes contain no
    /// data of disks.
    ///
    /// # Errors
    /// `Refused` when this process lacks the key.
    pub fn id_of(self, kind: Kind, contents: &[u8]) -> Result<BlockId> {
        if !self.encrypts(kind) {
            return Ok(BlockId::of(kind, contents));
        }
        Ok(self.keys()?.id_of(kind, contents))
    }

    /// Whether frames of that kind are encrypted in this domain.
    pub(crate) fn encrypts(self, kind: Kind) -> bool {
        self.is_encrypted() && matches!(kind, Kind::Data | Kind::Page)
    }

    /// The keys of the domain.
    ///
    /// # Errors
    /// `Refused` when this process lacks them.
    pub fn keys(self) -> Result<Arc<DomainKeys>> {
        let ring = KEYRING.read();
        ring.iter().find(|keys| keys.domain == self).map(Arc::clone).ok_or_else(|| {
            Error::refused(format!(
                "the store is encrypted: name its secret with --unlock-file or --unlock-command (the key of domain {self})"
            ))
        })
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The keys of an encrypted domain.
#[derive(ZeroizeOnDrop)]
pub struct DomainKeys {
    #[zeroize(skip)]
    domain: Domain,
    data_id: [u8; 32],
    page_id: [u8; 32],
    overlays: [u8; 32],
    frame: [u8; 32],
    /// The frame key of XAES-256-GCM. `frame` is that of XChaCha20-Poly1305.
    frame_aes: [u8; 32],
    nonce: [u8; 32],
    #[zeroize(skip)]
    sealed: AtomicU64,
}

impl DomainKeys {
    /// Derives the keys of a master key. `seed` is random and new: nonces are derived from it.
    pub fn derive(master: &[u8; MASTER_KEY_LENGTH], seed: &[u8; 32]) -> Self {
        let contexts = [
            "platter 2026-11-25 block id key",
            "platter 2026-11-25 page id key",
            "platter 2026-11-25 frame key",
            "platter 2026-11-26 overlay key",
        ];
        let keys = contexts.map(|context| Zeroizing::new(blake3::derive_key(context, master)));
        Self::of(Domain::of(master), keys.each_ref().map(|key| &**key), seed)
    }

    /// The keys that [`DomainKeys::export`] returned in another process. `seed` as in [`DomainKeys::derive`].
    pub fn import(domain: Domain, exported: &[u8; EXPORTED_KEYS_LENGTH], seed: &[u8; 32]) -> Self {
        let (keys, _) = exported.as_chunks::<32>();
        Self::of(domain, std::array::from_fn(|at| &keys[at]), seed)
    }

    /// The keys for a process that may read and write the domain, but does not have its master key. Other keys than these are noticed when a
    /// block is read, because no block has the id that they give it; a wrong key of overlays is not.
    pub fn export(&self) -> Zeroizing<[u8; EXPORTED_KEYS_LENGTH]> {
        let mut exported = Zeroizing::new([0; EXPORTED_KEYS_LENGTH]);
        let keys = [&self.data_id, &self.page_id, &self.frame, &self.overlays];
        for (to, key) in exported.chunks_exact_mut(32).zip(keys) {
            to.copy_from_slice(key);
        }
        exported
    }

    fn of(domain: Domain, [data_id, page_id, frame, overlays]: [&[u8; 32]; 4], seed: &[u8; 32]) -> Self {
        Self {
            domain,
            data_id: *data_id,
            page_id: *page_id,
            overlays: *overlays,
            frame: *frame,
            frame_aes: *Zeroizing::new(blake3::derive_key(
                "platter 2026-11-26 frame key of XAES-256-GCM",
                frame,
            )),
            nonce: *Zeroizing::new(blake3::derive_key("platter 2026-11-25 nonces of a process", seed)),
            sealed: AtomicU64::new(0),
        }
    }

    /// What the join keys of casts on demand are derived from.
    pub fn of_casts(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("platter 2026-11-26 casts on demand", &self.frame))
    }

    /// The domain that they belong to.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The two keys of AES-256-XTS for the overlay with this random id.
    pub fn of_overlay(&self, id: &[u8; 16]) -> Zeroizing<[u8; 64]> {
        let mut keys = Zeroizing::new([0; 64]);
        blake3::Hasher::new_keyed(&self.overlays).update(id).finalize_xof().fill(&mut *keys);
        keys
    }

    /// Adds them to the keys of this process, for as long as it runs.
    ///
    /// # Errors
    /// `Refused` when it has too many keys, or other ones of this domain.
    pub fn add_to_process(self) -> Result<()> {
        let mut ring = KEYRING.write();
        if let Some(keys) = ring.iter().find(|keys| keys.domain == self.domain) {
            return match keys.export() == self.export() {
                true => Ok(()),
                false => Err(Error::refused(format!(
                    "this process has other keys of domain {}: whoever sent these is not the store's origin",
                    self.domain
                ))),
            };
        }
        if ring.len() == KEYS_MAX {
            return Err(Error::refused(format!("this process already has {KEYS_MAX} keys of stores")));
        }
        ring.push(Arc::new(self));
        Ok(())
    }

    fn id_of(&self, kind: Kind, contents: &[u8]) -> BlockId {
        let key = if kind == Kind::Page { &self.page_id } else { &self.data_id };
        BlockId(*blake3::keyed_hash(key, contents).as_bytes())
    }

    /// Replaces `sealed` by the encrypted payload: nonce, ciphertext and tag. `binding` is authenticated with it.
    ///
    /// The nonce is derived from the random seed of the process, a counter, and the ids and lengths in `about`. So two
    /// payloads of one process never share a nonce, nor do those of two processes that a snapshot of a virtual
    /// machine gave the same seed, unless they have the same blocks.
    pub(crate) fn seal(
        &self,
        cipher: Cipher,
        binding: &[u8],
        about: &[u8],
        payload: &[u8],
        sealed: &mut Vec<u8>,
    ) -> Result<()> {
        let mut nonce = [0; NONCE_LENGTH];
        let mut hasher = blake3::Hasher::new_keyed(&self.nonce);
        hasher.update(&self.sealed.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        hasher.update(binding).update(about).update(&xxh3(payload).to_le_bytes());
        hasher.finalize_xof().fill(&mut nonce);
        sealed.clear();
        sealed.reserve(payload.len() + SEAL_LENGTH);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(payload);
        let tag = cipher
            .seal(self.frame_key(cipher), &nonce, binding, &mut sealed[NONCE_LENGTH..])
            .map_err(|_| Error::bug("a frame cannot be encrypted"))?;
        sealed.extend_from_slice(&tag);
        Ok(())
    }

    /// Replaces `payload` by the decrypted contents of `sealed`.
    ///
    /// # Errors
    /// `Corrupt` when it was not encrypted with this key and `binding`; `payload` is then unspecified.
    pub(crate) fn open(
        &self,
        cipher: Cipher,
        binding: &[u8],
        sealed: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<()> {
        let short = || Error::corrupt("frame: shorter than nonce and tag");
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LENGTH>().ok_or_else(short)?;
        let (text, tag) = rest.split_last_chunk::<TAG_LENGTH>().ok_or_else(short)?;
        payload.clear();
        payload.extend_from_slice(text);
        cipher.open(self.frame_key(cipher), nonce, binding, tag, payload).map_err(|_| {
            Error::corrupt("frame: it was not encrypted with the key of this store, or was changed")
        })
    }

    /// No key is used with two ciphers.
    fn frame_key(&self, cipher: Cipher) -> &[u8; 32] {
        if cipher == Cipher::XAes256Gcm { &self.frame_aes } else { &self.frame }
    }
}

impl std::fmt::Debug for DomainKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys of domain {}", self.domain)
    }
}

fn xxh3(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const CIPHERS: [Cipher; 2] = [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm];

    fn seal(keys: &DomainKeys, cipher: Cipher) -> Vec<u8> {
        let mut sealed = vec![1; 100];
        keys.seal(cipher, b"header", b"ids", b"contents", &mut sealed).unwrap();
        sealed
    }

    /// Golden vectors: what is derived from a master key is frozen.
    #[test]
    fn derived_keys_are_frozen() {
        let keys = DomainKeys::derive(&[7; 32], &[1; 32]);
        assert_eq!(keys.domain().to_string(), include_str!("../golden/domain.hex").trim());
        let ids = [Kind::Data, Kind::Page].map(|kind| keys.id_of(kind, b"platter").to_string());
        assert_eq!(ids.join("\n"), include_str!("../golden/keyed-ids.hex").trim());
        assert_ne!(ids[0], BlockId::of(Kind::Data, b"platter").to_string());
        let there = DomainKeys::import(keys.domain(), &keys.export(), &[2; 32]);
        assert_eq!(there.export(), keys.export());
        for cipher in CIPHERS {
            let mut opened = Vec::new();
            there.open(cipher, b"header", &seal(&keys, cipher), &mut opened).unwrap();
            assert_eq!(opened, b"contents");
        }
        let overlay = BlockId::of(Kind::Data, &*keys.of_overlay(&[2; 16])).to_string();
        assert_eq!(overlay, include_str!("../golden/overlay-key.hex").trim());
    }

    #[test]
    fn a_payload_is_opened_only_with_its_key_and_binding() {
        let (keys, other) = (DomainKeys::derive(&[7; 32], &[1; 32]), DomainKeys::derive(&[8; 32], &[1; 32]));
        for (cipher, another) in [(CIPHERS[0], CIPHERS[1]), (CIPHERS[1], CIPHERS[0])] {
            let sealed = seal(&keys, cipher);
            assert_ne!(sealed, seal(&keys, cipher), "nonces are new each time");
            let mut opened = Vec::new();
            keys.open(cipher, b"header", &sealed, &mut opened).unwrap();
            assert_eq!(opened, b"contents");
            let refused = |keys: &DomainKeys, cipher, binding: &[u8], sealed: &[u8]| {
                let opened = keys.open(cipher, binding, sealed, &mut Vec::new());
                opened.unwrap_err().kind() == ErrorKind::Corrupt
            };
            assert!(
                refused(&other, cipher, b"header", &sealed) && refused(&keys, cipher, b"Header", &sealed)
            );
            assert!(refused(&keys, another, b"header", &sealed));
            for at in 0..sealed.len() {
                let mut bad = sealed.clone();
                bad[at] ^= 1;
                assert!(refused(&keys, cipher, b"header", &bad), "byte {at}");
                assert!(refused(&keys, cipher, b"header", &sealed[..at]), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_process_without_the_key_says_so() {
        let domain = Domain::of(&[33; 32]);
        assert!(domain.is_encrypted() && !domain.is_open());
        let error = domain.id_of(Kind::Data, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(&domain.to_string()));
        assert_eq!(domain.id_of(Kind::Version, b"x").unwrap(), BlockId::of(Kind::Version, b"x"));
        for seed in 1..=2 {
            DomainKeys::derive(&[33; 32], &[seed; 32]).add_to_process().unwrap();
        }
        let mut wrong = DomainKeys::derive(&[33; 32], &[1; 32]);
        wrong.overlays = [0; 32];
        assert_eq!(wrong.add_to_process().unwrap_err().kind(), ErrorKind::Refused);
        assert!(domain.is_open());
        assert_eq!(Domain::from_hex(&domain.to_string()), Some(domain));
        assert_eq!(Domain::from_hex("0"), None);
        assert_eq!(Domain::from_hex(&domain.to_string().to_uppercase()), None, "one text for each domain");
    }
}
