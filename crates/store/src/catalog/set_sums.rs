//! Set sums of the store's packs: an audit of collection in constant time (`audit` keeps them).
//!
//! `meta` keeps three sums: of the packs that were ever added, of those present, and of those collected. `added = present + collected`,
//! however many packs there are. A sum is that of the packs' hashes, as four numbers modulo 2^64: packs can be added and removed in any
//! order. It finds mistakes. Whoever can write the catalog can also write the sums.

use platter_image::{BlockId, Error, Kind, Result};

use super::pack_row::PackRow;

/// Key in `meta`. A catalog from before there were sums gets the row with its first change of packs.
pub(super) const SET_SUMS: &str = "set_sums";

/// The sum of a set of packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum([u64; 4]);

impl Sum {
    /// The sum of this pack alone.
    pub(super) fn of(pack: &PackRow) -> Self {
        let facts = format!("{} {} {} {}", pack.id, pack.length, pack.frames, pack.blocks);
        // An unkeyed BLAKE3 hash.
        let hash = BlockId::of(Kind::Data, facts.as_bytes()).0;
        let mut lanes = [0; 4];
        for (lane, bytes) in lanes.iter_mut().zip(hash.as_chunks::<8>().0) {
            *lane = u64::from_le_bytes(*bytes);
        }
        Self(lanes)
    }

    pub(super) fn with(self, other: Self) -> Self {
        self.lanes(other, u64::wrapping_add)
    }

    pub(super) fn without(self, other: Self) -> Self {
        self.lanes(other, u64::wrapping_sub)
    }

    fn lanes(mut self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(lane, other)| *lane = combine(*lane, other));
        self
    }

    fn to_text(self) -> String {
        self.0.iter().map(|lane| format!("{lane:016x}")).collect()
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lanes = [0; 4];
        let is_whole = text.len() == 64 && text.is_ascii();
        for (at, lane) in lanes.iter_mut().enumerate().filter(|_| is_whole) {
            *lane = u64::from_str_radix(&text[16 * at..16 * (at + 1)], 16).ok()?;
        }
        is_whole.then_some(Self(lanes))
    }
}

/// The three sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SetSums {
    pub(super) added: Sum,
    pub(super) present: Sum,
    pub(super) collected: Sum,
}

impl SetSums {
    /// The sums of these rows. What they do not have was never added.
    pub(super) fn of(rows: &[PackRow]) -> Self {
        let mut sums = Self::default();
        for row in rows {
            *sums.side(row) = sums.side(row).with(Sum::of(row));
        }
        Self { added: sums.present.with(sums.collected), ..sums }
    }

    pub(super) fn from_text(text: &str) -> Result<Self> {
        let sums: Vec<_> = text.split(' ').map(Sum::from_text).collect();
        match sums[..] {
            [Some(added), Some(present), Some(collected)] => Ok(Self { added, present, collected }),
            _ => Err(Error::corrupt(format!("the catalog's set sums are invalid: {text:?}"))),
        }
    }

    pub(super) fn to_text(self) -> String {
        [self.added, self.present, self.collected].map(Sum::to_text).join(" ")
    }

    /// The sum to which a row counts.
    pub(super) fn side(&mut self, row: &PackRow) -> &mut Sum {
        if row.state.is_readable() { &mut self.present } else { &mut self.collected }
    }

    /// What was added and is neither present nor collected: nothing.
    pub(super) fn missing(&self) -> Sum {
        self.added.without(self.present).without(self.collected)
    }

    /// Returns how the sums and these rows, which are all, contradict each other.
    pub(super) fn contradiction(&self, rows: &[PackRow]) -> Option<String> {
        let found = Self::of(rows);
        let wrong = if self.missing() != Sum::default() {
            "what was ever added to the store is not what it has and what was collected"
        } else if found.added != self.added {
            "the packs that it lists are not those that were ever added to the store"
        } else if (found.present, found.collected) != (self.present, self.collected) {
            "other packs are listed as collected than were collected"
        } else {
            return None;
        };
        Some(format!(
            "catalog: its set sums do not match: {wrong}; nothing is collected until `platter rebuild` has listed all packs again"
        ))
    }
}
