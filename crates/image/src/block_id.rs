//! Ids of data: the BLAKE3-256 hash of a block, a recipe page, a version record, a boot set or a change record.
//!
//! Each kind has its own hash function (plain, or with a derive-key context), so the contents of a disk can
//! never pass as a page or a record. Hashes are never truncated.

use std::fmt;

/// What a frame contains. The values are stored in frame headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Blocks of disks.
    Data = 1,
    /// Pages of recipes.
    Page = 2,
    /// Version records of the catalog.
    Version = 3,
    /// Boot sets: the blocks that a boot reads, in order.
    BootSet = 4,
    /// Change records of the catalog's log.
    Change = 5,
}

impl Kind {
    /// The kind with that value in a header.
    pub fn from_u8(value: u8) -> Option<Self> {
        let all = [Self::Data, Self::Page, Self::Version, Self::BootSet, Self::Change];
        all.into_iter().find(|kind| *kind as u8 == value)
    }
}

/// The id of a block, page, record or boot set: 32 bytes of BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub [u8; 32]);

impl BlockId {
    /// Length of an id in bytes.
    pub const LEN: usize = 32;

    /// The id of `contents` as data of that kind, where ids are not keyed ([`crate::Domain::id_of`]).
    pub fn of(kind: Kind, contents: &[u8]) -> Self {
        Self(match kind {
            Kind::Data => *blake3::hash(contents).as_bytes(),
            Kind::Page => blake3::derive_key("platter 2026-11-21 recipe page", contents),
            Kind::Version => blake3::derive_key("platter 2026-11-21 version record", contents),
            Kind::BootSet => blake3::derive_key("platter 2026-11-21 boot set", contents),
            Kind::Change => blake3::derive_key("platter 2026-11-25 change record", contents),
        })
    }

    /// Parses 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        Some(Self(id))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", &self.to_string()[..12])
    }
}

/// The id of a whole disk: the id of its recipe's root page. Equal scores mean equal disks; unequal scores
/// prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Score(pub BlockId);

impl Score {
    /// Parses 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        BlockId::from_hex(text).map(Self)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden vectors: these ids are frozen.
    #[test]
    fn ids_are_frozen() {
        let name = |kind| BlockId::of(kind, b"platter").to_string();
        assert_eq!(name(Kind::Data), blake3::hash(b"platter").to_string());
        assert_eq!(name(Kind::Page), include_str!("../golden/id-page.hex").trim());
        assert_eq!(name(Kind::Version), include_str!("../golden/id-version.hex").trim());
        assert_eq!(name(Kind::BootSet), include_str!("../golden/id-boot-set.hex").trim());
        assert_eq!(name(Kind::Change), include_str!("../golden/id-change.hex").trim());
    }

    #[test]
    fn hex_round_trip() {
        let id = BlockId::of(Kind::Data, b"x");
        assert_eq!(BlockId::from_hex(&id.to_string()), Some(id));
        assert_eq!(BlockId::from_hex("zz"), None);
        assert_eq!(BlockId::from_hex(&"g".repeat(64)), None);
    }
}
