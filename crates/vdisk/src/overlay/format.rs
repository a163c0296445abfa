//! The format of an overlay file (`docs/formats/overlay.md`): its header and the records of its log.

use platter_image::fields::{array_at, u64_at};
use platter_image::{BlockId, Domain, Error, Result, Score};
use twox_hash::XxHash3_64;

/// The granularity of an overlay, in bytes of the disk.
pub(super) const BLOCK: u64 = 4096;
/// Bytes before the data.
pub(super) const HEADER_LENGTH: u64 = 4096;
/// The most blocks that one record with checksums covers: 1 MiB.
pub(super) const PRESENT_BLOCKS_MAX: usize = 256;
/// Bytes of a record without block checksums; the record's own checksum is included.
const RECORD_LENGTH: usize = 48;
/// Bytes of the longest record.
pub(super) const RECORD_LENGTH_MAX: usize = RECORD_LENGTH + 4 * PRESENT_BLOCKS_MAX;

const MAGIC: [u8; 4] = *b"PLov";
const FORMAT_VERSION: u16 = 2;
/// The version of an encrypted overlay.
const ENCRYPTED_VERSION: u16 = 3;
/// Bytes of the header before its checksum; in an encrypted overlay, the domain follows. Everything fits into one sector, which a
/// disk writes whole or not at all.
const FIELDS_LENGTH: usize = 104;
const DOMAIN_LENGTH: usize = 16;

/// The header at the beginning of an overlay file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlayHeader {
    /// A random id that identifies the overlay.
    pub id: [u8; 16],
    /// Length of the disk in bytes.
    pub disk_length: u64,
    /// The version that is read where nothing was written.
    pub base_score: Score,
    /// The number of the edit lock that allows the writes.
    pub edit_lock: u64,
    /// The machine's boot in which the overlay was last opened.
    pub boot_id: [u8; 16],
    /// The identity domain whose key encrypts the blocks; the shared one: they are not encrypted.
    pub domain: Domain,
    /// Offset of the log in the file.
    pub(super) log_offset: u64,
    /// The number of the current log; records with another generation are ignored.
    pub(super) generation: u32,
}

impl OverlayHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LENGTH as usize);
        out.extend_from_slice(&MAGIC);
        let version = if self.domain.is_encrypted() { ENCRYPTED_VERSION } else { FORMAT_VERSION };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.disk_length.to_le_bytes());
        out.extend_from_slice(&self.base_score.0.0);
        out.extend_from_slice(&self.edit_lock.to_le_bytes());
        out.extend_from_slice(&self.boot_id);
        out.extend_from_slice(&self.log_offset.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        debug_assert_eq!(out.len(), FIELDS_LENGTH);
        if self.domain.is_encrypted() {
            out.extend_from_slice(&self.domain.0);
        }
        let checksum = XxHash3_64::oneshot(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.resize(HEADER_LENGTH as usize, 0);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::corrupt(format!("overlay header: {what}"));
        let bytes = bytes.get(..FIELDS_LENGTH + DOMAIN_LENGTH + 8).ok_or_else(|| wrong("truncated"))?;
        if bytes[..4] != MAGIC {
            return Err(wrong("not an overlay"));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        let end = match version {
            FORMAT_VERSION => FIELDS_LENGTH,
            ENCRYPTED_VERSION => FIELDS_LENGTH + DOMAIN_LENGTH,
            _ => {
                return Err(Error::refused(format!(
                    "the overlay has format version {version}, this Platter supports versions {FORMAT_VERSION} and \
                     {ENCRYPTED_VERSION}"
                )));
            }
        };
        if XxHash3_64::oneshot(&bytes[..end]) != u64_at(bytes, end) {
            return Err(wrong("checksum mismatch"));
        }
        let domain = match version {
            ENCRYPTED_VERSION => Domain(array_at(bytes, FIELDS_LENGTH)),
            _ => Domain::SHARED,
        };
        if version == ENCRYPTED_VERSION && !domain.is_encrypted() {
            return Err(wrong("encrypted in the domain without a key"));
        }
        let header = Self {
            id: array_at(bytes, 8),
            disk_length: u64_at(bytes, 24),
            base_score: Score(BlockId(array_at(bytes, 32))),
            edit_lock: u64_at(bytes, 64),
            boot_id: array_at(bytes, 72),
            domain,
            log_offset: u64_at(bytes, 88),
            generation: u64_at(bytes, 96) as u32,
        };
        if !header.disk_length.is_multiple_of(512) || header.log_offset < log_offset_min(header.disk_length) {
            return Err(wrong("impossible lengths"));
        }
        Ok(header)
    }
}

/// Offset of the first log in an overlay of a disk of that length.
pub(super) fn log_offset_min(disk_length: u64) -> u64 {
    disk_length.div_ceil(BLOCK).saturating_add(HEADER_LENGTH / BLOCK).saturating_mul(BLOCK)
}

/// A log record: what happened to consecutive blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The blocks are in the file. After a power cut, an unflushed block counts only if the file's contents
    /// match its checksum. Without a power cut, every block matches its checksum until a later record changes
    /// it.
    Present { first: u64, checksums: Vec<u32> },
    /// The blocks are zeros.
    Zero { first: u64, count: u64 },
    /// The blocks are in the file; their checksums are unknown.
    Kept { first: u64, count: u64 },
    /// Everything before this record was synced.
    Flushed,
    /// The blocks are about to be overwritten: from here on their checksums are unknown.
    Changing { first: u64, count: u64 },
}

