//! Extended attributes: inside the inode, or in the leaves of a tree in the attribute fork, with long values in blocks of their
//! own.

use std::collections::HashSet;

use platter_image::{Error, Result};

use super::superblock::Superblock;
use super::volume::is_checksum_correct;
use crate::fields::{be16, be32, be64, has};
use crate::files::{Attribute, AttributeList};

/// The most bytes of a value, as in the kernel.
const VALUE_LENGTH_MAX: u32 = 65536;
/// A tree with more nodes is not read: 65,536 blocks have room for more attributes than a file can have.
const NODES_MAX: usize = 1 << 16;
/// Blocks with a part of a value have this header, if there are checksums.
const VALUE_HEADER: usize = 56;

const LEAF: [u16; 2] = [0xfbee, 0x3bee];
const NODE: [u16; 2] = [0xfebe, 0x3ebe];

const FLAG_LOCAL: u8 = 1;
const FLAG_ROOT: u8 = 2;
const FLAG_SECURE: u8 = 4;
/// A pointer to the parent, or an attribute that is being written.
const FLAGS_HIDDEN: u8 = 8 | 0x80;

/// Reads blocks of the attribute fork by number.
pub(super) trait Blocks {
    /// # Errors
    /// `Corrupt` if there is no such block; errors of reading the disk.
    fn read(&mut self, number: u32) -> Result<Vec<u8>>;
}

/// The attributes inside an inode.
///
/// # Errors
/// `Corrupt` if one reaches past the end.
pub(super) fn inside(bytes: &[u8]) -> Result<Vec<Attribute>> {
    let mut found = Vec::new();
    let mut rest = bytes.get(4..).unwrap_or_default();
    for _ in 0..bytes.get(2).copied().unwrap_or(0) {
        let [name, value] = [0, 1].map(|at| usize::from(rest.get(at).copied().unwrap_or(0)));
        let flags = rest.get(2).copied().unwrap_or(0);
        let (Some(text), Some(contents)) = (rest.get(3..3 + name), rest.get(3 + name..3 + name + value))
        else {
            return Err(Error::corrupt("an attribute reaches past the end of the inode"));
        };
        found.extend(decode(flags, text, contents));
        rest = &rest[3 + name + value..];
    }
    Ok(found)
}

/// The attributes in the blocks of the attribute fork, sorted by name.
///
/// # Errors
/// `Corrupt` if a block is not what it must be; errors of reading the disk.
pub(super) fn in_blocks(has_checksums: bool, blocks: &mut dyn Blocks) -> Result<Vec<Attribute>> {
    let mut found = AttributeList::default();
    let mut numbers = vec![0];
    let mut seen = HashSet::new();
    while let Some(number) = numbers.pop() {
        let wrong = |what: &str| Error::corrupt(format!("block {number} of its attributes {what}"));
        if !seen.insert(number) {
            return Err(wrong("has two parents"));
        }
        if seen.len() > NODES_MAX {
            return Err(Error::corrupt("the tree of its attributes has too many nodes"));
        }
        let block = blocks.read(number)?;
        if has_checksums && !is_checksum_correct(&block, 12) {
            return Err(wrong("has a wrong checksum"));
        }
        let place = usize::from(has_checksums);
        let magic = be16(&block, 8);
        let count = usize::from(be16(&block, [12, 56][place]));
        let start = [[32, 80], [16, 64]][usize::from(magic == NODE[place])][place];
        let entries =
            block.get(start..start + count * 8).ok_or_else(|| wrong("has more entries than fit"))?;
        if magic == NODE[place] {
            numbers.extend(entries.chunks_exact(8).map(|entry| be32(entry, 4)));
            continue;
        }
        if magic != LEAF[place] {
            return Err(wrong("has a wrong magic number"));
        }
        for entry in entries.chunks_exact(8) {
            let (at, flags) = (usize::from(be16(entry, 4)), entry[6]);
            let rest = block.get(at..).unwrap_or_default();
            let attribute = match flags & FLAG_LOCAL != 0 {
                true => local(flags, rest),
                false => remote(has_checksums, flags, rest, blocks)?,
            };
            let attribute = attribute.ok_or_else(|| wrong("has an attribute past its end"))?;
            attribute.map_or(Ok(()), |attribute| found.add(attribute))?;
        }
    }
    Ok(found.sorted())
}

