//! Directories: names and the inodes they lead to.
//!
//! A directory's blocks are lists of entries (inode 4 bytes, entry length 2, name length 1, type 1, name). The nodes of
//! a hashed directory look like blocks with no entries in use, so reading all blocks one after the other is enough,
//! whatever index there is. Nothing is believed: an entry that leads out of its block, or a name that cannot be, makes
//! the directory one that cannot be read.

use platter_image::{Error, Result};

use crate::fields::{le16, le32};

/// What is in front of an entry's name.
const HEADER_LENGTH: usize = 8;
/// In a block of 64 KiB, the length of an entry that fills it does not fit its field.
const WHOLE_BLOCK: usize = 65536;

/// Most names of one directory that are read, and most bytes of them: 700 MiB of memory.
const NAMES_MAX: usize = 1 << 24;
const NAME_BYTES_MAX: usize = 512 << 20;

/// The names of a directory, in the order of their bytes, without those of itself and its parent. Names that are
/// encrypted are as they stand on the disk.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// All names, one after the other.
    text: Vec<u8>,
    names: Vec<Name>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    start: u32,
    length: u8,
    inode: u32,
}

impl Listing {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name at that place, and its inode.
    pub fn get(&self, place: usize) -> Option<(&[u8], u32)> {
        let name = self.names.get(place)?;
        Some((self.text_of(name), name.inode))
    }

    fn text_of(&self, name: &Name) -> &[u8] {
        let start = name.start as usize;
        self.text.get(start..start + usize::from(name.length)).unwrap_or_default()
    }

    /// Adds the entries of one block, or of what stands in an inode. `inodes` is how many the filesystem has.
    ///
    /// # Errors
    /// `Corrupt` when it is no list of entries, or names an inode that cannot be.
    pub(super) fn add_block(&mut self, block: &[u8], inodes: u32) -> Result<()> {
        for entry in entries(block) {
            let (inode, name) = entry?;
            if inode != 0 && name != b"." && name != b".." {
                self.add(name, inode, inodes)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &[u8], inode: u32, inodes: u32) -> Result<()> {
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::corrupt(format!(
                "a name that cannot be: {:?}",
                String::from_utf8_lossy(name)
            )));
        }
        if inode > inodes {
            return Err(Error::corrupt(format!(
                "{:?} leads to inode {inode}, and there are {inodes}",
                String::from_utf8_lossy(name)
            )));
        }
        if self.names.len() >= NAMES_MAX || self.text.len() >= NAME_BYTES_MAX {
            return Err(Error::corrupt(format!("more than {} names, which are not read", self.names.len())));
        }
        self.names.push(Name { start: self.text.len() as u32, length: name.len() as u8, inode });
        self.text.extend_from_slice(name);
        Ok(())
    }

    /// Puts the names in order, once all are there.
    ///
    /// # Errors
    /// `Corrupt` when a name is there twice.
    pub(super) fn sorted(mut self) -> Result<Self> {
        let mut names = std::mem::take(&mut self.names);
        names.sort_unstable_by(|a, b| self.text_of(a).cmp(self.text_of(b)));
        let twice = names.windows(2).find(|pair| self.text_of(&pair[0]) == self.text_of(&pair[1]));
        if let Some([name, _]) = twice {
            let text = String::from_utf8_lossy(self.text_of(name)).into_owned();
            return Err(Error::corrupt(format!("the name {text:?} is there twice")));
        }
        self.names = names;
        Ok(self)
    }
}

/// The entries of one block, or of what stands in an inode: inode and name; the inode is 0 where there is no name. Ends
/// after an error, which says that it is no list of entries.
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
            return Some(Err(Error::corrupt(format!(
                "a directory entry of {length} bytes, which cannot be"
            ))));
        };
        rest = after;
        Some(Ok((le32(entry, 0), &entry[HEADER_LENGTH..HEADER_LENGTH + name_length])))
    })
}

/// The length of the entry that `rest` begins with, in a block of `block_length` bytes.
fn entry_length(rest: &[u8], block_length: usize) -> usize {
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

    fn read(blocks: &[Vec<u8>]) -> Result<Vec<(String, u32)>> {
        let mut listing = Listing::default();
        for block in blocks {
            listing.add_block(block, 100)?;
        }
        let listing = listing.sorted()?;
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
    }

    #[test]
    fn nodes_of_an_index_and_checksums_are_no_names() {
        let node = entry(0, 1024, b"");
        let mut tail = entry(12, 1012, b"a");
        tail.extend(entry(0, 12, b""));
        assert_eq!(read(&[node, tail]).unwrap(), [("a".into(), 12)]);
    }

    /// Blocks of 64 KiB keep two bits of a length where its multiple of four leaves room.
    #[test]
    fn lengths_in_large_blocks() {
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
            ("an inode that is not there", entry(101, 12, b"a")),
            ("a slash", entry(12, 12, b"a/b")),
            ("a zero byte", entry(12, 12, b"a\0b")),
            ("no name", entry(12, 12, b"")),
            ("a head cut short", vec![1; 6]),
            ("twice", [entry(12, 12, b"a"), entry(13, 12, b"a")].concat()),
        ];
        for (what, block) in hostile {
            let error = read(&[block]).expect_err(what);
            assert_eq!(error.kind(), platter_image::ErrorKind::Corrupt, "{what}");
        }
    }
}
