//! Records of the master file table: their update sequence, and what kind they are.
//!
//! The last two bytes of every 512 of a record hold a number that changes at each write; the bytes that belong there
//! are in the update sequence. If one of them is different, then the record was not written as a whole.

use platter_image::{Error, Result};

use super::attribute::{Attribute, UNNAMED, attributes};
use crate::fields::{has, le16, le32, le64};

/// A sequence number is at the end of every piece of this many bytes.
pub(super) const PIECE_LENGTH: usize = 512;
/// The number of a record in a reference; the upper bits count how often it was used.
const NUMBER_BITS: u64 = 0xffff_ffff_ffff;

const FLAG_IN_USE: u16 = 1;
const FLAG_DIRECTORY: u16 = 2;

/// A record in use, with its sequence numbers replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    bytes: &'b [u8],
}

/// Replaces the sequence numbers of a record, or of a page of the log, with the bytes that belong there.
///
/// # Errors
/// `Corrupt` if it was not written as a whole.
pub(super) fn mend(bytes: &mut [u8]) -> Result<()> {
    let (place, count) = (usize::from(le16(bytes, 4)), usize::from(le16(bytes, 6)));
    let pieces = bytes.len() / PIECE_LENGTH;
    if count != pieces + 1 || place % 2 != 0 || place + 2 * count > bytes.len() {
        return Err(Error::corrupt(format!("its update sequence has {count} numbers at {place}")));
    }
    let number = le16(bytes, place);
    for piece in 1..=pieces {
        let at = piece * PIECE_LENGTH - 2;
        if le16(bytes, at) != number {
            return Err(Error::corrupt("it was not written as a whole"));
        }
        let own = le16(bytes, place + 2 * piece);
        bytes[at..at + 2].copy_from_slice(&own.to_le_bytes());
    }
    Ok(())
}

impl<'b> Record<'b> {
    /// Checks a record; `None` if it is not in use.
    ///
    /// # Errors
    /// `Corrupt` if it is in use and invalid.
    pub(super) fn parse(bytes: &'b mut [u8], number: u64) -> Result<Option<Self>> {
        if !has(bytes, 0, b"FILE") {
            // A record that was never written; marks such as BAAD say that it cannot be read.
            return match le32(bytes, 0) {
                0 | u32::MAX => Ok(None),
                _ => Err(wrong(number, "it lacks the mark FILE")),
            };
        }
        if le16(bytes, 22) & FLAG_IN_USE == 0 {
            return Ok(None);
        }
        let has_number = le16(bytes, 4) >= 48;
        mend(bytes).map_err(|error| wrong(number, &error.to_string()))?;
        let used = le32(bytes, 24) as usize;
        let first = usize::from(le16(bytes, 20));
        if used > bytes.len() || first < 42 || first > used {
            return Err(wrong(number, &format!("it states {used} bytes, with attributes from {first} on")));
        }
        if has_number && u64::from(le32(bytes, 44)) != number & 0xffff_ffff {
            return Err(wrong(number, &format!("it states the number {}", le32(bytes, 44))));
        }
        Ok(Some(Self { bytes: &bytes[..used] }))
    }

    /// The record of the file to which this record belongs; `None` if it is that record.
    pub(super) fn base(self) -> Option<u64> {
        reference(self.bytes, 32)
    }

    /// Passes all attributes to `visit`.
    ///
    /// # Errors
    /// `Corrupt` if one is invalid; errors of `visit`.
    pub(super) fn for_each(self, mut visit: impl FnMut(Attribute<'b>) -> Result<()>) -> Result<()> {
        let first = usize::from(le16(self.bytes, 20));
        attributes(self.bytes, first).try_for_each(|attribute| visit(attribute?))
    }

    /// The first attribute of that kind without a name, if there is one.
    ///
    /// # Errors
    /// `Corrupt` if an attribute is invalid.
    pub(super) fn find(self, kind: u32) -> Result<Option<Attribute<'b>>> {
        self.find_named(kind, UNNAMED)
    }

    /// The first attribute of that kind with that name in UTF-16, if there is one.
    ///
    /// # Errors
    /// `Corrupt` if an attribute is invalid.
    pub(super) fn find_named(self, kind: u32, name: &[u8]) -> Result<Option<Attribute<'b>>> {
        let mut found = None;
        self.for_each(|attribute| {
            if found.is_none() && attribute.kind() == kind && attribute.name() == Some(name) {
                found = Some(attribute);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The number of names.
    pub(super) fn links(self) -> u16 {
        le16(self.bytes, 18)
    }

    /// Whether it is a directory.
    pub(super) fn is_directory(self) -> bool {
        le16(self.bytes, 22) & FLAG_DIRECTORY != 0
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> &'b [u8] {
        self.bytes
    }
}

/// The record to which a reference at `offset` refers; `None` if it is all zeros.
pub(super) fn reference(bytes: &[u8], offset: usize) -> Option<u64> {
    let reference = le64(bytes, offset);
    (reference != 0).then_some(reference & NUMBER_BITS)
}

/// The error for an invalid record.
pub(super) fn wrong(number: u64, reason: &str) -> Error {
    Error::corrupt(format!("record {number} of its master file table: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(b"FILE");
        (bytes[4], bytes[6], bytes[20], bytes[22], bytes[24], bytes[44]) = (48, 3, 56, 1, 64, 7);
        (bytes[48], bytes[50], bytes[52]) = (9, 1, 2);
        bytes[56..60].fill(0xff);
        (bytes[510], bytes[1022]) = (9, 9);
        bytes
    }

    #[test]
    fn a_record_is_mended_and_checked() {
        let mut bytes = record();
        assert!(Record::parse(&mut bytes, 7).unwrap().is_some());
        assert_eq!((bytes[510], bytes[1022]), (1, 2));
        for (offset, value, expected) in [
            (1022, 8, "record 7 of its master file table: it was not written as a whole"),
            (0, b'B', "lacks the mark FILE"),
            (6, 2, "2 numbers at 48"),
            (4, 49, "3 numbers at 49"),
            (5, 4, "3 numbers at 1072"),
            (25, 5, "it states 1344 bytes"),
            (20, 80, "attributes from 80 on"),
            (44, 8, "it states the number 8"),
        ] {
            let mut bytes = record();
            bytes[offset] = value;
            let error = Record::parse(&mut bytes, 7).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut free = record();
        free[22] = 0;
        free[1022] = 8;
        assert!(Record::parse(&mut free, 7).unwrap().is_none());
        assert!(Record::parse(&mut [0; 1024], 7).unwrap().is_none());
    }
}
