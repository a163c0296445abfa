//! The key file of a store: key slots, each with the same master key. Encoded and decoded only here; `docs/formats/keys.md` has
//! the format.

use platter_image::{Domain, Error, Result};
use serde::{Deserialize, Serialize};

use crate::master_key::MasterKey;
use crate::secret::Secret;
use crate::slot::{Cost, Slot, SlotFacts};

/// The most bytes of a key file.
pub const KEY_FILE_LENGTH_MAX: u64 = 64 << 10;
/// The most slots.
pub const SLOTS_MAX: usize = 16;
const FORMAT_VERSION: u32 = 1;
/// The most work of all slots together: a secret that opens none is tried with each.
const WORK_KIB_MAX: u64 = 4 << 20;
/// With more work than this, trying a secret may take seconds.
const WORK_KIB_SLOW: u64 = 1 << 20;

/// The key slots of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    domain: Domain,
    /// The highest number of a slot so far.
    last_number: u32,
    slots: Vec<Slot>,
}

/// A key file as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    platter_keys: u32,
    domain: String,
    /// The highest number of a slot so far. Files written before it existed lack it.
    #[serde(default)]
    last_number: u32,
    slots: Vec<Slot>,
}

impl KeyFile {
    /// A key file without slots, for a new store.
    pub fn new(master: &MasterKey) -> Self {
        Self { domain: master.domain(), last_number: 0, slots: Vec::new() }
    }

    /// The identity domain of the store.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The slots, by number.
    pub fn slots(&self) -> Vec<SlotFacts> {
        self.slots.iter().map(Slot::facts).collect()
    }

    /// The slots that contradict their checksums: their secrets do not open the store any more.
    pub fn damaged_slots(&self) -> Vec<SlotFacts> {
        self.slots.iter().filter(|slot| slot.is_damaged(self.domain)).map(Slot::facts).collect()
    }

    /// Whether trying a secret may take many seconds.
    pub fn is_slow(&self) -> bool {
        work_kib(&self.slots) > WORK_KIB_SLOW
    }

    /// Adds a slot, and returns its number, which no slot had before: in no older copy of the file does it mean another secret.
    ///
    /// # Errors
    /// `Refused` when there are too many slots, the label is invalid, or the key is another store's.
    pub fn add(&mut self, master: &MasterKey, label: &str, secret: &Secret, cost: Cost) -> Result<u32> {
        if self.slots.len() >= SLOTS_MAX {
            return Err(Error::refused(format!("the store has {SLOTS_MAX} key slots already: remove one")));
        }
        if master.domain() != self.domain {
            return Err(Error::refused("the key belongs to another store"));
        }
        self.check_work(None, cost)?;
        let number = self.last_number.checked_add(1);
        let number = number.ok_or_else(|| Error::refused("the numbers of key slots are used up"))?;
        self.slots.push(Slot::wrap(master, number, label, secret, cost)?);
        self.last_number = number;
        Ok(number)
    }

    /// Removes a slot: its secret no longer opens the store.
    ///
    /// # Errors
    /// `Missing` when there is no such slot; `Refused` when it is the last one.
    pub fn remove(&mut self, number: u32) -> Result<()> {
        if self.slots.iter().all(|slot| slot.number != number) {
            return Err(Error::missing(format!("there is no key slot {number}")));
        }
        if self.slots.len() == 1 {
            return Err(Error::refused(
                "this is the only key slot: without it nobody could read the store. Add another one first",
            ));
        }
        self.slots.retain(|slot| slot.number != number);
        Ok(())
    }

    /// Replaces the secret of a slot. It keeps its number and label.
    ///
    /// # Errors
    /// As [`KeyFile::add`] and [`KeyFile::remove`].
    pub fn change(&mut self, master: &MasterKey, number: u32, secret: &Secret, cost: Cost) -> Result<()> {
        let missing = || Error::missing(format!("there is no key slot {number}"));
        if master.domain() != self.domain {
            return Err(Error::refused("the key belongs to another store"));
        }
        let place = self.slots.iter().position(|slot| slot.number == number).ok_or_else(missing)?;
        self.check_work(Some(number), cost)?;
        let slot = &mut self.slots[place];
        *slot = Slot::wrap(master, number, &slot.label, secret, cost)?;
        Ok(())
    }

