//! The byte layout of the change log (`docs/formats/change-log.md`).

use std::hash::Hasher;

use platter_image::{BlockId, Error, Kind, Result};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::state::version_of;
use crate::catalog::row::{Cell, RowChange};
use crate::catalog::table::{FORMER, SEALED, Table, VERSIONS};
use platter_records::ChangeRecord;

const MAGIC: [u8; 4] = *b"PLcl";
const FORMAT_VERSION: u16 = 2;
pub(super) const HEADER_LENGTH: usize = 32;
const ENTRY_MAGIC: [u8; 4] = *b"\0PLc";
pub(super) const ENTRY_HEAD: usize = 24;
/// Maximum length of an entry's text in bytes: enough to change about 100,000 versions.
pub(super) const TEXT_LENGTH_MAX: usize = 256 << 20;

impl RowChange {
    /// Returns the table of this change, if its row or key fits that table.
    fn fitting(&self) -> Option<&'static Table> {
        let table = SEALED.into_iter().find(|table| table.name == self.table)?;
        let fits = match (&self.put[..], &self.gone[..]) {
            (row, []) => table.fits_row(row) && !table.is_own(row),
            ([], key) => table.fits_key(key) && !table.is_own(key),
            _ => false,
        };
        let is_version = || match &self.put[..] {
            [_, _, _, _, Cell::Text(id), Cell::Text(record)] => version_of(id, record).is_ok(),
            _ => self.put.is_empty(),
        };
        let has_record = [VERSIONS.name, FORMER.name].contains(&table.name);
        (fits && (!has_record || is_version())).then_some(table)
    }
}

/// One change: what it did, and the rows that it wrote and removed. Applying it uses the rows only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The hash of this entry's text, in hexadecimal; empty until it was serialized and parsed.
    #[serde(skip)]
    pub(crate) hash: String,
    /// The hash of the previous entry's text, in hexadecimal; empty in the first entry of a store.
    pub(crate) before: String,
    #[serde(flatten)]
    pub(crate) change: ChangeRecord,
    pub(crate) rows: Vec<RowChange>,
    /// The digest of all rows after it. A copy of all rows may take several entries; only the last of them has a digest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) after: String,
}

impl Entry {
    /// Serializes the entry.
    pub(crate) fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::bug("cannot serialize a log entry").with_source(error))?;
        if text.len() > TEXT_LENGTH_MAX {
            return Err(Error::refused(format!(
                "one change needs {} bytes in the change log, but at most {TEXT_LENGTH_MAX} are allowed: split it",
                text.len()
            )));
        }
        Ok(text)
    }

    /// Parses an entry. All of its rows must fit their tables.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let mut entry: Self = serde_json::from_str(text)
            .map_err(|error| Error::corrupt("invalid entry in the change log").with_source(error))?;
        entry.hash = hash(text);
        if entry.rows.iter().all(|row| row.fitting().is_some()) {
            Ok(entry)
        } else {
            Err(Error::corrupt("an entry of the change log has rows that fit no table"))
        }
    }
}

/// The contents of a log.
#[derive(Debug, Default)]
pub struct ChangeLogContents {
    /// Its random id, in hexadecimal; `None` without a valid header.
    pub(crate) id: Option<String>,
    /// The valid entries, in order.
    pub(crate) entries: Vec<Entry>,
    /// Number of the last valid entry; 0 if there is none.
    pub(crate) last: u64,
    /// Hash of the last valid entry's text; empty if there is none.
    pub(crate) last_hash: String,
    /// Whether the header, or an entry before the last valid one, is damaged or does not continue the one before it.
    pub(crate) has_holes: bool,
    /// Whether bytes follow the last valid entry: an entry that is incomplete after a crash, or damaged.
    pub(crate) has_torn_end: bool,
    /// Number of these bytes, if they are more than any entry has.
    pub(crate) garbage: Option<u64>,
}

impl ChangeLogContents {
    /// Returns the number of valid entries.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the header and all entries up to the last valid one are valid, and that one has a digest.
    pub fn is_whole(&self) -> bool {
        let is_sealed = self.entries.last().is_some_and(|last| !last.after.is_empty());
        self.id.is_some() && !self.has_holes && is_sealed
    }

    /// Adds the next valid entry. `after_hole`: something else is before it.
    pub(super) fn add(&mut self, entry: Entry, after_hole: bool) {
        let is_first = self.entries.is_empty();
        let number = entry.change.number;
        let continues = number == self.last.saturating_add(1) && entry.before == self.last_hash;
        self.has_holes |= after_hole || !(is_first || continues);
        (self.last, self.last_hash) = (number, entry.hash.clone());
        self.entries.push(entry);
    }
}

