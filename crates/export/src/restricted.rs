//! A layer over any file tree that restricts what may be changed: nothing, or only the contents of writable files.
//!
//! Owns the guarantee that no request of any protocol changes more than that: not a name in the tree below, and in a
//! read-only tree no file either.

use std::io;
use std::sync::Arc;

use platter_image::{Error, Result};

use crate::tree::{Access, Node, NodeId, NodeKind, OpenFile, Room, Tree};

/// Shows another tree and restricts what may be changed in it.
pub struct RestrictedTree {
    below: Arc<dyn Tree>,
    is_read_only: bool,
}

impl RestrictedTree {
    /// A layer that changes nothing in `below`.
    pub fn read_only(below: Arc<dyn Tree>) -> Self {
        Self { below, is_read_only: true }
    }

    /// A layer that writes to the writable files of `below`, but creates, removes and renames nothing.
    pub fn fixed_names(below: Arc<dyn Tree>) -> Self {
        Self { below, is_read_only: false }
    }

    fn restricted(&self, node: Node) -> Node {
        let is_file = matches!(node.kind, NodeKind::File { .. });
        Node { writable: node.writable && is_file && !self.is_read_only, ..node }
    }

    fn refused(&self) -> Error {
        Error::refused(match self.is_read_only {
            true => "this tree is served read-only",
            false => "only disks that are attached for writing can be changed in this tree",
        })
        .with_source(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }
}

impl Tree for RestrictedTree {
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node> {
        self.below.lookup(directory, name).map(|node| self.restricted(node))
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId> {
        self.below.parent(directory)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        self.below.node(id).map(|node| self.restricted(node))
    }

    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>> {
        let entries = self.below.list(directory)?;
        Ok(entries.into_iter().map(|(name, node)| (name, self.restricted(node))).collect())
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        match self.is_read_only && access != Access::Read {
            true => Err(self.refused()),
            false => self.below.open(id, access),
        }
    }

    fn create(&self, _: NodeId, _: &str, _: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        Err(self.refused())
    }

    fn make_directory(&self, _: NodeId, _: &str) -> Result<Node> {
        Err(self.refused())
    }

    fn remove_file(&self, _: NodeId, _: &str) -> Result<()> {
        Err(self.refused())
    }

    fn remove_directory(&self, _: NodeId, _: &str) -> Result<()> {
        Err(self.refused())
    }

    fn rename(&self, _: (NodeId, &str), _: (NodeId, &str)) -> Result<()> {
        Err(self.refused())
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn room(&self) -> Room {
        self.below.room()
    }
}
