//! Extended attributes: in the rest of an inode, in a separate block, or with values in separate inodes.
//!
//! Entries (name length 1 byte, name index 1, value offset 2, value inode 4, value length 4, hash 4, name)
//! follow each other until four zero bytes. Value offsets are relative to the first entry in an inode, and to
//! the start in a block.

use platter_image::{Error, Result};

use crate::fields::{le16, le32};
use crate::files::Attribute;

const MAGIC: u32 = 0xea02_0000;
const ENTRY_LENGTH: usize = 16;
const BLOCK_HEADER_LENGTH: usize = 32;
/// The part of an inode that every version of ext has.
const OLD_INODE_LENGTH: usize = 128;
/// The most bytes of a value, as in the kernel.
pub(super) const VALUE_LENGTH_MAX: u32 = 65536;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The index of names that begin with `system.` and have no index of their own.
const INDEX_SYSTEM: u8 = 7;

/// An extended attribute as stored.
pub(super) struct Stored {
    /// The number of the name's prefix.
    pub(super) index: u8,
    /// The rest of the name.
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Stored {
    /// Whether it is the rest of contents that are inside the inode.
    pub(super) fn is_inline_data(&self) -> bool {
        is_inline_data(self.index, &self.name)
    }

    /// In the form of the system. An access control list that is invalid stays as it is.
    pub(super) fn decode(self) -> Attribute {
        let Self { index, name, value } = self;
        let prefix = match index {
            1 => "user.".to_owned(),
            2 | 3 => {
                let name = if index == 2 { ACCESS } else { DEFAULT };
                let value = access_list(&value).unwrap_or(value);
                return Attribute { name: name.to_vec(), value };
            }
            4 => "trusted.".to_owned(),
            6 => "security.".to_owned(),
            INDEX_SYSTEM => "system.".to_owned(),
            8 => "system.richacl".to_owned(),
            other => format!("ext-{other}."),
        };
        Attribute { name: [prefix.as_bytes(), &name].concat(), value }
    }
}

/// An access control list in the form of the system. On the disk, only entries of named users and groups have an id.
fn access_list(stored: &[u8]) -> Option<Vec<u8>> {
    const NAMED: [u16; 2] = [0x02, 0x08];
    let mut rest = stored.strip_prefix(&1_u32.to_le_bytes())?;
    let mut list = 2_u32.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (entry, after) = rest.split_at_checked(4)?;
        list.extend_from_slice(entry);
        rest = after;
        if NAMED.contains(&le16(entry, 0)) {
            let (id, after) = rest.split_at_checked(4)?;
            list.extend_from_slice(id);
            rest = after;
        } else {
            list.extend_from_slice(&u32::MAX.to_le_bytes());
        }
    }
    Some(list)
}

/// Whether an attribute of that name is the rest of contents that are inside the inode.
pub(super) fn is_inline_data(index: u8, name: &[u8]) -> bool {
    index == INDEX_SYSTEM && name == b"data"
}

/// Where a value is.
pub(super) enum Value<'b> {
    Here(&'b [u8]),
    /// In the contents of an inode: its number, and the value's length in bytes.
    Inode(u32, u32),
}