/// Returns the log's id; `None` without a valid header.
pub(super) fn read_header(bytes: &[u8]) -> Result<Option<String>> {
    let Some(header) = bytes.get(..HEADER_LENGTH) else { return Ok(None) };
    if header[..4] != MAGIC || header[24..] != XxHash3_64::oneshot(&header[..24]).to_le_bytes() {
        return Ok(None);
    }
    if header[4..8] != [FORMAT_VERSION.to_le_bytes(), [0; 2]].concat() {
        return Err(Error::refused("the change log has another format: use a newer Platter"));
    }
    Ok(Some(header[8..24].iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Encodes a new log's header. Returns it with the id in hexadecimal.
pub(super) fn encode_header(id: [u8; 16]) -> (Vec<u8>, String) {
    let mut header = Vec::with_capacity(HEADER_LENGTH);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&[0; 2]);
    header.extend_from_slice(&id);
    header.extend_from_slice(&XxHash3_64::oneshot(&header).to_le_bytes());
    (header, id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A valid entry.
pub(super) struct FoundEntry {
    pub(super) entry: Entry,
    /// Length of the encoded entry in bytes.
    pub(super) length: usize,
}

/// What begins with the magic of an entry.
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always an entry")]
pub(super) enum Candidate {
    Entry(FoundEntry),
    /// If it is an entry, it has this length, and the bytes at hand end before that.
    Cut(usize),
}

#[cfg(test)]
thread_local! {
    /// Bytes of texts that this thread has examined.
    pub(super) static EXAMINED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Finds the next candidate at or after `from` in `bytes`, and its position there. `bytes` begins at offset `base` of the log.
pub(super) fn find_candidate(bytes: &[u8], base: u64, id: &str, from: usize) -> Option<(usize, Candidate)> {
    let windows = bytes.get(from..)?.windows(ENTRY_MAGIC.len()).enumerate();
    let mut places = windows.filter(|(_, window)| **window == ENTRY_MAGIC).map(|(at, _)| from + at);
    places.find_map(|at| Some((at, candidate_at(bytes, base, id, at)?)))
}

/// Examines no byte of a text that has a zero byte after that one. Each head begins with one, so whatever the heads in garbage
/// say, each byte is examined only a few times.
fn candidate_at(bytes: &[u8], base: u64, id: &str, at: usize) -> Option<Candidate> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(ENTRY_HEAD)?;
    let offset = base + at as u64;
    let number_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if length > TEXT_LENGTH_MAX {
        return None;
    }
    let at_hand = &rest[..length.min(rest.len())];
    let no_zeros = at_hand.iter().position(|byte| *byte == 0).unwrap_or(at_hand.len());
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + no_zeros as u64);
    if no_zeros < at_hand.len() {
        return None;
    }
    if at_hand.len() < length {
        return Some(Candidate::Cut(ENTRY_HEAD + length));
    }
    let text = std::str::from_utf8(at_hand).ok()?;
    let (number, sum) = (number_at(8), number_at(16));
    if checksum(id, offset, number, text) != sum {
        return None;
    }
    let entry = Entry::from_text(text).ok().filter(|entry| entry.change.number == number)?;
    Some(Candidate::Entry(FoundEntry { entry, length: ENTRY_HEAD + length }))
}

/// Returns the hash that names an entry, in hexadecimal.
pub(super) fn hash(text: &str) -> String {
    BlockId::of(Kind::Change, text.as_bytes()).to_string()
}

/// Encodes an entry.
pub(crate) fn encode(id: &str, offset: u64, number: u64, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY_HEAD + text.len());
    out.extend_from_slice(&ENTRY_MAGIC);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&checksum(id, offset, number, text).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// Returns the length of an encoded entry.
pub(super) fn entry_length(text: &str) -> u64 {
    (ENTRY_HEAD + text.len()) as u64
}

fn checksum(id: &str, offset: u64, number: u64, text: &str) -> u64 {
    let mut hasher = XxHash3_64::new();
    hasher.write(id.as_bytes());
    hasher.write(&offset.to_le_bytes());
    hasher.write(&number.to_le_bytes());
    hasher.write(&(text.len() as u64).to_le_bytes());
    hasher.write(text.as_bytes());
    hasher.finish()
}
