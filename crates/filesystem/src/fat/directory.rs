//! Directories: 32-byte entries that name the first cluster and the length of a file.
//!
//! The first byte of the name is 0 after the last entry and 0xe5 in a deleted one; attributes are at 11, the halves of
//! the first cluster at 26 and 20 (the latter only on FAT32), the length at 28. Entries with the attributes of a
//! volume label belong to long names or name the volume.

use crate::fields::{le16, le32};

/// Bytes per entry.
pub(super) const ENTRY_LENGTH: usize = 32;
/// A longer directory is invalid; in bytes.
pub(super) const DIRECTORY_LENGTH_MAX: u64 = 2 << 20;

const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTE_DIRECTORY: u8 = 0x10;

/// An entry that names a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) is_directory: bool,
    /// The first cluster; 0 if there is none.
    pub(super) cluster: u64,
    /// The length of a file in bytes.
    pub(super) length: u64,
}

/// The entries in use, each with its offset in the directory, without those of the directory itself and its parent.
pub(super) fn entries(bytes: &[u8], is_32: bool) -> impl Iterator<Item = (usize, Entry)> + '_ {
    let named = bytes.chunks_exact(ENTRY_LENGTH).enumerate().filter(|(_, entry)| {
        let is_itself = entry.starts_with(b".          ") || entry.starts_with(b"..         ");
        // Some systems end at a name of 0. Others read on, and use what follows.
        !matches!(entry[0], 0 | 0xe5) && entry[11] & ATTRIBUTE_LABEL == 0 && !is_itself
    });
    named.map(move |(number, entry)| {
        let high = if is_32 { u64::from(le16(entry, 20)) } else { 0 };
        let named = Entry {
            is_directory: entry[11] & ATTRIBUTE_DIRECTORY != 0,
            cluster: high << 16 | u64::from(le16(entry, 26)),
            length: le32(entry, 28).into(),
        };
        (number * ENTRY_LENGTH, named)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(name: &[u8; 11], attributes: u8) -> [u8; 32] {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(name);
        entry[11] = attributes;
        (entry[20], entry[26], entry[28]) = (1, 2, 3);
        entry
    }

    #[test]
    fn only_entries_in_use_name_clusters() {
        let directory = [
            raw(b".          ", 0x10),
            raw(b"..         ", 0x10),
            raw(b"VOLUME     ", 0x08),
            raw(b"Al.o.n.g.n.", 0x0f),
            raw(b"\xe5ELETED    ", 0x20),
            raw(b"FILE    TXT", 0x20),
            raw(b"FOLDER     ", 0x10),
            raw(b"\0FTER      ", 0x20),
            raw(b"BEYOND     ", 0x20),
        ]
        .concat();
        let file = Entry { is_directory: false, cluster: 0x1_0002, length: 3 };
        let folder = Entry { is_directory: true, ..file };
        assert_eq!(entries(&directory, true).collect::<Vec<_>>(), [(160, file), (192, folder), (256, file)]);
        assert_eq!(entries(&directory, false).next(), Some((160, Entry { cluster: 2, ..file })));
    }
}