    /// Refuses a slot with which the file could not be read any more. It is new, or replaces the one with that number.
    fn check_work(&self, replaced: Option<u32>, cost: Cost) -> Result<()> {
        let kept = self.slots.iter().filter(|slot| Some(slot.number) != replaced);
        match work_kib(kept).saturating_add(cost.work_kib()) > WORK_KIB_MAX {
            true => Err(Error::refused("the key slots would cost too much time: remove a costly one")),
            false => Ok(()),
        }
    }

    /// The master key, and the number of the slot that a secret opens.
    ///
    /// # Errors
    /// `Refused` when it opens none; `Corrupt` when a slot is invalid.
    pub fn unlock(&self, secret: &Secret) -> Result<(MasterKey, u32)> {
        let kind = secret.kind();
        for slot in self.slots.iter().filter(|slot| slot.accepts(kind)) {
            if let Some(master) = slot.unwrap(self.domain, secret)? {
                return Ok((master, slot.number));
            }
        }
        let what = match kind {
            crate::SecretKind::Passphrase => "the passphrase",
            crate::SecretKind::File => "the key file",
            crate::SecretKind::Command => "the output of the command",
        };
        Err(Error::refused(format!(
            "{what} opens none of the {} key slots of this store: it is wrong, or the slot was removed or changed",
            self.slots.len()
        )))
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// `Bug` when they cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let (platter_keys, domain) = (FORMAT_VERSION, self.domain.to_string());
        let (last_number, slots) = (self.last_number, self.slots.clone());
        let stored = Stored { platter_keys, domain, last_number, slots };
        let mut bytes = serde_json::to_vec_pretty(&stored)
            .map_err(|error| Error::bug("cannot serialize the key file").with_source(error))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Decodes a file. No secret is needed, and no slot is proven.
    ///
    /// # Errors
    /// `Corrupt` when it is not a key file; `Refused` when a newer Platter wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("key file: {what}"));
        if bytes.len() as u64 > KEY_FILE_LENGTH_MAX {
            return Err(corrupt("too long"));
        }
        let is_newer = |version: u32| version > FORMAT_VERSION;
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| match version_of(bytes) {
            Some(version) if is_newer(version) => newer(version),
            _ => corrupt("invalid").with_source(error),
        })?;
        if is_newer(stored.platter_keys) {
            return Err(newer(stored.platter_keys));
        }
        let domain = Domain::from_hex(&stored.domain).filter(|domain| domain.is_encrypted());
        let domain = domain.ok_or_else(|| corrupt("invalid domain"))?;
        let ascend = stored.slots.windows(2).all(|pair| pair[0].number < pair[1].number);
        let is_valid = stored.slots.len() <= SLOTS_MAX && stored.slots.iter().all(Slot::is_valid);
        if work_kib(&stored.slots) > WORK_KIB_MAX {
            return Err(corrupt("its slots would cost too much time"));
        }
        if !ascend || !is_valid || stored.slots.is_empty() || stored.platter_keys != FORMAT_VERSION {
            return Err(corrupt("invalid slots"));
        }
        let last_number = stored.slots.iter().map(|slot| slot.number).fold(stored.last_number, u32::max);
        Ok(Self { domain, last_number, slots: stored.slots })
    }
}

fn work_kib<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> u64 {
    slots.into_iter().map(|slot| slot.argon2id.work_kib()).fold(0, u64::saturating_add)
}

/// The version that a key file of any version states.
fn version_of(bytes: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Any {
        platter_keys: u32,
    }
    serde_json::from_slice::<Any>(bytes).ok().map(|any| any.platter_keys)
}

