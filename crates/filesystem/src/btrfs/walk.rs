//! Walks trees in the order of their keys.
//!
//! The level decreases by one at each step. A block that was already read is skipped: snapshots share blocks. So a walk ends,
//! and reads no block twice.

use std::collections::HashSet;

use platter_image::{Error, Result};

use super::chunks::Chunks;
use super::node::{Key, Node};
use super::superblock::Root;
use super::volume::Volume;

/// The highest level of a tree.
const LEVEL_MAX: u8 = 7;
/// More tree blocks are not read: their addresses would take more than 512 MiB of memory.
const BLOCKS_MAX: usize = 1 << 25;

/// Called with the key and the bytes of each item.
pub(super) type Visit<'v> = &'v mut dyn FnMut(Key, &[u8]) -> Result<()>;

/// Walks trees, and remembers which blocks it read.
pub(super) struct Walker<'v, 'd> {
    volume: &'v Volume<'d>,
    chunks: &'v Chunks,
    /// The addresses of all blocks that were read.
    seen: HashSet<u64>,
}

impl<'v, 'd> Walker<'v, 'd> {
    pub(super) fn new(volume: &'v Volume<'d>, chunks: &'v Chunks) -> Self {
        Self { volume, chunks, seen: HashSet::new() }
    }

    /// The addresses of all blocks that were read.
    pub(super) fn seen(&self) -> impl Iterator<Item = u64> {
        self.seen.iter().copied()
    }

    /// Passes every item of a tree to `visit`, except those in blocks that were read before.
    ///
    /// # Errors
    /// `Corrupt` if a block is not what it must be; errors of reading the disk and of `visit`.
    pub(super) fn walk(&mut self, name: &str, root: Root, visit: Visit<'_>) -> Result<()> {
        if root.level > LEVEL_MAX {
            return Err(Error::corrupt(format!("the {name} tree has {} levels", root.level)));
        }
        self.block(name, root, None, visit)
    }

    fn block(&mut self, name: &str, root: Root, first: Option<Key>, visit: Visit<'_>) -> Result<()> {
        let address = root.address;
        if self.seen.contains(&address) {
            return Ok(());
        }
        if self.seen.len() >= BLOCKS_MAX {
            return Err(Error::corrupt(format!(
                "it has more than {BLOCKS_MAX} tree blocks, too many to check"
            )));
        }
        let node = self.volume.node(self.chunks, address)?;
        let count = self.check(name, &node, root, first)?;
        self.seen.insert(address);
        if root.level > 0 {
            return (0..count).try_for_each(|index| {
                let (address, generation) = node.pointer(index);
                self.block(
                    name,
                    Root { address, level: root.level - 1, generation },
                    Some(node.key(index)),
                    visit,
                )
            });
        }
        (0..count).try_for_each(|index| {
            let item = node.item(index).ok_or_else(|| {
                Error::corrupt(format!(
                    "item {index} of the {name} tree's block at address {address} is outside of the block"
                ))
            })?;
            visit(node.key(index), item)
        })
    }

    /// Checks a block against the pointer to it. Returns the number of its entries.
    fn check(&self, name: &str, node: &Node, root: Root, first: Option<Key>) -> Result<usize> {
        let wrong = |what: &str| {
            Error::corrupt(format!("the {name} tree's block at address {} {what}", root.address))
        };
        if node.address() != root.address
            || node.level() != root.level
            || node.generation() != root.generation
        {
            return Err(wrong(&format!(
                "has address {}, level {} and generation {}, but should have level {} and generation {}",
                node.address(),
                node.level(),
                node.generation(),
                root.level,
                root.generation
            )));
        }
        let count = node.len().ok_or_else(|| wrong("has more items than fit"))?;
        if count == 0 && (root.level > 0 || first.is_some()) {
            return Err(wrong("is empty"));
        }
        let is_ascending = (1..count).all(|index| node.key(index - 1) < node.key(index));
        if !is_ascending || first.is_some_and(|first| node.key(0) != first) {
            return Err(wrong("has keys that are not in order"));
        }
        Ok(count)
    }
}
