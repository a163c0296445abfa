//! Sets of directory entries: a primary entry and the secondary ones that follow it, 32 bytes each.
//!
//! Bit 7 of an entry's type says that it is in use, bit 6 that it is secondary, bit 5 that it is benign. A file has a
//! primary entry with the number of secondary ones at 1, a checksum of the whole set at 2 and attributes at 4; the first
//! secondary entry has flags at 1, the length of valid data at 8, the first cluster at 20 and the length at 24.

use platter_image::{Error, Result};

use crate::clusters::dos_time;
use crate::fields::{le16, le32, le64};
use crate::files::DOS_FLAGS;

/// Bytes per entry.
pub(super) const ENTRY_LENGTH: usize = 32;

const BITMAP: u8 = 0x81;
const UPCASE: u8 = 0x82;
pub(super) const LABEL: u8 = 0x83;
pub(super) const FILE: u8 = 0x85;
const GUID: u8 = 0xa0;
const STREAM: u8 = 0xc0;
const NAME: u8 = 0xc1;
const VENDOR: u8 = 0xe0;

const ATTRIBUTE_READ_ONLY: u16 = 1;
const ATTRIBUTE_DIRECTORY: u16 = 0x10;
const FLAG_HAS_CLUSTERS: u8 = 1;
const FLAG_ONE_PIECE: u8 = 2;

/// Clusters that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) cluster: u64,
    /// Its length in bytes.
    pub(super) length: u64,
    /// It lies in consecutive clusters, so the table is not used.
    pub(super) is_one_piece: bool,
}

/// The meaning of a set of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The allocation bitmap.
    Bitmap(Stream),
    /// A table of the volume that is in clusters.
    Upcase(Stream),
    /// A directory.
    Directory(Stream),
    /// A file, of which this many bytes are valid.
    File(Stream, u64),
}

/// Splits a directory into sets, entry by entry.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The set that is being read.
    set: Vec<u8>,
    /// The secondary entries that it still lacks.
    missing: u8,
    /// The last entry was read.
    is_over: bool,
}

impl Sets {
    /// Whether the directory has no more entries.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the next entry. Returns what a set says that it completes.
    ///
    /// # Errors
    /// `Corrupt` if the set is invalid, or unknown to the specification.
    pub(super) fn push(&mut self, entry: &[u8]) -> Result<Option<Entry>> {
        let kind = entry[0];
        if self.missing > 0 {
            if kind & 0xc0 != 0xc0 {
                return Err(Error::corrupt("a set of directory entries ends early"));
            }
            self.set.extend_from_slice(entry);
            self.missing -= 1;
            return if self.missing == 0 { file(&self.set) } else { Ok(None) };
        }
        let stream = Stream { cluster: le32(entry, 20).into(), length: le64(entry, 24), is_one_piece: false };
        match kind {
            _ if self.is_over => Ok(None),
            0 => {
                self.is_over = true;
                Ok(None)
            }
            1..=0x7f | LABEL | GUID => Ok(None),
            BITMAP => Ok(Some(Entry::Bitmap(stream))),
            UPCASE => Ok(Some(Entry::Upcase(stream))),
            FILE => {
                self.missing = entry[1];
                if !(2..=18).contains(&self.missing) {
                    return Err(Error::corrupt(format!(
                        "a file has {} more directory entries",
                        self.missing
                    )));
                }
                self.set.clear();
                self.set.extend_from_slice(entry);
                Ok(None)
            }
            _ => Err(Error::corrupt(format!("it has a directory entry of the unknown type {kind:#x}"))),
        }
    }

    /// Checks that the directory does not end inside a set.
    ///
    /// # Errors
    /// `Corrupt` if it does.
    pub(super) fn finish(&self) -> Result<()> {
        match self.missing {
            0 => Ok(()),
            missing => Err(Error::corrupt(format!("a set of directory entries lacks its last {missing}"))),
        }
    }
}

/// The file of a complete set; `None` if it has no clusters.
fn file(set: &[u8]) -> Result<Option<Entry>> {
    let FileSet { is_directory, stream, valid, .. } = FileSet::parse(set)?;
    Ok(match (is_directory, stream.length) {
        (_, 0) => None,
        (true, _) => Some(Entry::Directory(stream)),
        (false, _) => Some(Entry::File(stream, valid)),
    })
}

/// A file or directory, as a complete set describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSet {
    pub(super) is_directory: bool,
    pub(super) is_read_only: bool,
    /// Those of a user, as in [`Metadata`](crate::files::Metadata).
    pub(super) flags: u64,
    pub(super) stream: Stream,
    /// The bytes that were written.
    pub(super) valid: u64,
    pub(super) name: String,
    /// Seconds since 1970, and nanoseconds.
    pub(super) mtime: (i64, u32),
    /// That of the last access.
    pub(super) atime: (i64, u32),
}

