//! Directories: a tree of names, with its root in the record and its other nodes in an attribute of their own.
//!
//! An index header has the offset of the first entry at 0, and the length with all entries at 4. An entry has the record to which
//! the name belongs at 0, its length at 8, the length of the name's attribute at 10 and flags at 12; the attribute is at 16, and
//! the last eight bytes are the place of the child that comes before it, if there is one. The last entry of a node has no name.

use std::collections::HashSet;

use platter_image::{Error, Result};

use super::record::{mend, reference};
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::{has, le16, le32, le64};
use crate::files::Listing;

/// The length of the root before its index header.
const ROOT_HEADER: usize = 16;
/// The offset of the index header in other nodes.
const NODE_HEADER: usize = 24;
const ENTRY_HEADER: usize = 16;

const FLAG_CHILD: u16 = 1;
const FLAG_LAST: u16 = 2;

/// A name's namespace, length in characters, and characters are here in its attribute.
const NAMESPACE: usize = 65;
const NAME_LENGTH: usize = 64;
const NAME: usize = 66;
/// The second, short name of a file that has a long one.
const NAMESPACE_DOS: u8 = 2;

/// The unit in which children are numbered if nodes are shorter than clusters, in bytes.
const SMALL_UNIT: u64 = 512;
const NODE_LENGTHS: std::ops::RangeInclusive<u64> = 512..=65536;

/// Adds the names of a directory, except those in records before `first_file`, which belong to the filesystem. `nodes` are the
/// nodes besides the root.
///
/// # Errors
/// `Corrupt` if a node is not what it must be; errors of reading the disk.
pub(super) fn add_names(
    listing: &mut Listing,
    root: &[u8],
    nodes: Option<&Stream>,
    clusters: &Clusters<'_>,
    first_file: u64,
) -> Result<()> {
    let node_length = u64::from(le32(root, 8));
    if !node_length.is_power_of_two() || !NODE_LENGTHS.contains(&node_length) {
        return Err(Error::corrupt(format!("the index of the directory has nodes of {node_length} bytes")));
    }
    let unit = if node_length < clusters.size() { SMALL_UNIT } else { clusters.size() };
    let mut children = Vec::new();
    let header = root.get(ROOT_HEADER..).unwrap_or_default();
    node(listing, header, first_file, &mut children)?;
    let mut seen = HashSet::new();
    let mut buffer = vec![0; node_length as usize];
    while let Some(child) = children.pop() {
        let wrong = |what: &str| Error::corrupt(format!("node {child} of the directory's index {what}"));
        let nodes = nodes.ok_or_else(|| wrong("is missing"))?;
        let offset = child
            .checked_mul(unit)
            .filter(|offset| offset.checked_add(node_length).is_some_and(|end| end <= nodes.written()));
        let offset = offset.ok_or_else(|| wrong("is outside of the index"))?;
        if !seen.insert(child) {
            return Err(wrong("has two parents"));
        }
        nodes.read(clusters, offset, &mut buffer)?;
        if !has(&buffer, 0, b"INDX") || le64(&buffer, 16) != child {
            return Err(wrong("has a wrong mark or place"));
        }
        mend(&mut buffer).map_err(|error| wrong(&error.to_string()))?;
        node(listing, &buffer[NODE_HEADER..], first_file, &mut children)?;
    }
    Ok(())
}

/// Adds the names of a node, given its index header and what follows.
fn node(listing: &mut Listing, header: &[u8], first_file: u64, children: &mut Vec<u64>) -> Result<()> {
    let (first, end) = (le32(header, 0) as usize, le32(header, 4) as usize);
    let mut rest = header.get(first..end).ok_or_else(|| {
        Error::corrupt(format!("a node of the directory's index has entries from {first} to {end}"))
    })?;
    loop {
        let (length, flags) = (usize::from(le16(rest, 8)), le16(rest, 12));
        let Some(entry) = rest.get(..length).filter(|entry| entry.len() >= ENTRY_HEADER) else {
            return Err(Error::corrupt(format!("an entry of the directory's index has {length} bytes")));
        };
        if flags & FLAG_CHILD != 0 {
            let at = entry.len().checked_sub(8).filter(|at| *at >= ENTRY_HEADER);
            children.extend(at.map(|at| le64(entry, at)));
        }
        if flags & FLAG_LAST != 0 {
            return Ok(());
        }
        let name = entry.get(ENTRY_HEADER..).and_then(|rest| rest.get(..usize::from(le16(entry, 10))));
        let number = reference(entry, 0).unwrap_or(0);
        match name.and_then(decode) {
            Some(None) => {}
            Some(Some(_)) if number < first_file => {}
            Some(Some(name)) => listing.add(name.as_bytes(), number)?,
            None => listing.fault(format!("a name of record {number} is cut off")),
        }
        rest = &rest[length..];
    }
}

