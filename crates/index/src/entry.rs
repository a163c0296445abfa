//! One entry of the index: a block at one place. A block that several frames have has as many entries.

use platter_image::{BlockId, Error, Result};

use crate::PAGE_LENGTH;

/// Length of an entry in bytes.
pub(crate) const ENTRY_LENGTH: usize = 48;
/// Number of entries in a full page. The last 16 bytes of a page are its count and checksum.
pub const ENTRIES_PER_PAGE: usize = (PAGE_LENGTH - 16) / ENTRY_LENGTH;
/// Maximum offset of a frame: offset and slot share 8 bytes.
pub const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - 1;
const OFFSET_BITS: u32 = 48;

/// A block at one place. The order is by id, then by pack number and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The block.
    pub id: BlockId,
    /// The pack, by its number in the manifest.
    pub pack: u32,
    /// Offset of the frame in the pack, at most [`OFFSET_MAX`].
    pub offset: u64,
    /// The block's position in its frame.
    pub slot: u16,
    /// Length of the whole frame, as in its address.
    pub length: u32,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_LENGTH] {
        let mut out = [0; ENTRY_LENGTH];
        out[..32].copy_from_slice(&self.id.0);
        out[32..36].copy_from_slice(&self.pack.to_le_bytes());
        out[36..40].copy_from_slice(&self.length.to_le_bytes());
        let place = self.offset & OFFSET_MAX | u64::from(self.slot) << OFFSET_BITS;
        out[40..].copy_from_slice(&place.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; ENTRY_LENGTH]) -> Self {
        let place = u64::from_le_bytes(std::array::from_fn(|at| bytes[40 + at]));
        Self {
            id: BlockId(std::array::from_fn(|at| bytes[at])),
            pack: u32::from_le_bytes(std::array::from_fn(|at| bytes[32 + at])),
            length: u32::from_le_bytes(std::array::from_fn(|at| bytes[36 + at])),
            offset: place & OFFSET_MAX,
            slot: (place >> OFFSET_BITS) as u16,
        }
    }

    /// Returns an error if the offset does not fit.
    pub(crate) fn check(&self) -> Result<()> {
        match self.offset <= OFFSET_MAX {
            true => Ok(()),
            false => {
                Err(Error::refused(format!("a frame at offset {} is too far for the index", self.offset)))
            }
        }
    }
}

/// The first 8 bytes of an id as a number that sorts as the id does.
pub(crate) fn prefix(id: &BlockId) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| id.0[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_encoding() {
        let entry = Entry { id: BlockId([7; 32]), pack: 1 << 31, offset: OFFSET_MAX, slot: 2047, length: 9 };
        assert_eq!(Entry::decode(&entry.encode()), entry);
        assert!(entry.check().is_ok());
        assert!(Entry { offset: OFFSET_MAX + 1, ..entry }.check().is_err());
    }
}