impl FileSet {
    /// Decodes a set, which has at least three entries.
    ///
    /// # Errors
    /// `Corrupt` if it is invalid.
    pub(super) fn parse(set: &[u8]) -> Result<Self> {
        let counted = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = counted.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)));
        if sum != le16(set, 2) {
            return Err(Error::corrupt("the checksum of a set of directory entries is wrong"));
        }
        let mut entries = set.chunks_exact(ENTRY_LENGTH);
        let (Some(primary), Some(first)) = (entries.next(), entries.next()) else {
            return Err(Error::corrupt("a set of directory entries ends early"));
        };
        // Other secondary entries may name clusters, which are not followed.
        if first[0] != STREAM || entries.clone().any(|entry| !matches!(entry[0], NAME | VENDOR)) {
            return Err(Error::corrupt("a set of directory entries has unknown ones"));
        }
        let stream = Stream {
            cluster: le32(first, 20).into(),
            length: le64(first, 24),
            is_one_piece: first[1] & FLAG_ONE_PIECE != 0,
        };
        let valid = le64(first, 8);
        if valid > stream.length || first[1] & FLAG_HAS_CLUSTERS == 0 && stream.length > 0 {
            return Err(Error::corrupt(format!(
                "a file has {valid} valid bytes in {} and the flags {:#x}",
                stream.length, first[1]
            )));
        }
        let units = entries.filter(|entry| entry[0] == NAME).flat_map(|entry| entry[2..].chunks_exact(2));
        let units = units.take(first[3].into()).map(|unit| le16(unit, 0));
        let attributes = le16(primary, 4);
        Ok(Self {
            is_directory: attributes & ATTRIBUTE_DIRECTORY != 0,
            is_read_only: attributes & ATTRIBUTE_READ_ONLY != 0,
            flags: u64::from(attributes) & DOS_FLAGS,
            stream,
            valid,
            name: String::from_utf16_lossy(&units.collect::<Vec<_>>()),
            mtime: time(primary, 12, primary[21], primary[23]),
            atime: time(primary, 16, 0, primary[24]),
        })
    }
}

/// A time: to two seconds at an offset, hundredths, and the distance to UTC in quarters of an hour.
fn time(primary: &[u8], at: usize, hundredths: u8, zone: u8) -> (i64, u32) {
    let hundredths = u32::from(hundredths.min(199));
    // Seven bits with a sign, if the eighth says that they are valid.
    let quarters = if zone & 0x80 == 0 { 0 } else { i64::from((zone << 1).cast_signed() >> 1) };
    let seconds = dos_time(le32(primary, at)) - quarters * 900 + i64::from(hundredths / 100);
    (seconds, hundredths % 100 * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(attributes: u16, flags: u8, valid: u64, length: u64) -> Vec<[u8; 32]> {
        let (mut primary, mut stream, mut name) = ([0; 32], [0; 32], [0; 32]);
        (primary[0], primary[1], stream[0], name[0]) = (FILE, 2, STREAM, NAME);
        primary[4..6].copy_from_slice(&attributes.to_le_bytes());
        stream[1] = flags;
        stream[8..16].copy_from_slice(&valid.to_le_bytes());
        stream[20] = 7;
        stream[24..32].copy_from_slice(&length.to_le_bytes());
        sealed(vec![primary, stream, name])
    }

    fn sealed(mut set: Vec<[u8; 32]>) -> Vec<[u8; 32]> {
        (set[0][2], set[0][3]) = (0, 0);
        let bytes = set.concat();
        let counted = bytes.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = counted.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)));
        set[0][2..4].copy_from_slice(&sum.to_le_bytes());
        set
    }

    fn read(entries: &[[u8; 32]]) -> std::result::Result<Vec<Entry>, String> {
        let mut sets = Sets::default();
        let mut found = Vec::new();
        for entry in entries {
            found.extend(sets.push(entry).map_err(|error| error.to_string())?);
        }
        sets.finish().map_err(|error| error.to_string())?;
        Ok(found)
    }

    #[test]
    fn sets_name_files_and_directories() {
        let stream = |length, is_one_piece| Stream { cluster: 7, length, is_one_piece };
        let mut vendor = set(0, 3, 5, 9);
        vendor[0][1] = 3;
        vendor.push([VENDOR; 32]);
        let deleted: Vec<[u8; 32]> = set(0, 3, 5, 9)
            .into_iter()
            .map(|mut entry| {
                entry[0] &= 0x7f;
                entry
            })
            .collect();
        let all = [
            set(0x20, 3, 5, 9),
            deleted,
            set(0x10, 1, 9, 9),
            set(0x20, 1, 0, 0),
            sealed(vendor),
            vec![[0; 32]],
            set(0, 3, 1, 1),
        ];
        let expected = [
            Entry::File(stream(9, true), 5),
            Entry::Directory(stream(9, false)),
            Entry::File(stream(9, true), 5),
        ];
        assert_eq!(read(&all.concat()).unwrap(), expected);
    }

    #[test]
    fn times_have_a_zone() {
        let mut primary = [0; 32];
        primary[12..16].copy_from_slice(&(0x21_u32 << 16).to_le_bytes());
        primary[21] = 150;
        assert_eq!(time(&primary, 12, primary[21], primary[23]), (315_532_801, 500_000_000));
        primary[23] = 0x80 | 4;
        assert_eq!(time(&primary, 12, primary[21], primary[23]).0, 315_532_801 - 3600, "an hour east of UTC");
        primary[23] = 0x80 | 0x7c;
        assert_eq!(time(&primary, 12, primary[21], primary[23]).0, 315_532_801 + 3600, "an hour west of UTC");
    }

    #[test]
    fn invalid_and_unknown_sets_are_errors() {
        let mut sum = set(0, 3, 5, 9);
        sum[1][9] ^= 1;
        let mut unknown = set(0, 3, 5, 9);
        unknown[2][0] = 0xe1;
        let mut few = set(0, 3, 5, 9);
        few[0][1] = 1;
        for (entries, expected) in [
            (sum, "checksum of a set"),
            (sealed(unknown), "has unknown ones"),
            (few, "1 more directory entries"),
            (set(0, 3, 10, 9), "10 valid bytes in 9"),
            (set(0, 0, 5, 9), "flags 0x0"),
            (set(0, 3, 5, 9)[..2].to_vec(), "lacks its last 1"),
            ([&set(0, 3, 5, 9)[..2], &set(0, 3, 5, 9)].concat(), "ends early"),
            (vec![[0xe2; 32]], "unknown type 0xe2"),
            (vec![[0xa1; 32]], "unknown type 0xa1"),
        ] {
            let error = read(&entries).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