fn newer(version: u32) -> Error {
    Error::refused(format!(
        "key file: format {version}, but this Platter supports format {FORMAT_VERSION}: use a newer Platter"
    ))
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;
    use zeroize::Zeroizing;

    use super::*;
    use crate::{SecretKind, new_key_file_text};

    const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

    fn secret(kind: SecretKind, text: &str) -> Secret {
        Secret::new(kind, Zeroizing::new(text.as_bytes().to_vec())).unwrap()
    }

    fn passphrase(text: &str) -> Secret {
        secret(SecretKind::Passphrase, text)
    }

    #[test]
    fn several_secrets_open_one_store() {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        let text = new_key_file_text().unwrap();
        let file = secret(SecretKind::File, &text);
        assert_eq!(keys.add(&master, "me", &passphrase("correct horse"), CHEAP).unwrap(), 1);
        assert_eq!(keys.add(&master, "server", &file, CHEAP).unwrap(), 2);
        assert_eq!(keys.add(&master, "", &secret(SecretKind::Command, "printed\n"), CHEAP).unwrap(), 3);
        let read = KeyFile::decode(&keys.encode().unwrap()).unwrap();
        assert_eq!(read, keys);
        let opens = |secret: &Secret| {
            let (found, number) = read.unlock(secret).unwrap();
            assert_eq!(found.bytes(), master.bytes());
            number
        };
        assert_eq!(
            [opens(&passphrase("correct horse")), opens(&file), opens(&passphrase("printed"))],
            [1, 2, 3]
        );
        for wrong in [passphrase("wrong"), passphrase(text.trim()), secret(SecretKind::File, "printed")] {
            assert_eq!(read.unlock(&wrong).unwrap_err().kind(), ErrorKind::Refused);
        }
    }

    #[test]
    fn the_number_of_a_removed_slot_is_not_used_again() {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        keys.add(&master, "", &passphrase("one"), CHEAP).unwrap();
        for number in 2..5 {
            assert_eq!(keys.add(&master, "", &passphrase("two"), CHEAP).unwrap(), number);
            keys.remove(number).unwrap();
            keys = KeyFile::decode(&keys.encode().unwrap()).unwrap();
        }
        // A file without the highest number is read.
        let text = String::from_utf8(keys.encode().unwrap()).unwrap();
        let mut old = KeyFile::decode(text.replace("  \"last_number\": 4,\n", "").as_bytes()).unwrap();
        assert_eq!(old.add(&master, "", &passphrase("two"), CHEAP).unwrap(), 2);
        keys.last_number = u32::MAX;
        assert_eq!(keys.add(&master, "", &passphrase("two"), CHEAP).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn only_secrets_that_cannot_be_guessed_are_cheap() {
        let text = new_key_file_text().unwrap();
        let made = text.trim_end();
        assert_eq!(secret(SecretKind::File, &text).cost(), Cost::RANDOM);
        assert_eq!(secret(SecretKind::Command, made).cost(), Cost::RANDOM);
        let mark = made.len() - 64;
        for other in
            [&made[mark..], &made[1..], &made[..made.len() - 1], &format!("{made}0"), "correct horse"]
        {
            assert_eq!(secret(SecretKind::File, other).cost(), Cost::USUAL, "{other}");
        }
        assert_eq!(secret(SecretKind::File, &text.to_uppercase()).cost(), Cost::USUAL);
    }

    #[test]
    fn slots_are_changed_and_removed_but_never_the_last() {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        keys.add(&master, "a", &passphrase("one"), CHEAP).unwrap();
        assert_eq!(keys.remove(1).unwrap_err().kind(), ErrorKind::Refused);
        keys.add(&master, "b", &passphrase("two"), CHEAP).unwrap();
        keys.change(&master, 1, &passphrase("three"), CHEAP).unwrap();
        assert!(keys.unlock(&passphrase("one")).is_err() && keys.unlock(&passphrase("three")).is_ok());
        assert_eq!(keys.slots()[0].label, "a");
        keys.remove(1).unwrap();
        assert!(keys.unlock(&passphrase("three")).is_err() && keys.unlock(&passphrase("two")).is_ok());
        assert_eq!(keys.remove(1).unwrap_err().kind(), ErrorKind::Missing);
        let other = MasterKey::random().unwrap();
        assert_eq!(keys.add(&other, "", &passphrase("x"), CHEAP).unwrap_err().kind(), ErrorKind::Refused);
        for _ in 1..SLOTS_MAX {
            keys.add(&master, "", &passphrase("more"), CHEAP).unwrap();
        }
        assert_eq!(keys.add(&master, "", &passphrase("x"), CHEAP).unwrap_err().kind(), ErrorKind::Refused);
        assert!(keys.encode().unwrap().len() as u64 <= KEY_FILE_LENGTH_MAX);
    }

    /// No changed byte of a key file opens anything but the same key: the file is refused, or the slot does not open. Either way,
    /// the damage is found without the secret.
    #[test]
    fn a_changed_key_file_opens_nothing_else() {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        keys.add(&master, "label", &passphrase("one"), CHEAP).unwrap();
        let good = keys.encode().unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let context = || format!("byte {at}: {:?}", String::from_utf8_lossy(&bad));
            let read = KeyFile::decode(&bad);
            // White space between fields has no meaning.
            let is_found = read.as_ref().is_ok_and(|read| *read == keys || !read.damaged_slots().is_empty());
            assert!(is_found || read.is_err(), "{}", context());
            let opened = read.and_then(|read| read.unlock(&passphrase("one")));
            assert!(
                opened.is_err() || opened.is_ok_and(|(key, _)| key.bytes() == master.bytes()),
                "{}",
                context()
            );
            assert!(KeyFile::decode(&good[..at.min(good.len() - 2)]).is_err());
        }
    }

    #[test]
    fn the_sample_of_version_1_is_read() {
        let read = KeyFile::decode(include_bytes!("../golden/keys-v1.json")).unwrap();
        let (master, number) = read.unlock(&passphrase("platter")).unwrap();
        assert_eq!((master.bytes(), number), (&[7; 32][..], 1));
        assert!(read.damaged_slots().is_empty(), "it has no checksum");
        let newer = br#"{"platter_keys":2,"slots":{}}"#;
        assert_eq!(KeyFile::decode(newer).unwrap_err().kind(), ErrorKind::Refused);
        let costly =
            String::from_utf8(read.encode().unwrap()).unwrap().replace("\"passes\": 1", "\"passes\": 65");
        assert_eq!(KeyFile::decode(costly.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_time_of_all_slots_has_a_limit() {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        keys.add(&master, "", &passphrase("one"), CHEAP).unwrap();
        // The greatest cost that one slot may have alone.
        let costly = Cost { memory_kib: 1 << 20, passes: 4, lanes: 1 };
        keys.slots[0].argon2id = costly;
        assert!(KeyFile::decode(&keys.encode().unwrap()).unwrap().is_slow());
        assert_eq!(
            keys.add(&master, "", &passphrase("x"), CHEAP).unwrap_err().kind(),
            ErrorKind::Refused,
            "the file could not be read again"
        );
        let mut two = KeyFile::new(&master);
        for _ in 0..2 {
            two.add(&master, "", &passphrase("one"), CHEAP).unwrap();
        }
        let before = two.clone();
        let refused = two.change(&master, 2, &passphrase("two"), costly).unwrap_err();
        assert_eq!((refused.kind(), two), (ErrorKind::Refused, before));
        // The slot that is replaced does not count.
        keys.change(&master, 1, &passphrase("two"), CHEAP).unwrap();
        keys.slots[0].argon2id = costly;
        let mut second = keys.slots[0].clone();
        second.number = 2;
        keys.slots.push(second);
        assert_eq!(KeyFile::decode(&keys.encode().unwrap()).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn secrets_have_limits() {
        let new = |bytes: Vec<u8>| Secret::new(SecretKind::File, Zeroizing::new(bytes));
        assert!(new(b"\r\n".to_vec()).is_err() && new(vec![1; (64 << 10) + 1]).is_err());
        assert_eq!(new(b"a\r\n".to_vec()).unwrap().bytes[..], *b"a");
    }
}
