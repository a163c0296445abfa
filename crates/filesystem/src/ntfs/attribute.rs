//! Attributes of a record: their contents are in the record, or in runs of clusters.
//!
//! An attribute has its type at 0, its length at 4, whether it has runs at 8, the length of its name at 9, and flags at
//! 12. In the record, contents have their length at 16 and their offset at 20. With runs, the first and last cluster of
//! the attribute that this part has are at 16 and 24, the offset of the runs at 32, and the allocated, actual and
//! initialized lengths of the whole attribute at 40, 48 and 56 of its first part.

use platter_image::{Error, Result};

use super::runs::{Run, decode};
use crate::fields::{le16, le32, le64};

pub(super) const STANDARD_INFORMATION: u32 = 0x10;
pub(super) const LIST: u32 = 0x20;
pub(super) const FILE_NAME: u32 = 0x30;
pub(super) const VOLUME_NAME: u32 = 0x60;
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const INDEX_ROOT: u32 = 0x90;
pub(super) const INDEX: u32 = 0xa0;
pub(super) const BITMAP: u32 = 0xb0;
pub(super) const REPARSE_POINT: u32 = 0xc0;
/// The name of the attributes that index a directory by names, in UTF-16: `$I30`.
pub(super) const BY_NAME: &[u8] = b"$\0I\x003\x000\0";
/// The name of attributes that have none.
pub(super) const UNNAMED: &[u8] = b"";
const END: u32 = u32::MAX;

/// The compression method, or the mark of encrypted contents.
const FLAGS_CODED: u16 = 0x40ff;
const FLAG_ENCRYPTED: u16 = 0x4000;
/// The only compression method.
const COMPRESSED: u16 = 1;

/// The longest possible contents, in bytes.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// A checked attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'b> {
    bytes: &'b [u8],
}

/// How contents are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    /// Compressed in units of two to this power of clusters.
    Compressed(u16),
    Encrypted,
    Unknown(u16),
}

/// Where the contents of an attribute with runs are, and how much of them was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    /// The first cluster of the attribute that this part has.
    pub(super) first: u64,
    pub(super) runs: Vec<Run>,
    /// Lengths of the whole attribute in bytes; only in its first part.
    pub(super) allocated: u64,
    pub(super) length: u64,
    pub(super) initialized: u64,
}

/// The attributes of a record from offset `first` on.
pub(super) fn attributes(record: &[u8], first: usize) -> impl Iterator<Item = Result<Attribute<'_>>> {
    let mut at = Some(first);
    std::iter::from_fn(move || {
        let start = at?;
        let rest = record.get(start..)?;
        at = None;
        if rest.len() < 8 || le32(rest, 0) == END {
            return None;
        }
        let length = le32(rest, 4) as usize;
        if length < 24 || !length.is_multiple_of(8) || length > rest.len() {
            return Some(Err(Error::corrupt(format!("its attribute at {start} has {length} bytes"))));
        }
        at = Some(start + length);
        Some(Ok(Attribute { bytes: &rest[..length] }))
    })
}

impl<'b> Attribute<'b> {
    /// Its type.
    pub(super) fn kind(self) -> u32 {
        le32(self.bytes, 0)
    }

    /// Whether it has a name.
    pub(super) fn is_named(self) -> bool {
        self.bytes[9] != 0
    }

    /// Its name in UTF-16; `None` if it does not lie in it.
    pub(super) fn name(self) -> Option<&'b [u8]> {
        let length = 2 * usize::from(self.bytes[9]);
        if length == 0 {
            return Some(UNNAMED);
        }
        self.bytes.get(usize::from(le16(self.bytes, 10))..)?.get(..length)
    }

    /// How its contents are stored.
    pub(super) fn coding(self) -> Coding {
        let flags = le16(self.bytes, 12);
        match flags & FLAGS_CODED {
            0 => Coding::Plain,
            _ if flags & FLAG_ENCRYPTED != 0 => Coding::Encrypted,
            COMPRESSED if self.is_extended() => Coding::Compressed(le16(self.bytes, 34)),
            // A short attribute of a compressed file is stored as it is.
            _ if !self.is_extended() => Coding::Plain,
            other => Coding::Unknown(other),
        }
    }

    /// Whether its contents are in runs of clusters.
    pub(super) fn is_extended(self) -> bool {
        self.bytes[8] != 0
    }

    /// The first cluster of the attribute that this part has, if it has runs.
    pub(super) fn first(self) -> Option<u64> {
        self.is_extended().then(|| le64(self.bytes, 16))
    }

    /// Whether its contents are compressed or encrypted.
    pub(super) fn is_coded(self) -> bool {
        le16(self.bytes, 12) & FLAGS_CODED != 0
    }

    /// Its contents, if they are in the record.
    ///
    /// # Errors
    /// `Corrupt` if they do not lie in it.
    pub(super) fn value(self) -> Result<Option<&'b [u8]>> {
        if self.is_extended() {
            return Ok(None);
        }
        let (length, offset) = (le32(self.bytes, 16) as usize, usize::from(le16(self.bytes, 20)));
        let value = self.bytes.get(offset..).and_then(|rest| rest.get(..length));
        match value {
            Some(value) => Ok(Some(value)),
            None => Err(Error::corrupt(format!(
                "an attribute of type {:#x} has {length} bytes at {offset}",
                self.kind()
            ))),
        }
    }

    /// Its runs, if it has some, on a volume with this many clusters of this length.
    ///
    /// # Errors
    /// `Corrupt` if runs or lengths are invalid.
    pub(super) fn extended(self, clusters: u64, cluster_size: u64) -> Result<Option<Extended>> {
        if !self.is_extended() {
            return Ok(None);
        }
        let wrong =
            |reason: &str| Error::corrupt(format!("an attribute of type {:#x} {reason}", self.kind()));
        let [first, last] = [16, 24].map(|offset| le64(self.bytes, offset));
        let runs = self.bytes.get(usize::from(le16(self.bytes, 32))..);
        let runs = decode(runs.unwrap_or_default(), clusters).map_err(|error| wrong(&error.to_string()))?;
        let count: u64 = runs.iter().map(|run| run.count).sum();
        // The last number of an attribute without clusters is -1.
        let end = first.checked_add(count).filter(|end| *end == last.wrapping_add(1));
        let length = end.and_then(|end| end.checked_mul(cluster_size));
        if length.is_none_or(|length| length > LENGTH_MAX) {
            return Err(wrong(&format!("has {count} clusters, but states the numbers {first} to {last}")));
        }
        let [allocated, length, initialized] = match first {
            0 => [40, 48, 56].map(|offset| le64(self.bytes, offset)),
            _ => [0; 3],
        };
        let is_sound = initialized <= length
            && (length <= allocated || self.is_coded())
            && allocated % cluster_size == 0
            && allocated.max(length) <= LENGTH_MAX;
        if !is_sound {
            return Err(wrong(&format!(
                "has {initialized} initialized of {length} bytes, and {allocated} allocated"
            )));
        }
        Ok(Some(Extended { first, runs, allocated, length, initialized }))
    }
}

impl Extended {
    /// Whether this part is the whole attribute.
    pub(super) fn is_all(&self, cluster_size: u64) -> bool {
        let count: u64 = self.runs.iter().map(|run| run.count).sum();
        self.first == 0 && count.checked_mul(cluster_size) == Some(self.allocated)
    }
}
