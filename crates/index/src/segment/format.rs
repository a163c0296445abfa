//! The byte layout of a segment, written and parsed only here: `docs/formats/index.md`.
//!
//! Parsing accepts hostile bytes: counts are checked against the length of the file before anything is allocated.

use platter_image::fields::u64_at;
use platter_image::{Error, Result};
use platter_records::{PackId, StoreId};
use twox_hash::XxHash3_64;

use super::filter::{GROUPS_LOG2_MAX, length_of};
use crate::PAGE_LENGTH;
use crate::entry::{ENTRIES_PER_PAGE, ENTRY_LENGTH, Entry};

const MAGIC: [u8; 4] = *b"PLis";
const FORMAT_VERSION: u16 = 1;
/// Offset of the checksum in every page.
const CHECKSUM_AT: usize = PAGE_LENGTH - 8;
/// Offset of the number of entries in a page of entries.
const COUNT_AT: usize = ENTRIES_PER_PAGE * ENTRY_LENGTH;
/// Maximum number of entries in a segment.
pub(crate) const ENTRIES_MAX: u64 = 1 << 32;
/// Length of a fence in bytes.
pub(super) const FENCE_LENGTH: u64 = 8;

/// The name of a segment: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) [u8; 16]);

impl SegmentId {
    /// Returns the name of the segment's file.
    pub(crate) fn file_name(self) -> String {
        // Pack ids and segment ids have the same form.
        format!("{}.segment", PackId(self.0))
    }

    /// Returns the seed of the checksum of a page. It depends on segment and place, so a page that was written elsewhere is invalid.
    fn seed(self, page: u64) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.0[at])) ^ page
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    pub(crate) id: SegmentId,
    pub(crate) store: StoreId,
    /// Number of entries.
    pub(crate) entries: u64,
    pub(crate) filter_groups_log2: u32,
    pub(crate) fences_checksum: u64,
    pub(crate) filter_checksum: u64,
}

impl SegmentHead {
    /// Returns the number of pages with entries.
    pub(crate) fn pages(&self) -> u64 {
        self.entries.div_ceil(ENTRIES_PER_PAGE as u64)
    }

    /// Returns the offset of a page with entries, from 0.
    pub(super) fn page_at(page: u64) -> u64 {
        (1 + page) * PAGE_LENGTH as u64
    }

    pub(super) fn fences_at(&self) -> u64 {
        Self::page_at(self.pages())
    }

    pub(super) fn filter_at(&self) -> u64 {
        self.fences_at() + self.pages() * FENCE_LENGTH
    }

    /// Returns the length of the file.
    pub(crate) fn file_length(&self) -> u64 {
        self.filter_at() + length_of(self.filter_groups_log2)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; PAGE_LENGTH];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[8..24].copy_from_slice(&self.id.0);
        out[24..40].copy_from_slice(&self.store.0);
        out[40..48].copy_from_slice(&self.entries.to_le_bytes());
        out[48..52].copy_from_slice(&self.filter_groups_log2.to_le_bytes());
        out[56..64].copy_from_slice(&self.fences_checksum.to_le_bytes());
        out[64..72].copy_from_slice(&self.filter_checksum.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Parses the header page of a file of `file_length` bytes. Its values must add up to exactly that length.
    ///
    /// # Errors
    /// `Corrupt`; `Refused` when a newer Platter wrote it.
    pub fn decode(bytes: &[u8], file_length: u64) -> Result<Self> {
        if bytes.len() != PAGE_LENGTH || bytes[..4] != MAGIC {
            return Err(Error::corrupt("index segment: wrong magic number"));
        }
        if XxHash3_64::oneshot(&bytes[..CHECKSUM_AT]) != u64_at(bytes, CHECKSUM_AT) {
            return Err(Error::corrupt("index segment: the checksum of its header is wrong"));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "index segment of format {version}: this Platter supports format {FORMAT_VERSION}"
            )));
        }
        let head = Self {
            id: SegmentId(std::array::from_fn(|at| bytes[8 + at])),
            store: StoreId(std::array::from_fn(|at| bytes[24 + at])),
            entries: u64_at(bytes, 40),
            filter_groups_log2: u64_at(bytes, 48) as u32,
            fences_checksum: u64_at(bytes, 56),
            filter_checksum: u64_at(bytes, 64),
        };
        let within = (1..=ENTRIES_MAX).contains(&head.entries) && head.filter_groups_log2 <= GROUPS_LOG2_MAX;
        if !within || head.file_length() != file_length {
            return Err(Error::corrupt(format!(
                "index segment: inconsistent in a file of {file_length} bytes: {head:?}"
            )));
        }
        Ok(head)
    }
}

/// Encodes a page of entries. They are sorted, at least one, and fit into a page.
pub(super) fn encode_page(segment: SegmentId, page: u64, entries: &[Entry], out: &mut Vec<u8>) {
    let start = out.len();
    for entry in entries.iter().take(ENTRIES_PER_PAGE) {
        out.extend_from_slice(&entry.encode());
    }
    out.resize(start + COUNT_AT, 0);
    out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    let checksum = XxHash3_64::oneshot_with_seed(segment.seed(page), &out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The entries of a page whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a>(&'a [[u8; ENTRY_LENGTH]]);

impl<'a> Page<'a> {
    pub(super) fn parse(segment: SegmentId, page: u64, bytes: &'a [u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("index segment, page {page}: {what}"));
        if bytes.len() != PAGE_LENGTH
            || XxHash3_64::oneshot_with_seed(segment.seed(page), &bytes[..CHECKSUM_AT])
                != u64_at(bytes, CHECKSUM_AT)
        {
            return Err(corrupt("wrong checksum"));
        }
        let count = usize::from(u16::from_le_bytes([bytes[COUNT_AT], bytes[COUNT_AT + 1]]));
        if !(1..=ENTRIES_PER_PAGE).contains(&count) {
            return Err(corrupt("wrong number of entries"));
        }
        let (entries, _) = bytes[..count * ENTRY_LENGTH].as_chunks();
        Ok(Self(entries))
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(self, at: usize) -> Option<Entry> {
        self.0.get(at).map(Entry::decode)
    }

    /// Returns the position of the first entry whose id is at least `id`.
    pub(super) fn first_from(self, id: &[u8; 32]) -> usize {
        self.0.partition_point(|entry| entry[..32] < id[..])
    }

    pub(super) fn first(self) -> Option<Entry> {
        self.get(0)
    }
}

/// Parses page `page` of the entries of a segment. For tests of the parser.
///
/// # Errors
/// `Corrupt`.
pub fn decode_page(segment: [u8; 16], page: u64, bytes: &[u8]) -> Result<Vec<Entry>> {
    let page = Page::parse(SegmentId(segment), page, bytes)?;
    Ok((0..page.len()).filter_map(|at| page.get(at)).collect())
}

#[cfg(test)]
mod tests {
    use platter_image::BlockId;

    use super::*;

    #[test]
    fn a_page_elsewhere_or_of_another_segment_is_invalid() {
        let entry = Entry { id: BlockId([1; 32]), pack: 2, offset: 3, slot: 4, length: 5 };
        let mut bytes = Vec::new();
        encode_page(SegmentId([6; 16]), 7, &[entry], &mut bytes);
        assert_eq!(decode_page([6; 16], 7, &bytes).unwrap(), [entry]);
        assert!(decode_page([6; 16], 8, &bytes).is_err());
        assert!(decode_page([5; 16], 7, &bytes).is_err());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(decode_page([6; 16], 7, &bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
