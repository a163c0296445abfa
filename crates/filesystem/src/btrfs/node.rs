//! Tree blocks: a header, then items with keys in ascending order.
//!
//! The header has checksum, UUID, address, generation, owner, number of items and level. A leaf has descriptions of its
//! items, whose bytes are behind them; other nodes have pointers to nodes of the next lower level, with their generation.

use crate::fields::{le32, le64};

/// Bytes of the header.
pub(super) const HEADER_LENGTH: usize = 101;
const ITEM_LENGTH: usize = 25;
const POINTER_LENGTH: usize = 33;

/// A key: what an item is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u8,
    pub(super) offset: u64,
}

impl Key {
    /// Bytes of a key.
    pub(super) const LENGTH: usize = 17;

    pub(super) fn parse(bytes: &[u8]) -> Self {
        let kind = bytes.get(8).copied().unwrap_or(0);
        Self { object: le64(bytes, 0), kind, offset: le64(bytes, 9) }
    }
}

/// A tree block whose checksum was checked.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
}

impl Node {
    pub(super) fn address(&self) -> u64 {
        le64(&self.bytes, 48)
    }

    pub(super) fn generation(&self) -> u64 {
        le64(&self.bytes, 80)
    }

    pub(super) fn level(&self) -> u8 {
        self.bytes[100]
    }

    /// Number of items or pointers; `None` if they do not fit.
    pub(super) fn len(&self) -> Option<usize> {
        let count = le32(&self.bytes, 96) as usize;
        let entry = if self.level() == 0 { ITEM_LENGTH } else { POINTER_LENGTH };
        (count <= (self.bytes.len() - HEADER_LENGTH) / entry).then_some(count)
    }

    /// The key of an item or pointer.
    pub(super) fn key(&self, index: usize) -> Key {
        let entry = if self.level() == 0 { ITEM_LENGTH } else { POINTER_LENGTH };
        Key::parse(&self.bytes[HEADER_LENGTH + index * entry..])
    }

    /// The bytes of an item of a leaf; `None` if they are outside of the leaf.
    pub(super) fn item(&self, index: usize) -> Option<&[u8]> {
        let (offset, length) = self.item_place(index);
        self.bytes.get(HEADER_LENGTH..)?.get(offset..)?.get(..length)
    }

    /// Whether the items of a leaf lie in it and do not overlap: each lies before that of the key before, as the kernel requires. So
    /// they have no more bytes than the leaf.
    pub(super) fn has_separate_items(&self) -> bool {
        let mut end = self.bytes.len() - HEADER_LENGTH;
        self.len().is_some_and(|count| {
            (0..count).all(|index| {
                let (offset, length) = self.item_place(index);
                let fits = offset + length <= end;
                end = offset;
                fits
            })
        })
    }

    /// Where an item is, from the end of the header on, and its length.
    fn item_place(&self, index: usize) -> (usize, usize) {
        let at = HEADER_LENGTH + index * ITEM_LENGTH + Key::LENGTH;
        (le32(&self.bytes, at) as usize, le32(&self.bytes, at + 4) as usize)
    }

    /// The address and generation of the node to which a pointer leads.
    pub(super) fn pointer(&self, index: usize) -> (u64, u64) {
        let at = HEADER_LENGTH + index * POINTER_LENGTH + Key::LENGTH;
        (le64(&self.bytes, at), le64(&self.bytes, at + 8))
    }
}
