//! Finds items in a tree without reading all of it: follows the pointers to a key, and goes on from leaf to leaf.
//!
//! The keys of each child must lie between those of the pointers to it and to the next one. So no node is in two places, and a search
//! visits none twice.
//!
//! The nodes that were read last are remembered, because the next search usually needs the same ones.

use std::collections::HashMap;
use std::sync::Arc;

use platter_image::{Error, Result};

use super::chunks::Chunks;
use super::node::{Key, Node};
use super::superblock::Root;
use super::volume::Volume;

/// The highest level of a tree.
const LEVEL_MAX: u8 = 7;
/// So many nodes are remembered: 16 MiB, or 64 MiB with the longest nodes.
const NODES_MAX: usize = 1024;

/// Searches trees of one filesystem.
pub(super) struct Search {
    nodes: HashMap<u64, Arc<Node>>,
    /// Nodes that may still be read from the disk.
    budget: u64,
}

/// A node, and which keys it may have according to its parents.
#[derive(Clone, Copy)]
struct Child {
    root: Root,
    /// Its first key; `None` if it is the root.
    first: Option<Key>,
    /// All its keys are lower; `None` if there is no limit.
    end: Option<Key>,
}

/// Called with the key and the bytes of each item; ends the search with `false`.
pub(super) type Visit<'v> = &'v mut dyn FnMut(Key, &[u8]) -> Result<bool>;

impl Search {
    /// At most `budget` nodes are read.
    pub(super) fn new(budget: u64) -> Self {
        Self { nodes: HashMap::new(), budget }
    }

    /// From now on, at most `budget` nodes are read.
    pub(super) fn renew(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Passes the items from `first` to `last`, both included, to `visit` in order.
    ///
    /// # Errors
    /// `Corrupt` if a node is not what it must be; errors of reading the disk and of `visit`.
    pub(super) fn range(
        &mut self,
        (volume, chunks): (&Volume<'_>, &Chunks),
        root: Root,
        (first, last): (Key, Key),
        visit: Visit<'_>,
    ) -> Result<()> {
        if root.level > LEVEL_MAX {
            return Err(Error::corrupt(format!("a tree has {} levels", root.level)));
        }
        let child = Child { root, first: None, end: None };
        self.node_range((volume, chunks), child, (first, last), visit).map(|_| ())
    }

    /// Returns whether the search goes on after this node.
    fn node_range(
        &mut self,
        place: (&Volume<'_>, &Chunks),
        child: Child,
        (first, last): (Key, Key),
        visit: Visit<'_>,
    ) -> Result<bool> {
        let root = child.root;
        let node = self.node(place, child)?;
        let count = node.len().unwrap_or(0);
        if root.level == 0 {
            let start = partition(count, |index| node.key(index) < first);
            for index in start..count {
                let key = node.key(index);
                if key > last {
                    return Ok(false);
                }
                let item = node.item(index).ok_or_else(|| {
                    Error::corrupt(format!(
                        "item {index} of the node at address {} is outside of it",
                        root.address
                    ))
                })?;
                if !visit(key, item)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let start = partition(count, |index| node.key(index) <= first).saturating_sub(1);
        for index in start..count {
            if node.key(index) > last {
                return Ok(false);
            }
            let (address, generation) = node.pointer(index);
            let below = Child {
                root: Root { address, level: root.level - 1, generation },
                first: Some(node.key(index)),
                end: if index + 1 < count { Some(node.key(index + 1)) } else { child.end },
            };
            if !self.node_range(place, below, (first, last), visit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The node that a pointer names, checked against it.
    fn node(&mut self, place: (&Volume<'_>, &Chunks), child: Child) -> Result<Arc<Node>> {
        let Child { root, first, end } = child;
        let node = match self.nodes.get(&root.address) {
            Some(node) => node.clone(),
            None => self.load(place, root.address)?,
        };
        let wrong = |what: &str| Error::corrupt(format!("the node at address {} {what}", root.address));
        if node.address() != root.address
            || node.level() != root.level
            || node.generation() != root.generation
        {
            return Err(wrong("has a wrong address, level or generation"));
        }
        match node.len().unwrap_or(0).checked_sub(1) {
            None if root.level > 0 || first.is_some() => Err(wrong("is empty")),
            Some(_) if first.is_some_and(|first| node.key(0) != first) => {
                Err(wrong("has another first key than the pointer to it"))
            }
            Some(last) if end.is_some_and(|end| node.key(last) >= end) => {
                Err(wrong("has keys of the node after it"))
            }
            _ => Ok(node),
        }
    }

    /// Reads a node, checks its keys and items, and remembers it.
    fn load(&mut self, (volume, chunks): (&Volume<'_>, &Chunks), address: u64) -> Result<Arc<Node>> {
        self.budget = self
            .budget
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("its trees have more nodes than the filesystem has room for"))?;
        let node = Arc::new(volume.node(chunks, address)?);
        let is_ascending =
            node.len().is_some_and(|count| (1..count).all(|index| node.key(index - 1) < node.key(index)));
        if !is_ascending || node.level() == 0 && !node.has_separate_items() {
            return Err(Error::corrupt(format!(
                "the node at address {address} has keys that are not in order, or items that overlap"
            )));
        }
        if self.nodes.len() >= NODES_MAX {
            self.nodes.clear();
        }
        self.nodes.insert(address, node.clone());
        Ok(node)
    }
}

/// The number of indexes below `count` for which `is_before` holds; it holds for the first ones only.
fn partition(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions() {
        for count in 0..9 {
            for at in 0..=count {
                assert_eq!(partition(count, |index| index < at), at);
            }
        }
    }
}
