//! Sets of pins: their names and the byte layout of their files (`docs/formats/cache.md`). In memory, only the first 8 bytes of
//! each id are kept. If two ids begin alike, both are pinned: that may keep one too many but never drops a pinned one. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use platter_image::{BlockId, Error, Result};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 4] = *b"PLpn";
const FORMAT_VERSION: u16 = 1;
const HEADER_LENGTH: usize = 16;
const CHECKSUM_LENGTH: usize = 8;
/// Maximum number of ids in a set.
pub(super) const PINS_MAX: usize = 1 << 24;
/// Maximum length of a set's file in bytes.
pub(super) const FILE_LENGTH_MAX: u64 = (HEADER_LENGTH + CHECKSUM_LENGTH + PINS_MAX * BlockId::LEN) as u64;
/// Maximum length of a name in characters.
const NAME_LENGTH_MAX: usize = 80;

/// The name of a set of pins: 1 to 80 characters of `a-z`, `0-9`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinName(String);

impl PinName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PinName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > NAME_LENGTH_MAX || !text.bytes().all(allowed) {
            return Err(Error::refused(format!(
                "set of pins {text:?}: a name has 1 to {NAME_LENGTH_MAX} characters of a-z, 0-9 and -"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for PinName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Encodes the file of a set. `ids` are sorted.
pub fn encode(ids: &[BlockId]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LENGTH + ids.len() * BlockId::LEN + CHECKSUM_LENGTH);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&(ids.len() as u64).to_le_bytes());
    ids.iter().for_each(|id| out.extend_from_slice(&id.0));
    let checksum = XxHash3_64::oneshot(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Parses the file of a set. Returns its ids, sorted.
///
/// # Errors
/// `Corrupt`; `Refused` when a newer Platter wrote it.
pub fn decode(bytes: &[u8]) -> Result<Vec<BlockId>> {
    let corrupt = |what: &str| Error::corrupt(format!("set of pins: {what}"));
    if bytes.len() < HEADER_LENGTH + CHECKSUM_LENGTH || bytes[..4] != MAGIC {
        return Err(corrupt("too short, or wrong magic number"));
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM_LENGTH);
    if XxHash3_64::oneshot(body).to_le_bytes() != *checksum {
        return Err(corrupt("checksum mismatch"));
    }
    let version = u16::from_le_bytes([body[4], body[5]]);
    if version != FORMAT_VERSION {
        return Err(Error::refused(format!(
            "set of pins of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        )));
    }
    let mut count = [0; 8];
    count.copy_from_slice(&body[8..16]);
    let listed = &body[HEADER_LENGTH..];
    if u64::from_le_bytes(count).checked_mul(BlockId::LEN as u64) != Some(listed.len() as u64) {
        return Err(corrupt("its count does not match its length"));
    }
    let ids: Vec<BlockId> = listed
        .chunks_exact(BlockId::LEN)
        .map(|bytes| {
            let mut id = BlockId([0; BlockId::LEN]);
            id.0.copy_from_slice(bytes);
            id
        })
        .collect();
    if !ids.is_sorted_by(|a, b| a < b) {
        return Err(corrupt("its ids are not sorted"));
    }
    Ok(ids)
}

/// All sets of pins, in the form kept in memory.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// For each set, the first bytes of its ids, sorted, and the length of its file.
    sets: BTreeMap<PinName, (Vec<u64>, u64)>,
}

impl Pins {
    /// Returns whether some set has this id, or one with the same first bytes.
    pub(super) fn has(&self, id: &BlockId) -> bool {
        let start = start_of(id);
        self.sets.values().any(|(starts, _)| starts.binary_search(&start).is_ok())
    }

    /// Sets the ids of a set, which are sorted. Returns whether the set existed.
    pub(super) fn insert(&mut self, name: PinName, ids: &[BlockId], file_length: u64) -> bool {
        let starts = ids.iter().map(start_of).collect();
        self.sets.insert(name, (starts, file_length)).is_some()
    }

    /// Removes a set. Returns whether it existed.
    pub(super) fn remove(&mut self, name: &PinName) -> bool {
        self.sets.remove(name).is_some()
    }

    /// Returns the total length of all files in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.sets.values().map(|(_, length)| length).sum()
    }
}

/// Returns the first bytes of an id as a number. Sorted ids give sorted numbers.
fn start_of(id: &BlockId) -> u64 {
    let mut start = [0; 8];
    start.copy_from_slice(&id.0[..8]);
    u64::from_be_bytes(start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_safe_as_file_names() {
        for good in ["hoard", "disk-0af9", &"x".repeat(NAME_LENGTH_MAX)] {
            assert_eq!(good.parse::<PinName>().unwrap().as_str(), good);
        }
        for bad in ["", "Hoard", "a/b", "..", "a.new", "ä", &"x".repeat(NAME_LENGTH_MAX + 1)] {
            assert!(bad.parse::<PinName>().is_err(), "{bad}");
        }
    }

    /// These bytes are a golden vector: an empty set and a set of two ids.
    #[test]
    fn the_bytes_are_frozen() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&encode(&[]))[..32], *"504c706e010000000000000000000000");
        let two = encode(&[BlockId([1; 32]), BlockId([2; 32])]);
        assert_eq!(hex(&two[..48]), format!("504c706e010000000200000000000000{}", "01".repeat(32)));
        assert_eq!(two.len(), 16 + 64 + 8);
    }

    proptest! {
        #[test]
        fn sets_round_trip_and_damage_is_detected(
            raw in prop::collection::btree_set(any::<[u8; 32]>(), 0..20),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let ids: Vec<BlockId> = raw.into_iter().map(BlockId).collect();
            let mut bytes = encode(&ids);
            prop_assert_eq!(&decode(&bytes).unwrap(), &ids);
            let mut pins = Pins::default();
            pins.insert("x".parse().unwrap(), &ids, 0);
            prop_assert!(ids.iter().all(|id| pins.has(id)));
            let cut = at.index(bytes.len());
            prop_assert!(decode(&bytes[..cut]).is_err());
            bytes[cut] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
