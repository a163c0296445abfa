//! Directories: a tree of names, with its root in the record and its other nodes in an attribute of their own.
//!
//! An index header has the offset of the first entry at 0, and the length with all entries at 4. An entry has the record to which
//! the name belongs at 0, its length at 8, the length of the name's attribute at 10 and flags at 12; the attribute is at 16, and
//! the last eight bytes are the place of the child that comes before it, if there is one. The last entry of a node has no name.

use std::collections::HashSet;

use platter_image::{Error, Result};

use super::attribute::{self, BY_NAME};
use super::master_table::MasterTable;
use super::record::{mend, reference, wrong};
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

/// An index root is in a record, so it is not longer.
const ROOT_LENGTH_MAX: u64 = 65536;
/// An index with more nodes is not read; their numbers take 24 MiB of memory. It has room for more names than a listing.
const NODES_MAX: usize = 1 << 20;

/// The index of a directory.
pub(super) struct Index {
    root: Vec<u8>,
    /// The nodes besides the root.
    nodes: Option<Stream>,
}

impl Index {
    /// Finds the index of the directory with that number.
    ///
    /// # Errors
    /// `Corrupt` if it has none, or an invalid one; errors of reading the disk.
    pub(super) fn open(table: &MasterTable<'_, '_>, clusters: &Clusters<'_>, number: u64) -> Result<Self> {
        let root = table.named_attribute(number, (attribute::INDEX_ROOT, BY_NAME))?;
        let root = root.ok_or_else(|| wrong(number, "it is a directory without an index"))?;
        let length = root.written();
        if length > ROOT_LENGTH_MAX {
            return Err(wrong(number, &format!("the root of its index has {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        root.read(clusters, 0, &mut bytes)?;
        let nodes = table.named_attribute(number, (attribute::INDEX, BY_NAME))?;
        Ok(Self { root: bytes, nodes })
    }

    /// Passes every name to `visit`: the number of its file, and the name's attribute or `None` if it is cut off.
    ///
    /// # Errors
    /// `Corrupt` if a node is not what it must be, or there are too many; errors of `visit` and of reading the disk.
    pub(super) fn for_each(
        &self,
        clusters: &Clusters<'_>,
        mut visit: impl FnMut(u64, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let node_length = u64::from(le32(&self.root, 8));
        if !node_length.is_power_of_two() || !NODE_LENGTHS.contains(&node_length) {
            return Err(Error::corrupt(format!(
                "the index of the directory has nodes of {node_length} bytes"
            )));
        }
        let unit = if node_length < clusters.size() { SMALL_UNIT } else { clusters.size() };
        let mut children = Vec::new();
        let header = self.root.get(ROOT_HEADER..).unwrap_or_default();
        node(header, &mut children, &mut visit)?;
        let mut seen = HashSet::new();
        let mut buffer = vec![0; node_length as usize];
        while let Some(child) = children.pop() {
            let wrong = |what: &str| Error::corrupt(format!("node {child} of the directory's index {what}"));
            let nodes = self.nodes.as_ref().ok_or_else(|| wrong("is missing"))?;
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
            node(&buffer[NODE_HEADER..], &mut children, &mut visit)?;
            if seen.len() + children.len() > NODES_MAX {
                return Err(Error::corrupt(format!(
                    "the index of the directory has more than {NODES_MAX} nodes"
                )));
            }
        }
        Ok(())
    }

    /// Adds the names of the directory, except those in records before `first_file`, which belong to the filesystem.
    ///
    /// # Errors
    /// Those of [`Self::for_each`]; `Corrupt` if there are too many names.
    pub(super) fn list(&self, listing: &mut Listing, clusters: &Clusters<'_>, first_file: u64) -> Result<()> {
        self.for_each(clusters, |number, name| match name.and_then(decode) {
            Some(None) => Ok(()),
            Some(Some(_)) if number < first_file => Ok(()),
            Some(Some(name)) => listing.add(name.as_bytes(), number),
            None => {
                listing.fault(format!("a name of record {number} is cut off"));
                Ok(())
            }
        })
    }
}

/// Passes the names of a node to `visit`, given its index header and what follows, and collects its children.
fn node(
    header: &[u8],
    children: &mut Vec<u64>,
    visit: &mut impl FnMut(u64, Option<&[u8]>) -> Result<()>,
) -> Result<()> {
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
        visit(reference(entry, 0).unwrap_or(0), name)?;
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
        let index = Index { root: root.to_vec(), nodes: Some(stream) };
        index.list(&mut listing, &clusters, 24).map_err(|error| error.to_string())?;
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

    /// A node of 64 KiB whose last child is the next one, and whose other children are the first one.
    fn wide_node(node: &mut [u8], place: u32) {
        const FIRST: u32 = 0x200;
        const END: u32 = 0xff00;
        node[..4].copy_from_slice(b"INDX");
        // The update sequence begins at 48; its numbers stay zero.
        (node[4], node[6]) = (48, 129);
        node[16..20].copy_from_slice(&place.to_le_bytes());
        let entries = &mut node[NODE_HEADER..];
        entries[..4].copy_from_slice(&FIRST.to_le_bytes());
        entries[4..8].copy_from_slice(&END.to_le_bytes());
        let mut entries = entries[FIRST as usize..END as usize].chunks_exact_mut(24).peekable();
        while let Some(entry) = entries.next() {
            let (flags, child) =
                if entries.peek().is_some() { (FLAG_CHILD, 0) } else { (FLAG_CHILD | FLAG_LAST, place + 1) };
            (entry[8], entry[12]) = (24, flags as u8);
            entry[16..20].copy_from_slice(&child.to_le_bytes());
        }
        for piece in 1..=node.len() / 512 {
            let at = piece * 512 - 2;
            node.copy_within(at..at + 2, 48 + 2 * piece);
            node[at..at + 2].fill(0);
        }
    }

    #[test]
    fn the_nodes_of_an_index_are_limited() {
        const LENGTH: usize = 65536;
        const COUNT: usize = 400;
        let mut disk = vec![0; COUNT * LENGTH];
        (0..).zip(disk.chunks_exact_mut(LENGTH)).for_each(|(place, node)| wide_node(node, place));
        let extent = Extent::new(0, disk.len() as u64);
        let count = COUNT as u64;
        let clusters = Clusters::new(&disk, extent, 0, (LENGTH as u64, count), 0).unwrap();
        let mut stream = Stream::extended(extent.length, extent.length, Coding::Plain);
        stream.push(0, &[Run { cluster: Some(0), count }]).unwrap();
        let mut root = root(&[ended(Vec::new(), 2, Some(0))]);
        root[8..12].copy_from_slice(&(LENGTH as u32).to_le_bytes());
        let error = Index { root, nodes: Some(stream) }.for_each(&clusters, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "the index of the directory has more than 1048576 nodes");
    }
}
