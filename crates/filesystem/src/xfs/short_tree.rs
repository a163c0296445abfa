//! The B-trees of an allocation group, whose pointers are block numbers inside the group.
//!
//! A node has a header (magic, level, number of records, neighbours; with checksums also its own place, its owner and the
//! checksum), then keys, then pointers. A leaf has records behind the header. The level decreases by one at each step, so
//! a walk ends; it reads no more nodes than the group has blocks.

use platter_image::{Error, Extent, Result};

use super::group::Root;
use super::volume::{Volume, is_checksum_correct};
use crate::fields::{be16, be32, be64, has};

/// More levels cannot occur: a tree of that height has more records than a group has blocks.
const LEVELS_MAX: u32 = 12;

/// A kind of tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// For messages.
    pub(super) name: &'static str,
    /// Its magic numbers without and with checksums.
    pub(super) magics: [&'static [u8; 4]; 2],
    pub(super) key_length: usize,
    pub(super) record_length: usize,
}

/// Walks one tree.
pub(super) struct ShortTree<'v, 'd> {
    pub(super) volume: &'v Volume<'d>,
    pub(super) group: u32,
    pub(super) kind: Kind,
    /// Nodes that may still be read.
    nodes_left: u32,
}

/// A node that was read.
struct Node {
    bytes: Vec<u8>,
    records: usize,
    header_length: usize,
}

impl<'v, 'd> ShortTree<'v, 'd> {
    pub(super) fn new(volume: &'v Volume<'d>, group: u32, kind: Kind) -> Self {
        Self { volume, group, kind, nodes_left: volume.superblock.blocks_of_group(group) }
    }

    /// Passes every record to `record`, in order.
    ///
    /// # Errors
    /// `Corrupt` if a node is not what it must be; errors of reading the disk and of `record`.
    pub(super) fn records(&mut self, root: Root, record: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.check_root(root)?;
        self.walk(root.block, root.levels - 1, true, record)
    }

    /// Passes the place of every node to `node`, without reading leaves.
    ///
    /// # Errors
    /// Those of [`Self::records`].
    pub(super) fn nodes(&mut self, root: Root, node: &mut dyn FnMut(Extent) -> Result<()>) -> Result<()> {
        self.check_root(root)?;
        self.walk_nodes(root.block, root.levels - 1, node)
    }

    fn check_root(&self, root: Root) -> Result<()> {
        match (1..=LEVELS_MAX).contains(&root.levels) {
            true => Ok(()),
            false => Err(self.wrong(root.block, &format!("has {} levels", root.levels))),
        }
    }

    fn wrong(&self, block: u32, what: &str) -> Error {
        let (name, group) = (self.kind.name, self.group);
        Error::corrupt(format!("the {name} tree of group {group}, block {block}, {what}"))
    }

    fn walk(
        &mut self,
        block: u32,
        level: u32,
        is_root: bool,
        record: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let node = self.read(block, level, is_root)?;
        if level > 0 {
            return self.pointers(&node, |tree, child| tree.walk(child, level - 1, false, record));
        }
        let records = node.bytes[node.header_length..].chunks_exact(self.kind.record_length);
        records.take(node.records).try_for_each(record)
    }

    fn walk_nodes(
        &mut self,
        block: u32,
        level: u32,
        visit: &mut dyn FnMut(Extent) -> Result<()>,
    ) -> Result<()> {
        let Some(place) = self.volume.place_in_group(self.group, block, 1) else {
            return Err(self.wrong(block, "is outside of the group"));
        };
        visit(place)?;
        if level == 0 {
            self.spend(block)?;
            return Ok(());
        }
        let node = self.read(block, level, false)?;
        self.pointers(&node, |tree, child| tree.walk_nodes(child, level - 1, visit))
    }

    fn pointers(&mut self, node: &Node, mut visit: impl FnMut(&mut Self, u32) -> Result<()>) -> Result<()> {
        let room = (node.bytes.len() - node.header_length) / (self.kind.key_length + 4);
        let start = node.header_length + room * self.kind.key_length;
        (0..node.records).try_for_each(|index| visit(self, be32(&node.bytes, start + index * 4)))
    }

    fn spend(&mut self, block: u32) -> Result<()> {
        self.nodes_left = self
            .nodes_left
            .checked_sub(1)
            .ok_or_else(|| self.wrong(block, "is one of more nodes than the group has blocks"))?;
        Ok(())
    }

    fn read(&mut self, block: u32, level: u32, may_be_empty: bool) -> Result<Node> {
        self.spend(block)?;
        let volume = self.volume;
        let Some(place) = volume.place_in_group(self.group, block, 1) else {
            return Err(self.wrong(block, "is outside of the group"));
        };
        let mut bytes = vec![0; place.length as usize];
        volume.read(place.offset, &mut bytes)?;
        let has_checksums = volume.superblock.has_checksums;
        let header_length = if has_checksums { 56 } else { 16 };
        if !has(&bytes, 0, self.kind.magics[usize::from(has_checksums)]) {
            return Err(self.wrong(block, "has a wrong magic number"));
        }
        if has_checksums {
            // Its own place, in units of 512 bytes.
            let own = (place.offset - volume.extent.offset) / 512;
            if !is_checksum_correct(&bytes, 52) {
                return Err(self.wrong(block, "has a wrong checksum"));
            }
            if be64(&bytes, 16) != own || be32(&bytes, 48) != self.group {
                return Err(self.wrong(block, "belongs to another place"));
            }
        }
        let records = usize::from(be16(&bytes, 6));
        let entry = if level == 0 { self.kind.record_length } else { self.kind.key_length + 4 };
        if u32::from(be16(&bytes, 4)) != level {
            return Err(self.wrong(block, &format!("has level {}, not {level}", be16(&bytes, 4))));
        }
        if records > (bytes.len() - header_length) / entry || records == 0 && !(may_be_empty && level == 0) {
            return Err(self.wrong(block, &format!("has the impossible number of {records} records")));
        }
        Ok(Node { bytes, records, header_length })
    }
}
