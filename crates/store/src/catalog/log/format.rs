//! The bytes of the log of changes (`docs/formats/change-log.md`).

use std::hash::Hasher;

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::past::version_of;
use crate::catalog::row::{Cell, RowChange};
use crate::catalog::table::{Table, VERSIONS, logged};

const MAGIC: [u8; 4] = *b"PLcl";
const FORMAT_VERSION: u16 = 1;
pub(super) const HEADER_LENGTH: usize = 32;
const ENTRY_MAGIC: [u8; 4] = *b"\0PLc";
const ENTRY_HEAD: usize = 24;
/// Most bytes of an entry's text: a change of some 100,000 versions.
const TEXT_LENGTH_MAX: usize = 256 << 20;

impl RowChange {
    /// The table, if the change fits it.
    fn fitting(&self) -> Option<&'static Table> {
        let table = logged().find(|table| table.name == self.table)?;
        let fits = match (&self.put[..], &self.gone[..]) {
            (row, []) => table.fits_row(row) && !table.is_own(row),
            ([], key) => table.fits_key(key) && !table.is_own(key),
            _ => false,
        };
        let is_version = || match &self.put[..] {
            [_, _, _, _, Cell::Text(id), Cell::Text(record)] => version_of(id, record).is_ok(),
            _ => self.put.is_empty(),
        };
        (fits && (table.name != VERSIONS.name || is_version())).then_some(table)
    }
}

/// What one change did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) rows: Vec<RowChange>,
    /// The digest of all rows after it; empty inside a copy of the rows that takes several entries.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) after: String,
}

impl Entry {
    /// Its text.
    pub(crate) fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::bug("an entry of the log without a text").with_source(error))?;
        if text.len() > TEXT_LENGTH_MAX {
            return Err(Error::refused(format!(
                "one change would take {} bytes in the log of changes, {TEXT_LENGTH_MAX} are allowed: do it in parts",
                text.len()
            )));
        }
        Ok(text)
    }

    /// Parses the text of an entry, all of whose rows must fit their tables.
    pub(super) fn from_text(text: &str) -> Result<Self> {
        let entry: Self = serde_json::from_str(text)
            .map_err(|error| Error::corrupt("an entry of the log of changes").with_source(error))?;
        if entry.rows.iter().all(|row| row.fitting().is_some()) {
            Ok(entry)
        } else {
            Err(Error::corrupt("an entry of the log of changes has rows that fit no table"))
        }
    }
}

/// What a log holds.
#[derive(Debug, Default)]
pub struct ChangeLogContents {
    /// Its random id, in hexadecimal digits; `None` without a good header.
    pub(crate) id: Option<String>,
    /// The good entries, in order.
    pub(crate) entries: Vec<Entry>,
    /// The number of the last of them; 0 when there is none.
    pub(crate) last: u64,
    /// Whether the header or an entry before the last good one is damaged.
    pub(crate) has_holes: bool,
    /// Whether bytes follow after the last good entry: of one that a crash tore, or that was damaged later.
    pub(crate) has_torn_end: bool,
}

impl ChangeLogContents {
    /// How many good entries it has.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Whether its header and all entries before the last good one are good, and that one says what all rows come to.
    pub fn is_whole(&self) -> bool {
        let is_sealed = self.entries.last().is_some_and(|last| !last.after.is_empty());
        self.id.is_some() && !self.has_holes && is_sealed
    }
}

/// Parses the bytes of a log of changes. Whatever is damaged is left out, and the contents say so.
///
/// # Errors
/// `Refused` when a newer Platter wrote it.
pub fn decode_change_log(bytes: &[u8]) -> Result<ChangeLogContents> {
    let mut contents = ChangeLogContents { has_holes: true, ..ChangeLogContents::default() };
    let Some(id) = read_header(bytes)? else { return Ok(contents) };
    contents.has_holes = false;
    let mut offset = HEADER_LENGTH;
    while let Some((at, found)) = find_entry(bytes, 0, &id, offset) {
        contents.has_holes |= at != offset || found.number != contents.last.saturating_add(1);
        contents.last = found.number;
        contents.entries.push(found.entry);
        offset = found.end;
    }
    contents.has_torn_end = offset < bytes.len();
    contents.id = Some(id);
    Ok(contents)
}

/// The log's id; `None` without a good header.
pub(super) fn read_header(bytes: &[u8]) -> Result<Option<String>> {
    let Some(header) = bytes.get(..HEADER_LENGTH) else { return Ok(None) };
    if header[..4] != MAGIC || header[24..] != XxHash3_64::oneshot(&header[..24]).to_le_bytes() {
        return Ok(None);
    }
    if header[4..8] != [FORMAT_VERSION.to_le_bytes(), [0; 2]].concat() {
        return Err(Error::refused("the log of changes has another format: use a newer Platter"));
    }
    Ok(Some(header[8..24].iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// A new log's header, and its id in digits.
pub(super) fn encode_header(id: [u8; 16]) -> (Vec<u8>, String) {
    let mut header = Vec::with_capacity(HEADER_LENGTH);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&[0; 2]);
    header.extend_from_slice(&id);
    header.extend_from_slice(&XxHash3_64::oneshot(&header).to_le_bytes());
    (header, id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A good entry.
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) entry: Entry,
    end: usize,
}

/// The next good entry at or after `from`, and where it begins. The first of `bytes` is that at `base` of the log.
pub(super) fn find_entry(bytes: &[u8], base: u64, id: &str, from: usize) -> Option<(usize, Found)> {
    let windows = bytes.get(from..)?.windows(ENTRY_MAGIC.len()).enumerate();
    let mut places = windows.filter(|(_, window)| **window == ENTRY_MAGIC).map(|(at, _)| from + at);
    places.find_map(|at| Some((at, entry_at(bytes, base, id, at)?)))
}

fn entry_at(bytes: &[u8], base: u64, id: &str, at: usize) -> Option<Found> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(ENTRY_HEAD)?;
    let offset = base + at as u64;
    let number_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let text = std::str::from_utf8(rest.get(..length)?).ok()?;
    let (number, sum) = (number_at(8), number_at(16));
    if head[..4] != ENTRY_MAGIC || length > TEXT_LENGTH_MAX || checksum(id, offset, number, text) != sum {
        return None;
    }
    let entry = Entry::from_text(text).ok()?;
    Some(Found { number, entry, end: at + ENTRY_HEAD + length })
}

/// The bytes of an entry.
pub(crate) fn encode(id: &str, offset: u64, number: u64, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY_HEAD + text.len());
    out.extend_from_slice(&ENTRY_MAGIC);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&checksum(id, offset, number, text).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// How long they are.
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