/// The name in an attribute; `Some(None)` if it is a second, short one, and `None` if it is cut off.
fn decode(attribute: &[u8]) -> Option<Option<String>> {
    let length = 2 * usize::from(*attribute.get(NAME_LENGTH)?);
    let units = attribute.get(NAME..)?.get(..length)?.chunks_exact(2).map(|unit| le16(unit, 0));
    let name = String::from_utf16_lossy(&units.collect::<Vec<_>>());
    Some((attribute[NAMESPACE] != NAMESPACE_DOS).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntfs::attribute::Coding;
    use crate::ntfs::runs::Run;
    use platter_image::Extent;

    fn entry(number: u64, name: &str, namespace: u8, child: Option<u64>) -> Vec<u8> {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut bytes = vec![0; ENTRY_HEADER + NAME];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[10] = (NAME + units.len()) as u8;
        (bytes[ENTRY_HEADER + NAME_LENGTH], bytes[ENTRY_HEADER + NAMESPACE]) =
            (name.encode_utf16().count() as u8, namespace);
        bytes.extend(units);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        ended(bytes, 0, child)
    }

    fn ended(mut bytes: Vec<u8>, flags: u8, child: Option<u64>) -> Vec<u8> {
        bytes.resize(bytes.len().max(ENTRY_HEADER), 0);
        bytes[12] = flags | u8::from(child.is_some());
        bytes.extend(child.into_iter().flat_map(u64::to_le_bytes));
        bytes[8] = bytes.len() as u8;
        bytes
    }

    fn header(entries: &[Vec<u8>]) -> Vec<u8> {
        let entries = entries.concat();
        let mut bytes = vec![0; 16];
        (bytes[0], bytes[4]) = (16, (16 + entries.len()) as u8);
        bytes[5] = ((16 + entries.len()) >> 8) as u8;
        bytes.extend(entries);
        bytes
    }

    fn indx(place: u8, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; NODE_HEADER];
        bytes[..4].copy_from_slice(b"INDX");
        // The update sequence: three numbers at the end of the header's room.
        (bytes[4], bytes[6], bytes[16]) = (0xf0, 3, place);
        bytes[5] = 1;
        bytes.extend(header(entries));
        bytes.resize(1024, 0);
        bytes
    }

    fn names(root: &[u8], nodes: &[Vec<u8>]) -> std::result::Result<Vec<(String, u64)>, String> {
        let disk: Vec<u8> = nodes.concat();
        let disk = if disk.is_empty() { vec![0; 1024] } else { disk };
        let count = disk.len() as u64 / 1024;
        let clusters = Clusters::new(&disk, Extent::new(0, disk.len() as u64), 0, (1024, count), 0).unwrap();
        let mut stream = Stream::extended(count * 1024, count * 1024, Coding::Plain);
        stream.push(0, &[Run { cluster: Some(0), count }]).unwrap();
        let mut listing = Listing::default();
        add_names(&mut listing, root, Some(&stream), &clusters, 24).map_err(|error| error.to_string())?;
        let listing = listing.sorted().complete().map_err(|error| error.to_string())?;
        let name =
            |at| listing.get(at).map(|(name, number)| (String::from_utf8_lossy(name).into_owned(), number));
        Ok((0..listing.len()).filter_map(name).collect())
    }

    fn root(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; ROOT_HEADER];
        bytes[9] = 4;
        bytes.extend(header(entries));
        bytes
    }

    #[test]
    fn all_nodes_are_read_once() {
        let top = root(&[entry(64, "m", 1, Some(0)), ended(Vec::new(), 2, Some(1))]);
        let nodes = [
            indx(0, &[entry(65, "a", 0, None), entry(66, "A~1", 2, None), ended(Vec::new(), 2, None)]),
            indx(1, &[entry(67, "zü", 3, None), entry(9, "$Secure", 3, None), ended(Vec::new(), 2, None)]),
        ];
        let expected = [("a", 65), ("m", 64), ("zü", 67)];
        assert_eq!(names(&top, &nodes).unwrap(), expected.map(|(name, number)| (name.to_owned(), number)));
        let loops = [indx(0, &[ended(Vec::new(), 2, Some(0))]), nodes[1].clone()];
        assert!(names(&top, &loops).unwrap_err().contains("two parents"));
        assert!(names(&top, &nodes[..1]).unwrap_err().contains("node 1 of the directory's index is outside"));
        let swapped = [nodes[1].clone(), nodes[0].clone()];
        assert!(names(&top, &swapped).unwrap_err().contains("wrong mark or place"));
    }

    #[test]
    fn hostile_nodes_are_errors() {
        let good = root(&[entry(64, "m", 1, None), ended(Vec::new(), 2, None)]);
        assert_eq!(names(&good, &[]).unwrap().len(), 1);
        for (offset, value, expected) in [
            (9, 3, "nodes of 768"),
            (16, 255, "entries from 255"),
            (20, 8, "from 16 to 8"),
            (40, 3, "has 3 bytes"),
            (42, 255, "cut off"),
        ] {
            let mut bytes = good.clone();
            bytes[offset] = value;
            let error = names(&bytes, &[]).unwrap_err();
            assert!(error.contains(expected), "{offset}: {error}");
        }
        assert!(names(&root(&[entry(64, "m", 1, None)]), &[]).unwrap_err().contains("has 0 bytes"));
    }
}
