//! Directories: inside the inode, or in blocks of entries.
//!
//! The data of a directory is in the first 32 GiB of its contents, in blocks of a length that the superblock states; what
//! follows are indexes, which are not read. A block has a header, then entries with their length, and, if it is the only one, an
//! index at its end. An entry has the number of the inode (8 bytes), the length of the name (1), the name, a type (1) if the
//! superblock says so, padding to a multiple of 8, and its own offset in the last two bytes.

use platter_image::{Error, Result};

use super::superblock::Superblock;
use super::volume::is_checksum_correct;
use crate::fields::{be16, be32, be64, has};
use crate::files::Listing;

/// Contents from here on are indexes.
pub(super) const DATA_END: u64 = 32 << 30;

const FREE_TAG: u16 = 0xffff;

/// Adds the names of a directory that is in its inode.
///
/// # Errors
/// `Corrupt` if an entry reaches past the end.
pub(super) fn add_inside(listing: &mut Listing, superblock: &Superblock, bytes: &[u8]) -> Result<()> {
    let (count, wide) = (bytes.first().copied().unwrap_or(0), bytes.get(1).copied().unwrap_or(0));
    let number_length = if wide > 0 { 8 } else { 4 };
    let type_length = usize::from(superblock.has_file_types);
    let mut rest = bytes.get(2 + number_length..).unwrap_or_default();
    for _ in 0..count {
        let name_length = usize::from(rest.first().copied().unwrap_or(0));
        let name = rest.get(3..3 + name_length);
        let number = rest.get(3 + name_length + type_length..);
        let (Some(name), Some(number)) = (name, number.filter(|rest| rest.len() >= number_length)) else {
            return Err(Error::corrupt("an entry of the directory reaches past the end of the inode"));
        };
        let inode = if wide > 0 { be64(number, 0) } else { be32(number, 0).into() };
        listing.add(name, inode)?;
        rest = &number[number_length..];
    }
    Ok(())
}

/// Adds the names in a block at this offset of the directory.
///
/// # Errors
/// `Corrupt` if it is not what it must be.
pub(super) fn add_block(
    listing: &mut Listing,
    superblock: &Superblock,
    block: &[u8],
    offset: u64,
) -> Result<()> {
    let wrong = |what: &str| Err(Error::corrupt(format!("the directory's block at byte {offset} {what}")));
    let has_checksums = superblock.has_checksums;
    let (single, data, start) = if has_checksums { (b"XDB3", b"XDD3", 64) } else { (b"XD2B", b"XD2D", 16) };
    let end = if has(block, 0, single) {
        // Behind the entries: an index of 8 bytes for each, and their number.
        let entries = be32(block, block.len() - 8) as usize;
        (block.len() - 8).saturating_sub(entries.saturating_mul(8))
    } else if has(block, 0, data) {
        block.len()
    } else {
        return wrong("has a wrong magic number");
    };
    if has_checksums && !is_checksum_correct(block, 4) {
        return wrong("has a wrong checksum");
    }
    if end < start {
        return wrong("has an index that is too long");
    }
    let mut at = start;
    while at < end {
        let rest = &block[at..end];
        let length = if be16(rest, 0) == FREE_TAG {
            usize::from(be16(rest, 2))
        } else {
            let name_length = usize::from(rest.get(8).copied().unwrap_or(0));
            let Some(name) = rest.get(9..9 + name_length) else { return wrong("has an entry past its end") };
            listing.add(name, be64(rest, 0))?;
            (9 + name_length + usize::from(superblock.has_file_types) + 2).next_multiple_of(8)
        };
        if length < 8 || !length.is_multiple_of(8) || length > rest.len() {
            return wrong(&format!("has an entry of {length} bytes at {at}"));
        }
        at += length;
    }
    Ok(())
}
