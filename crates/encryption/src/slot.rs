//! One key slot: the master key, encrypted with a key that Argon2id derives from a secret. `docs/formats/keys.md` has the format.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use platter_image::{Domain, Error, Result};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::master_key::{MasterKey, fill};
use crate::secret::{Secret, SecretKind};

const SALT_LENGTH: usize = 16;
const NONCE_LENGTH: usize = 24;
/// Bytes of a wrapped master key: the key and a tag.
const WRAPPED_LENGTH: usize = 48;
const CHECKSUM_LENGTH: usize = 8;
/// The most characters of a label.
const LABEL_LENGTH_MAX: usize = 64;
/// Limits of stored costs: a key file may come from a stranger.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 16;

/// What guessing a secret costs: the parameters of Argon2id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Cost {
    /// The lowest: for secrets that cannot be guessed.
    pub const RANDOM: Self = Self { memory_kib: 8, passes: 1, lanes: 1 };
    /// The cost for secrets of people: RFC 9106, section 4, second recommended option, with one lane.
    pub const USUAL: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 1 };

    /// How much memory is written when a secret is tried, in KiB: a measure of the time.
    pub(crate) fn work_kib(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    fn is_valid(self) -> bool {
        (1..=LANES_MAX).contains(&self.lanes)
            && (1..=PASSES_MAX).contains(&self.passes)
            && (8 * self.lanes..=MEMORY_KIB_MAX).contains(&self.memory_kib)
    }
}

/// What a person may know about a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotFacts {
    /// Its number.
    pub number: u32,
    /// Where its secret comes from.
    pub kind: SecretKind,
    /// What its creator called it.
    pub label: String,
    /// What guessing its secret costs.
    pub argon2id: Cost,
}

/// A slot as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) kind: SecretKind,
    pub(crate) label: String,
    pub(crate) argon2id: Cost,
    salt: String,
    nonce: String,
    wrapped: String,
    /// Start of a hash of everything else, so that damage is found without the secret. Absent in files of earlier Platters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl Slot {
    /// Wraps a master key.
    pub(crate) fn wrap(
        master: &MasterKey,
        number: u32,
        label: &str,
        secret: &Secret,
        cost: Cost,
    ) -> Result<Self> {
        let (mut salt, mut nonce) = ([0; SALT_LENGTH], [0; NONCE_LENGTH]);
        fill(&mut salt)?;
        fill(&mut nonce)?;
        let mut slot = Self {
            number,
            kind: secret.kind,
            label: label.to_owned(),
            argon2id: cost,
            salt: to_hex(&salt),
            nonce: to_hex(&nonce),
            wrapped: to_hex(&[0; WRAPPED_LENGTH]),
            checksum: None,
        };
        if !slot.is_valid() {
            return Err(Error::refused(format!(
                "label {label:?}: at most {LABEL_LENGTH_MAX} characters, none of them a control character"
            )));
        }
        let key = derive(secret, &salt, cost)?;
        let cipher = XChaCha20Poly1305::new((&*key).into());
        let aad = slot.binding(master.domain());
        let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: master.bytes(), aad: &aad });
        slot.wrapped = to_hex(&sealed.map_err(|_| Error::bug("a master key cannot be wrapped"))?);
        slot.checksum = Some(slot.sum(master.domain()));
        Ok(slot)
    }

    /// Whether the slot has a checksum that contradicts it.
    pub(crate) fn is_damaged(&self, domain: Domain) -> bool {
        self.checksum.as_ref().is_some_and(|checksum| *checksum != self.sum(domain))
    }

    fn sum(&self, domain: Domain) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.binding(domain));
        hasher.update(format!("{}\n{}\n", self.nonce, self.wrapped).as_bytes());
        to_hex(&hasher.finalize().as_bytes()[..CHECKSUM_LENGTH])
    }

    /// The master key, if `secret` is the slot's.
    ///
    /// # Errors
    /// `Corrupt` when the slot is invalid; `Bug` when Argon2id fails.
    pub(crate) fn unwrap(&self, domain: Domain, secret: &Secret) -> Result<Option<MasterKey>> {
        let damaged = || Error::corrupt(format!("key slot {}: invalid", self.number));
        let salt = from_hex::<SALT_LENGTH>(&self.salt).ok_or_else(damaged)?;
        let nonce = from_hex::<NONCE_LENGTH>(&self.nonce).ok_or_else(damaged)?;
        let wrapped = from_hex::<WRAPPED_LENGTH>(&self.wrapped).ok_or_else(damaged)?;
        let key = derive(secret, &salt, self.argon2id)?;
        let cipher = XChaCha20Poly1305::new((&*key).into());
        let payload = Payload { msg: &wrapped, aad: &self.binding(domain) };
        let Ok(opened) = cipher.decrypt(&XNonce::from(nonce), payload) else { return Ok(None) };
        let opened = Zeroizing::new(opened);
        let master = MasterKey::from_bytes(&opened).filter(|master| master.domain() == domain);
        master.map(Some).ok_or_else(|| {
            Error::corrupt(format!("key slot {}: its key belongs to another store", self.number))
        })
    }

    /// Whether a secret of that kind may be the slot's. Passphrases and the output of commands are interchangeable.
    pub(crate) fn accepts(&self, kind: SecretKind) -> bool {
        (self.kind == SecretKind::File) == (kind == SecretKind::File)
    }

    pub(crate) fn is_valid(&self) -> bool {
        let label = self.label.chars().count() <= LABEL_LENGTH_MAX && !self.label.contains(char::is_control);
        let fields = from_hex::<SALT_LENGTH>(&self.salt).is_some()
            && from_hex::<NONCE_LENGTH>(&self.nonce).is_some()
            && from_hex::<WRAPPED_LENGTH>(&self.wrapped).is_some();
        self.number > 0 && label && fields && self.argon2id.is_valid()
    }

    pub(crate) fn facts(&self) -> SlotFacts {
        let (kind, label, argon2id) = (self.kind, self.label.clone(), self.argon2id);
        SlotFacts { number: self.number, kind, label, argon2id }
    }

    /// What is authenticated with the master key: everything else in the slot.
    fn binding(&self, domain: Domain) -> Vec<u8> {
        let Cost { memory_kib, passes, lanes } = self.argon2id;
        format!(
            "platter key slot 1\n{domain}\n{}\n{}\n{}\n{memory_kib} {passes} {lanes}\n{}\n",
            self.number,
            self.kind.word(),
            self.label,
            self.salt
        )
        .into_bytes()
    }
}

fn derive(secret: &Secret, salt: &[u8], cost: Cost) -> Result<Zeroizing<[u8; 32]>> {
    let failed = |error| Error::bug(format!("Argon2id failed: {error}"));
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(failed)?;
    let mut key = Zeroizing::new([0; 32]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(&secret.bytes, salt, &mut *key).map_err(failed)?;
    Ok(key)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses exactly `BYTES` bytes in lower-case hexadecimal.
fn from_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let (digits, mut bytes) = (text.as_bytes(), [0; BYTES]);
    if digits.len() != 2 * BYTES {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}
