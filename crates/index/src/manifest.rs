//! The byte layout of the manifest, written and parsed only here: `docs/formats/index.md`.
//!
//! Parsing accepts hostile bytes: the counts must add up to the exact length of the file before anything is allocated.

use platter_image::fields::{u32_at, u64_at};
use platter_image::{Error, Result};
use platter_records::{PackId, StoreId};
use twox_hash::XxHash3_64;

use crate::segment::SegmentId;

const MAGIC: [u8; 4] = *b"PLim";
const FORMAT_VERSION: u16 = 1;
const HEAD_LENGTH: usize = 56;
const ROW_LENGTH: usize = 24;
const CHECKSUM_LENGTH: usize = 8;
/// Maximum length of a manifest: more than two million packs.
pub(crate) const MANIFEST_LENGTH_MAX: u64 = 64 << 20;

/// A pack whose blocks are all in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredPack {
    /// The pack.
    pub id: PackId,
    /// Its number in the entries. Numbers are never used again while an index exists.
    pub number: u32,
    /// Number of its blocks.
    pub blocks: u32,
}

/// A segment of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    pub(crate) id: SegmentId,
    /// Number of its entries.
    pub entries: u64,
}

/// Which packs and segments belong to an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The store.
    pub store: StoreId,
    /// The number of the next pack.
    pub next_number: u32,
    /// The covered packs, by ascending numbers. Entries of other packs do not count.
    pub packs: Vec<CoveredPack>,
    /// The segments.
    pub segments: Vec<SegmentRow>,
}

impl Manifest {
    /// Returns an empty manifest.
    pub fn new(store: StoreId) -> Self {
        Self { store, next_number: 0, packs: Vec::new(), segments: Vec::new() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LENGTH + ROW_LENGTH * (self.packs.len() + self.segments.len()));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.store.0);
        out.extend_from_slice(&self.next_number.to_le_bytes());
        out.extend_from_slice(&(self.packs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        out.resize(HEAD_LENGTH, 0);
        for pack in &self.packs {
            out.extend_from_slice(&pack.id.0);
            out.extend_from_slice(&pack.number.to_le_bytes());
            out.extend_from_slice(&pack.blocks.to_le_bytes());
        }
        for segment in &self.segments {
            out.extend_from_slice(&segment.id.0);
            out.extend_from_slice(&segment.entries.to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// `Corrupt`; `Refused` when a newer Platter wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("index manifest: {what}"));
        let Some(summed) = bytes.len().checked_sub(CHECKSUM_LENGTH).filter(|summed| *summed >= HEAD_LENGTH)
        else {
            return Err(corrupt("it is too short"));
        };
        if bytes[..4] != MAGIC {
            return Err(corrupt("wrong magic number"));
        }
        if XxHash3_64::oneshot(&bytes[..summed]).to_le_bytes() != bytes[summed..] {
            return Err(corrupt("wrong checksum"));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "index manifest of format {version}: this Platter supports format {FORMAT_VERSION}"
            )));
        }
        let (packs, segments) = (u32_at(bytes, 28) as usize, u32_at(bytes, 32) as usize);
        let rows = &bytes[HEAD_LENGTH..summed];
        if packs.checked_add(segments).and_then(|rows| rows.checked_mul(ROW_LENGTH)) != Some(rows.len()) {
            return Err(corrupt("its counts differ from its length"));
        }
        let (pack_rows, segment_rows) = rows.split_at(packs * ROW_LENGTH);
        let id_of = |row: &[u8]| std::array::from_fn(|at| row[at]);
        let manifest = Self {
            store: StoreId(std::array::from_fn(|at| bytes[8 + at])),
            next_number: u32_at(bytes, 24),
            packs: pack_rows
                .chunks_exact(ROW_LENGTH)
                .map(|row| CoveredPack {
                    id: PackId(id_of(row)),
                    number: u32_at(row, 16),
                    blocks: u32_at(row, 20),
                })
                .collect(),
            segments: segment_rows
                .chunks_exact(ROW_LENGTH)
                .map(|row| SegmentRow { id: SegmentId(id_of(row)), entries: u64_at(row, 16) })
                .collect(),
        };
        let ascend = manifest.packs.is_sorted_by(|one, next| one.number < next.number);
        if !ascend || manifest.packs.last().is_some_and(|last| last.number >= manifest.next_number) {
            return Err(corrupt("the numbers of its packs do not ascend"));
        }
        Ok(manifest)
    }

    /// Returns the covered pack with that number.
    pub(crate) fn pack(&self, number: u32) -> Option<&CoveredPack> {
        let at = self.packs.binary_search_by_key(&number, |pack| pack.number).ok()?;
        self.packs.get(at)
    }

    /// Returns the number of entries of covered packs.
    pub(crate) fn covered(&self) -> u64 {
        self.packs.iter().map(|pack| u64::from(pack.blocks)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_encoding_and_no_byte_may_change() {
        let manifest = Manifest {
            store: StoreId([1; 16]),
            next_number: 9,
            packs: [2, 8]
                .map(|number| CoveredPack { id: PackId([number as u8; 16]), number, blocks: 5 })
                .to_vec(),
            segments: vec![SegmentRow { id: SegmentId([4; 16]), entries: 1 << 40 }],
        };
        let mut bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(Manifest::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        let twice = Manifest { next_number: 8, ..manifest };
        assert!(Manifest::decode(&twice.encode()).is_err(), "number 8 would be given twice");
    }
}