/// An attribute with its value in the leaf; `None` if it does not fit.
fn local(flags: u8, rest: &[u8]) -> Option<Option<Attribute>> {
    let (value, name) = (usize::from(be16(rest, 0)), usize::from(*rest.get(2)?));
    Some(decode(flags, rest.get(3..3 + name)?, rest.get(3 + name..3 + name + value)?))
}

/// An attribute with its value in blocks of its own.
fn remote(
    has_checksums: bool,
    flags: u8,
    rest: &[u8],
    blocks: &mut dyn Blocks,
) -> Result<Option<Option<Attribute>>> {
    let (first, length) = (be32(rest, 0), be32(rest, 4));
    let name = rest.get(8).and_then(|length| rest.get(9..9 + usize::from(*length)));
    let Some(name) = name.filter(|_| length <= VALUE_LENGTH_MAX) else { return Ok(None) };
    if flags & FLAGS_HIDDEN != 0 {
        return Ok(Some(None));
    }
    let mut value = Vec::new();
    for number in first.. {
        if value.len() >= length as usize {
            break;
        }
        let block = blocks.read(number)?;
        let bytes = match has_checksums {
            true if !has(&block, 0, b"XARM") || !is_checksum_correct(&block, 12) => {
                return Err(Error::corrupt(format!(
                    "block {number} of its attributes is no part of a value"
                )));
            }
            true => block.get(VALUE_HEADER..).unwrap_or_default(),
            false => &block,
        };
        value.extend_from_slice(&bytes[..bytes.len().min(length as usize - value.len())]);
    }
    Ok(Some(decode(flags, name, &value)))
}

/// In the form of the system; `None` if it is not shown.
fn decode(flags: u8, name: &[u8], value: &[u8]) -> Option<Attribute> {
    if flags & FLAGS_HIDDEN != 0 {
        return None;
    }
    if flags & FLAG_ROOT != 0 {
        let list = match name {
            b"SGI_ACL_FILE" => Some(&b"system.posix_acl_access"[..]),
            b"SGI_ACL_DEFAULT" => Some(&b"system.posix_acl_default"[..]),
            _ => None,
        };
        if let (Some(name), Some(value)) = (list, access_list(value)) {
            return Some(Attribute { name: name.to_vec(), value });
        }
    }
    let prefix: &[u8] = match flags {
        _ if flags & FLAG_SECURE != 0 => b"security.",
        _ if flags & FLAG_ROOT != 0 => b"trusted.",
        _ => b"user.",
    };
    Some(Attribute { name: [prefix, name].concat(), value: value.to_vec() })
}

/// An access control list in the form of the system. On the disk, it has 12 bytes for each entry: tag, id, permissions.
fn access_list(stored: &[u8]) -> Option<Vec<u8>> {
    const NAMED: [u32; 2] = [2, 8];
    let count = be32(stored, 0) as usize;
    let entries = stored.get(4..)?.get(..count.checked_mul(12)?)?;
    let mut list = 2_u32.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(12) {
        let tag = be32(entry, 0);
        list.extend_from_slice(&(tag as u16).to_le_bytes());
        list.extend_from_slice(&be16(entry, 8).to_le_bytes());
        let id = if NAMED.contains(&tag) { be32(entry, 4) } else { u32::MAX };
        list.extend_from_slice(&id.to_le_bytes());
    }
    Some(list)
}