/// Appends a record to `out`.
pub(super) fn encode_record(record: &Record, generation: u32, sequence: u64, out: &mut Vec<u8>) {
    let start = out.len();
    let (kind, first, count, checksums): (u8, u64, u64, &[u32]) = match record {
        Record::Present { first, checksums } => (1, *first, checksums.len() as u64, checksums),
        Record::Zero { first, count } => (2, *first, *count, &[]),
        Record::Kept { first, count } => (3, *first, *count, &[]),
        Record::Flushed => (4, 0, 0, &[]),
        Record::Changing { first, count } => (5, *first, *count, &[]),
    };
    let length = (RECORD_LENGTH + 4 * checksums.len()) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&generation.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    checksums.iter().for_each(|checksum| out.extend_from_slice(&checksum.to_le_bytes()));
    let checksum = XxHash3_64::oneshot(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Decodes the record at the beginning of `bytes` and returns it with its length. `None` when there is no
/// valid record with this generation and sequence number, or when it names blocks at or past `blocks`: the
/// log ends here.
pub(super) fn decode_record(
    bytes: &[u8],
    generation: u32,
    sequence: u64,
    blocks: u64,
) -> Option<(Record, usize)> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if !(RECORD_LENGTH..=RECORD_LENGTH_MAX).contains(&length) {
        return None;
    }
    let bytes = bytes.get(..length)?;
    let end = length - 8;
    let is_next = u64_at(bytes, 8) == u64::from(generation) && u64_at(bytes, 16) == sequence;
    if !is_next || bytes[5..8] != [0; 3] || XxHash3_64::oneshot(&bytes[..end]) != u64_at(bytes, end) {
        return None;
    }
    let (first, count) = (u64_at(bytes, 24), u64_at(bytes, 32));
    if first.checked_add(count)? > blocks {
        return None;
    }
    let (checksums, _) = bytes[40..end].as_chunks::<4>();
    let record = match (bytes[4], checksums.len()) {
        (1, found) if found as u64 == count && count > 0 => Record::Present {
            first,
            checksums: checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
        },
        (2, 0) => Record::Zero { first, count },
        (3, 0) => Record::Kept { first, count },
        (4, 0) => Record::Flushed,
        (5, 0) => Record::Changing { first, count },
        _ => return None,
    };
    Some((record, length))
}

/// Decodes the record at the beginning of `bytes` if it is valid, has that generation, and its number is
/// above `next`. Returns the record and its number.
pub(super) fn decode_later_record(
    bytes: &[u8],
    generation: u32,
    next: u64,
    blocks: u64,
) -> Option<(Record, u64)> {
    let sequence = u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
    let is_later = sequence > next && bytes[8..12] == generation.to_le_bytes();
    let (record, _) = is_later.then(|| decode_record(bytes, generation, sequence, blocks)).flatten()?;
    Some((record, sequence))
}

/// The checksum of a block's 4096 bytes.
pub(super) fn block_checksum(bytes: &[u8]) -> u32 {
    XxHash3_64::oneshot(bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_and_records_are_frozen() {
        let header = OverlayHeader {
            id: [1; 16],
            disk_length: 512 * 9,
            base_score: Score(BlockId([2; 32])),
            edit_lock: 3,
            boot_id: [4; 16],
            domain: Domain::SHARED,
            log_offset: 12_288,
            generation: 5,
        };
        let bytes = header.encode();
        assert_eq!(OverlayHeader::decode(&bytes).unwrap(), header);
        let encrypted = OverlayHeader { domain: Domain([6; 16]), ..header };
        let encrypted_bytes = encrypted.encode();
        assert_eq!(OverlayHeader::decode(&encrypted_bytes).unwrap(), encrypted);
        for at in (4..6).chain(FIELDS_LENGTH..FIELDS_LENGTH + DOMAIN_LENGTH) {
            let mut bad = encrypted_bytes.clone();
            bad[at] ^= 1;
            assert!(OverlayHeader::decode(&bad).is_err(), "byte {at}");
        }
        assert_eq!(blake3_of(&encrypted_bytes[..FIELDS_LENGTH + DOMAIN_LENGTH + 8]), ENCRYPTED_GOLDEN);
        let mut log = Vec::new();
        let records = [
            Record::Kept { first: 7, count: 9 },
            Record::Flushed,
            Record::Present { first: 2, checksums: vec![8, 9] },
            Record::Zero { first: 1, count: 3 },
            Record::Changing { first: 2, count: 1 },
        ];
        for (sequence, record) in records.iter().enumerate() {
            encode_record(record, 6, sequence as u64, &mut log);
        }
        let mut rest = &log[..];
        for (sequence, record) in records.iter().enumerate() {
            let (found, length) = decode_record(rest, 6, sequence as u64, 100).unwrap();
            assert_eq!(found, *record);
            rest = &rest[length..];
        }
        let golden = blake3_of(&[&bytes[..FIELDS_LENGTH + 8], &log].concat());
        assert_eq!(golden, GOLDEN, "the format is frozen: a change needs a new version");
        assert!(decode_record(&log, 7, 0, 100).is_none() && decode_record(&log, 6, 1, 100).is_none());
        assert!(decode_record(&log, 6, 0, 15).is_none(), "blocks past the end");
    }

    const GOLDEN: &str = "d287831a00a65d61462391c51eb4064f35a7a54d1e095dae970d6e0ce733bac2";

    const ENCRYPTED_GOLDEN: &str = "2a7d8bfa45e99bac99e4466ce978a697c977d59928984ac30e436b520fee794c";

    fn blake3_of(bytes: &[u8]) -> String {
        BlockId::of(platter_image::Kind::Data, bytes).to_string()
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), flip in 0..300_usize) {
            let _ = OverlayHeader::decode(&bytes);
            let _ = decode_record(&bytes, 1, 0, 1000);
            let mut log = Vec::new();
            encode_record(&Record::Present { first: 1, checksums: vec![1; 20] }, 1, 0, &mut log);
            let at = flip % log.len();
            log[at] ^= 1;
            prop_assert!(decode_record(&log, 1, 0, 1000).is_none());
            bytes.truncate(8);
        }
    }
}
