//! Directories: names, and the inodes to which they refer.
//!
//! A directory's blocks are lists of entries (inode 4 bytes, entry length 2, name length 1, type 1, name).
//! The index nodes of a hashed directory look like blocks without used entries, so reading all blocks in
//! sequence suffices with any index. Nothing is trusted: an entry that reaches past its block, or an invalid
//! name, makes the whole directory unreadable.

use platter_image::{Error, Result};

use crate::fields::{le16, le32};
use crate::files::Listing;

/// Bytes of an entry before its name.
const HEADER_LENGTH: usize = 8;
/// In a 64 KiB block, the length of an entry that fills it does not fit into the length field.
const WHOLE_BLOCK: usize = 65536;

/// Adds the entries of one block, or of the part stored in an inode. `inodes` is the number of inodes in the filesystem.
///
/// # Errors
/// `Corrupt` when it is not a list of entries, or there are too many names.
pub(super) fn add_block(listing: &mut Listing, block: &[u8], inodes: u32) -> Result<()> {
    for entry in entries(block) {
        let (inode, name) = entry?;
        if inode > inodes {
            listing.fault(format!(
                "{:?} refers to inode {inode}, but there are only {inodes}",
                String::from_utf8_lossy(name)
            ));
        } else if inode != 0 {
            listing.add(name, inode.into())?;
        }
    }
    Ok(())
}

/// The entries of one block, or of the part stored in an inode: inode and name. Unused entries have inode 0.
/// Ends after an error, which means that it is not a list of entries.
pub(super) fn entries(block: &[u8]) -> impl Iterator<Item = Result<(u32, &[u8])>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = entry_length(rest, block.len());
        let name_length = usize::from(rest.get(6).copied().unwrap_or(0));
        let fits = length.is_multiple_of(4) && length >= HEADER_LENGTH + name_length;
        let Some((entry, after)) = rest.split_at_checked(length).filter(|_| fits) else {
            rest = &[];
            return Some(Err(Error::corrupt(format!("invalid directory entry of {length} bytes"))));
        };
        rest = after;
        Some(Ok((le32(entry, 0), &entry[HEADER_LENGTH..HEADER_LENGTH + name_length])))
    })
}

/// The length of the first entry in `rest`, in a block of `block_length` bytes.
pub(super) fn entry_length(rest: &[u8], block_length: usize) -> usize {
    let field = usize::from(le16(rest, 4));
    match field {
        0 | 0xffff if block_length == WHOLE_BLOCK => WHOLE_BLOCK,
        _ if block_length == WHOLE_BLOCK => (field & !3) | (field & 3) << 16,
        _ => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, length: u16, name: &[u8]) -> Vec<u8> {
        let mut bytes = inode.to_le_bytes().to_vec();
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&[name.len() as u8, 1]);
        bytes.extend_from_slice(name);
        bytes.resize(usize::from(length).max(bytes.len()), 0);
        bytes
    }

    fn read(blocks: &[Vec<u8>]) -> Result<Vec<(String, u64)>> {
        let mut listing = Listing::default();
        for block in blocks {
            add_block(&mut listing, block, 100)?;
        }
        let listing = listing.sorted().complete()?;
        let name = |place| {
            listing.get(place).map(|(name, inode)| (String::from_utf8_lossy(name).into_owned(), inode))
        };
        Ok((0..listing.len()).filter_map(name).collect())
    }

    #[test]
    fn names_are_read_and_sorted() {
        let first = [entry(2, 12, b"."), entry(2, 12, b".."), entry(12, 16, b"zebra"), entry(0, 24, b"gone")];
        let second = [entry(13, 12, b"ant"), entry(100, 52, b"\xff\xfe")];
        let names = read(&[first.concat(), second.concat()]).unwrap();
        assert_eq!(names, [("ant".into(), 13), ("zebra".into(), 12), ("\u{fffd}\u{fffd}".into(), 100)]);
        let mut listing = Listing::default();
        add_block(&mut listing, &first.concat(), 100).unwrap();
        let listing = listing.sorted();
        assert_eq!((listing.find(b"zebra"), listing.find(b"gone")), (Some(12), None));
    }

    #[test]
    fn index_nodes_and_checksums_are_not_names() {
        let node = entry(0, 1024, b"");
        let mut tail = entry(12, 1012, b"a");
        tail.extend(entry(0, 12, b""));
        assert_eq!(read(&[node, tail]).unwrap(), [("a".into(), 12)]);
    }

    /// In 64 KiB blocks, two more bits of the length are stored in its lowest bits, which are otherwise zero.
    #[test]
    fn entry_lengths_in_64_kib_blocks() {
        for field in [0, 0xffff] {
            let mut block = entry(12, 12, b"all");
            block[4..6].copy_from_slice(&u16::to_le_bytes(field));
            block.resize(65536, 0);
            assert_eq!(read(&[block]).unwrap(), [("all".into(), 12)]);
        }
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let long_name = {
            let mut bytes = entry(12, 12, b"abc");
            bytes[6] = 200;
            bytes
        };
        let hostile = [
            ("length 0", entry(12, 0, b"")),
            ("shorter than its head", entry(12, 4, b"a")),
            ("no multiple of four", entry(12, 13, b"a")),
            ("past the block", [entry(12, 12, b"a"), entry(13, 12, b"b")[..8].to_vec()].concat()),
            ("a name past its entry", long_name),
            ("an inode that does not exist", entry(101, 12, b"a")),
            ("a slash", entry(12, 12, b"a/b")),
            ("a zero byte", entry(12, 12, b"a\0b")),
            ("no name", entry(12, 12, b"")),
            ("a truncated entry", vec![1; 6]),
            ("twice", [entry(12, 12, b"a"), entry(13, 12, b"a")].concat()),
        ];
        for (what, block) in hostile {
            let error = read(&[block]).expect_err(what);
            assert_eq!(error.kind(), platter_image::ErrorKind::Corrupt, "{what}");
        }
    }
}
