//! The entries of a directory.

use platter_image::{Error, Result};

use crate::fields::{le16, le32};

/// Entries do not cross multiples of this length.
pub(super) const SECTION_LENGTH: usize = 512;
/// The bytes of an entry before its name.
const FIXED_LENGTH: usize = 8;

/// Calls `visit` with the number of each inode that a directory names. `bytes` are whole sections.
///
/// # Errors
/// `Corrupt` if an entry is not possible; those of `visit`.
pub(super) fn for_each_inode(bytes: &[u8], visit: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    for section in bytes.chunks(SECTION_LENGTH) {
        let mut at = 0;
        while at < section.len() {
            let (inode, length) = (le32(section, at), usize::from(le16(section, at + 4)));
            let name = usize::from(section.get(at + 7).copied().unwrap_or(0));
            let is_possible = length.is_multiple_of(4)
                && length >= FIXED_LENGTH
                && length <= section.len() - at
                && (inode == 0 || FIXED_LENGTH + name <= length);
            if !is_possible {
                return Err(Error::corrupt(format!("an entry of it has {length} bytes")));
            }
            if inode != 0 {
                visit(inode.into())?;
            }
            at += length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, length: u16, name: u8) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(length)];
        bytes[..4].copy_from_slice(&inode.to_le_bytes());
        bytes[4..6].copy_from_slice(&length.to_le_bytes());
        bytes[7] = name;
        bytes
    }

    fn inodes(entries: &[Vec<u8>]) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for_each_inode(&entries.concat(), &mut |inode| {
            found.push(inode);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn entries_fill_each_section() {
        let first = [entry(2, 12, 1), entry(2, 12, 2), entry(0, 488, 255)];
        assert_eq!(inodes(&first).unwrap(), [2, 2]);
        assert_eq!(inodes(&[first.concat(), entry(7, 512, 255)]).unwrap(), [2, 2, 7]);
        for wrong in [entry(2, 516, 1), entry(2, 508, 1), entry(2, 12, 5), entry(2, 10, 1)] {
            assert!(inodes(&[wrong, vec![0; 4]]).is_err());
        }
    }
}
