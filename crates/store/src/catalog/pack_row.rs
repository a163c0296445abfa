//! Rows of the catalog's table of packs.

use platter_image::{Error, Result};
use platter_records::{PackId, PackState};
use rusqlite::types::Value;

use crate::pack_writer::SealedPack;

/// A row of the catalog's table of packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackRow {
    pub(crate) id: PackId,
    pub(crate) state: PackState,
    /// 0, or for a dead pack the time at which it died, in milliseconds since 1970 UTC; for people and for `--keep-trash`.
    pub(crate) epoch: u64,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    pub(crate) frames: u64,
    pub(crate) blocks: u64,
}

impl PackRow {
    /// The row of a pack that was just sealed.
    pub(crate) fn live(pack: &SealedPack) -> Self {
        let SealedPack { id, length, frames, blocks } = *pack;
        Self { id, state: PackState::Live, epoch: 0, length, frames, blocks }
    }

    /// Parses a pack's row.
    pub(super) fn parse(values: &[Value]) -> Result<Self> {
        let count = |at: usize| match values.get(at) {
            Some(Value::Integer(number)) => (*number).max(0) as u64,
            _ => 0,
        };
        let word = |at: usize| match values.get(at) {
            Some(Value::Text(text)) => text.as_str(),
            _ => "",
        };
        let parsed = PackId::from_hex(word(0)).zip(PackState::from_word(word(1)));
        let (id, state) = parsed.ok_or_else(|| {
            Error::corrupt(format!("the catalog has a pack {:?} in state {:?}", word(0), word(1)))
        })?;
        Ok(Self { id, state, epoch: count(2), length: count(3), frames: count(4), blocks: count(5) })
    }
}