/// The target of a symbolic link in one block: behind a header, if there are checksums.
///
/// # Errors
/// `Corrupt` if the header is wrong.
pub(super) fn link_part<'b>(superblock: &Superblock, number: u64, block: &'b [u8]) -> Result<&'b [u8]> {
    if !superblock.has_checksums {
        return Ok(block);
    }
    let length = be32(block, 8) as usize;
    let part = block.get(VALUE_HEADER..).and_then(|rest| rest.get(..length));
    match part {
        Some(part)
            if has(block, 0, b"XSLM") && be64(block, 32) == number && is_checksum_correct(block, 12) =>
        {
            Ok(part)
        }
        _ => Err(Error::corrupt(format!("the target of link {number} has a wrong header"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_inside_an_inode() {
        let bytes = b"\0\0\x03\0\x05\x03\0colorred\x07\x01\x04selinuxx\x01\x01\x08py";
        let found = inside(bytes).unwrap();
        let expected = [(&b"user.color"[..], &b"red"[..]), (b"security.selinux", b"x")];
        let expected = expected.map(|(name, value)| Attribute { name: name.to_vec(), value: value.to_vec() });
        assert_eq!(found, expected);
        assert!(inside(&bytes[..bytes.len() - 1]).is_err());
        assert!(inside(b"").unwrap().is_empty());
    }

    /// The blocks of a fork without checksums; counts how many are read.
    struct Fork(Vec<Vec<u8>>, usize);

    impl Blocks for Fork {
        fn read(&mut self, number: u32) -> Result<Vec<u8>> {
            self.1 += 1;
            self.0.get(number as usize).cloned().ok_or_else(|| Error::corrupt("there is no such block"))
        }
    }

    const BLOCK: usize = 65536;

    fn node(children: &[u32]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[8..10].copy_from_slice(&NODE[0].to_be_bytes());
        block[12..14].copy_from_slice(&(children.len() as u16).to_be_bytes());
        for (entry, child) in block[16..].chunks_exact_mut(8).zip(children) {
            entry[4..].copy_from_slice(&child.to_be_bytes());
        }
        block
    }

    /// A leaf whose entries all name one attribute with a value of 64 KiB, in block 1.
    fn leaf(count: u16) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let at = BLOCK - 10;
        block[8..10].copy_from_slice(&LEAF[0].to_be_bytes());
        block[12..14].copy_from_slice(&count.to_be_bytes());
        for entry in block[32..at].chunks_exact_mut(8).take(count.into()) {
            entry[4..6].copy_from_slice(&(at as u16).to_be_bytes());
        }
        block[at..].copy_from_slice(b"\0\0\0\x01\0\x01\0\0\x01a");
        block
    }

    /// A small fork that names a node or a value again and again must not be read again and again.
    #[test]
    fn nodes_have_one_parent_and_values_are_limited() {
        let value = vec![7; BLOCK];
        let mut sound = Fork(vec![node(&[2, 3]), value.clone(), leaf(1), leaf(2)], 0);
        let found = in_blocks(false, &mut sound).unwrap();
        let expected = Attribute { name: b"user.a".to_vec(), value: value.clone() };
        assert_eq!(found, [expected.clone(), expected.clone(), expected]);
        for (fork, reason, most) in [
            (vec![node(&[2; 8000]), value.clone(), leaf(1)], "block 2 of its attributes has two parents", 3),
            (vec![node(&[2, 0]), value.clone(), leaf(1)], "block 0 of its attributes has two parents", 3),
            (vec![leaf(8000), value], "its 1023 first attributes take more than 67108864 bytes", 1025),
        ] {
            let mut fork = Fork(fork, 0);
            let found = in_blocks(false, &mut fork).map(|found| found.len());
            let error = found.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(fork.1 <= most, "{reason}: {} blocks are read", fork.1);
        }
    }

    #[test]
    fn access_lists_get_the_form_of_the_system() {
        let stored = b"\0\0\0\x02\0\0\0\x01\xff\xff\xff\xff\0\x06\0\0\0\0\0\x02\0\0\x03\xe8\0\x04\0\0";
        let expected = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\xe8\x03\0\0";
        assert_eq!(access_list(stored).unwrap(), expected);
        assert_eq!(access_list(&stored[..20]), None);
        assert_eq!(access_list(b"\xff\xff\xff\xff"), None);
    }
}