/// Called for each attribute with the prefix's number, the rest of the name, and the value.
pub(super) type Visit<'v> = &'v mut dyn FnMut(u8, &[u8], Value<'_>) -> Result<()>;

/// Calls `visit` with each attribute inside an inode.
///
/// # Errors
/// `Corrupt` when they are invalid; errors of `visit`.
pub(super) fn in_inode(inode: &[u8], visit: Visit<'_>) -> Result<()> {
    let extra = usize::from(le16(inode, OLD_INODE_LENGTH));
    let Some(area) = inode.get(OLD_INODE_LENGTH + extra..).filter(|area| extra > 0 && area.len() > 4) else {
        return Ok(());
    };
    if le32(area, 0) != MAGIC {
        return Ok(());
    }
    entries(&area[4..], &area[4..], visit)
}

/// Calls `visit` with each attribute of a block.
///
/// # Errors
/// Those of [`in_inode`].
pub(super) fn in_block(block: &[u8], visit: Visit<'_>) -> Result<()> {
    if le32(block, 0) != MAGIC || le32(block, 8) != 1 {
        return Err(Error::corrupt("not a block of attributes"));
    }
    entries(block.get(BLOCK_HEADER_LENGTH..).unwrap_or_default(), block, visit)
}

fn entries(mut rest: &[u8], values: &[u8], visit: Visit<'_>) -> Result<()> {
    let corrupt = || Error::corrupt("an attribute reaches past the end");
    while rest.len() >= 4 && le32(rest, 0) != 0 {
        let name_length = usize::from(rest[0]);
        let name = rest.get(ENTRY_LENGTH..ENTRY_LENGTH + name_length).ok_or_else(corrupt)?;
        let (offset, inode, length) = (usize::from(le16(rest, 2)), le32(rest, 4), le32(rest, 8));
        if length > VALUE_LENGTH_MAX {
            return Err(Error::corrupt(format!("an attribute of {length} bytes is too long")));
        }
        let value = match inode {
            0 if length == 0 => Value::Here(&[]),
            0 => {
                let value = values.get(offset..offset + length as usize);
                Value::Here(value.ok_or_else(corrupt)?)
            }
            inode => Value::Inode(inode, length),
        };
        visit(rest[1], name, value)?;
        let next = (ENTRY_LENGTH + name_length).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], offset: u16, length: u32) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8, 1];
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn block(entries: &[Vec<u8>], values: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        bytes.resize(BLOCK_HEADER_LENGTH, 0);
        bytes.extend(entries.concat());
        bytes.resize(1024 - values.len(), 0);
        bytes.extend_from_slice(values);
        bytes
    }

    fn read(block: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        in_block(block, &mut |_, name, value| {
            if let Value::Here(value) = value {
                found.push((name.to_vec(), value.to_vec()));
            }
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn a_block_with_two_attributes_is_read() {
        let found = read(&block(&[entry(b"color", 1021, 3), entry(b"empty", 0, 0)], b"red")).unwrap();
        assert_eq!(found, [(b"color".to_vec(), b"red".to_vec()), (b"empty".to_vec(), Vec::new())]);
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let long = entry(&[b'x'; 255], 0, 0).repeat(4);
        let far = entry(b"color", 1023, 3);
        let huge = entry(b"color", 0, VALUE_LENGTH_MAX + 1);
        for (what, entries) in [("a name", long), ("a value", far), ("a length", huge)] {
            let error = read(&block(&[entries[..entries.len().min(990)].to_vec()], b"")).expect_err(what);
            assert_eq!(error.kind(), platter_image::ErrorKind::Corrupt, "{what}");
        }
        assert!(read(&[0; 1024]).is_err());
    }

    #[test]
    fn access_lists_get_their_ids() {
        let stored = [&[1, 0, 0, 0][..], &[1, 0, 6, 0], &[2, 0, 4, 0, 0xe8, 3, 0, 0], &[4, 0, 4, 0]].concat();
        let expected = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
        ];
        let decoded = Stored { index: 2, name: Vec::new(), value: stored.clone() }.decode();
        assert_eq!(decoded, Attribute { name: ACCESS.to_vec(), value: expected.concat() });
        assert_eq!(access_list(&stored[..stored.len() - 2]), None, "truncated");
        assert_eq!(access_list(b"\x02\0\0\0"), None, "another version");
    }

    /// The attributes of an inode may claim to begin anywhere.
    #[test]
    fn hostile_inodes_do_not_panic() {
        for extra in [0_u16, 4, 28, 124, 127, 128, 60000] {
            let mut inode = vec![0xff; 256];
            inode[128..130].copy_from_slice(&extra.to_le_bytes());
            let _ = in_inode(&inode, &mut |_, _, _| Ok(()));
        }
    }
}
