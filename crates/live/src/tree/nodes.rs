//! The numbers of nodes: assigned when a name is first looked up, kept across renames, never reused.
//!
//! There are at most as many as names and open files without names.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use platter_export::tree::{NodeId, ROOT};

use serde::{Deserialize, Serialize};

use super::place::Place;
use super::view::Contents;

/// A numbered node.
#[derive(Debug)]
struct Known {
    place: Place,
    /// The contents of an opened version: they stay known while it is open, even without a name.
    contents: Weak<Contents>,
}

/// All numbers, for another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodesState {
    next: NodeId,
    known: Vec<(NodeId, Place)>,
}

/// All numbers.
#[derive(Debug)]
pub(super) struct Nodes {
    known: HashMap<NodeId, Known>,
    numbers: HashMap<Place, NodeId>,
    next: NodeId,
}

impl Default for Nodes {
    fn default() -> Self {
        let (known, numbers) = (HashMap::new(), HashMap::new());
        let mut nodes = Self { known, numbers, next: ROOT };
        nodes.number(&Place::Images(String::new()));
        nodes
    }
}

impl Nodes {
    /// Returns the number of an existing place.
    pub(super) fn number(&mut self, place: &Place) -> NodeId {
        if let Some(number) = self.numbers.get(place) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(place.clone(), number);
        self.known.insert(number, Known { place: place.clone(), contents: Weak::new() });
        number
    }

    /// Returns the numbers for another process.
    pub(super) fn state(&self) -> NodesState {
        let known = self.known.iter().map(|(number, known)| (*number, known.place.clone()));
        NodesState { next: self.next, known: known.collect() }
    }

    /// Restores the numbers of another process.
    pub(super) fn restored(state: NodesState) -> Self {
        let mut nodes = Self::default();
        for (number, place) in state.known {
            nodes.numbers.insert(place.clone(), number);
            nodes.known.insert(number, Known { place, contents: Weak::new() });
        }
        nodes.next = state.next.max(nodes.next);
        nodes
    }

    /// Returns the place with this number.
    pub(super) fn place(&self, number: NodeId) -> Option<&Place> {
        self.known.get(&number).map(|known| &known.place)
    }

    /// Returns the contents of the open version with this number.
    pub(super) fn contents(&self, number: NodeId) -> Option<Arc<Contents>> {
        self.known.get(&number)?.contents.upgrade()
    }

    /// Notes that a version was opened.
    pub(super) fn opened(&mut self, number: NodeId, contents: &Arc<Contents>) {
        if let Some(known) = self.known.get_mut(&number) {
            known.contents = Arc::downgrade(contents);
        }
    }

    /// Forgets the numbers of places that no longer exist and have no open file.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Place) -> bool) {
        self.known.retain(|_, known| {
            let is_known = known.contents.strong_count() > 0 || is_there(&known.place);
            if !is_known {
                self.numbers.remove(&known.place);
            }
            is_known
        });
    }

    /// Moves every number to the place that `moved` returns, if any.
    pub(super) fn rename(&mut self, moved: impl Fn(&Place) -> Option<Place>) {
        for (number, known) in &mut self.known {
            let Some(place) = moved(&known.place) else { continue };
            if self.numbers.get(&known.place) == Some(number) {
                self.numbers.remove(&known.place);
            }
            known.place = place.clone();
            self.numbers.insert(place, *number);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
