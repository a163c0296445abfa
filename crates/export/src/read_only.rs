//! A read-only layer over any file tree.
//!
//! Owns the guarantee that a tree served read-only is never changed: no request of any protocol changes a name or opens
//! a file for writing in the tree below.

use std::io;
use std::sync::Arc;

use platter_image::{Error, Result};

use crate::tree::{Access, Node, NodeId, OpenFile, Room, Tree};

/// Shows another tree without changing it.
pub struct ReadOnlyTree(Arc<dyn Tree>);

impl ReadOnlyTree {
    /// A read-only layer over `tree`.
    pub fn over(tree: Arc<dyn Tree>) -> Self {
        Self(tree)
    }
}

fn fixed(node: Node) -> Node {
    Node { writable: false, ..node }
}

fn refused() -> Error {
    Error::refused("this tree is served read-only")
        .with_source(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
}

impl Tree for ReadOnlyTree {
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node> {
        self.0.lookup(directory, name).map(fixed)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId> {
        self.0.parent(directory)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        self.0.node(id).map(fixed)
    }

    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>> {
        let entries = self.0.list(directory)?;
        Ok(entries.into_iter().map(|(name, node)| (name, fixed(node))).collect())
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        match access {
            Access::Read => self.0.open(id, access),
            Access::Write | Access::ReadWrite => Err(refused()),
        }
    }

    fn create(&self, _: NodeId, _: &str, _: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        Err(refused())
    }

    fn make_directory(&self, _: NodeId, _: &str) -> Result<Node> {
        Err(refused())
    }

    fn remove_file(&self, _: NodeId, _: &str) -> Result<()> {
        Err(refused())
    }

    fn remove_directory(&self, _: NodeId, _: &str) -> Result<()> {
        Err(refused())
    }

    fn rename(&self, _: (NodeId, &str), _: (NodeId, &str)) -> Result<()> {
        Err(refused())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn room(&self) -> Room {
        self.0.room()
    }
}
