//! A layer over another tree that fixes its names: writable files can be written, but nothing can be created, removed
//! or renamed.

use std::io;
use std::sync::Arc;

use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, Room, Tree};
use platter_image::{Error, Result};

/// The layer, see above.
pub(crate) struct FixedNames(Arc<dyn Tree>);

impl FixedNames {
    /// Wraps a tree.
    pub(crate) fn over(tree: Arc<dyn Tree>) -> Self {
        Self(tree)
    }
}

fn fixed(node: Node) -> Node {
    Node { writable: node.writable && matches!(node.kind, NodeKind::File { .. }), ..node }
}

fn refused() -> Error {
    Error::refused("only disks that are attached for writing can be changed in this tree")
        .with_source(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
}

impl Tree for FixedNames {
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
        self.0.open(id, access)
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

    fn room(&self) -> Room {
        self.0.room()
    }
}
