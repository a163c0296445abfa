//! The numbers of nodes.
//!
//! The upper 24 bits of a number name a *space*: 0 has the names of the catalog, and every other one a part of a filesystem. The
//! lower 40 bits are those of the file's number there. A filesystem has one space, or with btrfs one for each subvolume, because
//! the upper bits of a file's number distinguish spaces. Spaces are assigned when they are first used, and never again.

use std::collections::HashMap;
use std::hash::Hash;

use platter_export::tree::NodeId;
use platter_image::{Error, Result};

/// Bits of a number inside its space.
const LOW_BITS: u32 = 40;
const LOW: u64 = (1 << LOW_BITS) - 1;
const SPACES_MAX: usize = 1 << (64 - LOW_BITS);
/// The most spaces of one filesystem: the readers know as many subvolumes of one directory.
const SPACES_OF_ONE_MAX: u32 = 1 << 16;

/// A node by its number: a place of the catalog, or a file of a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Numbered<P> {
    Place(P),
    File { filesystem: usize, number: u64 },
}

/// All numbers that were assigned.
#[derive(Debug)]
pub(super) struct Numbers<P> {
    places: Vec<P>,
    by_place: HashMap<P, NodeId>,
    /// The filesystem, and the upper bits of the numbers of its files.
    spaces: Vec<(usize, u64)>,
    by_space: HashMap<(usize, u64), u64>,
    /// Spaces of each filesystem.
    counts: HashMap<usize, u32>,
}

impl<P: Clone + Eq + Hash> Numbers<P> {
    /// The root gets number 1.
    pub(super) fn new(root: &P) -> Self {
        let (by_place, by_space, counts) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut numbers = Self { places: Vec::new(), by_place, spaces: vec![(0, 0)], by_space, counts };
        numbers.place(root);
        numbers
    }

    /// The number of a place. There are as many as names of images and versions that ever existed.
    pub(super) fn place(&mut self, place: &P) -> NodeId {
        if let Some(number) = self.by_place.get(place) {
            return *number;
        }
        self.places.push(place.clone());
        let number = self.places.len() as u64;
        self.by_place.insert(place.clone(), number);
        number
    }

    /// The number of a file.
    ///
    /// # Errors
    /// `Refused` if there are too many spaces.
    pub(super) fn file(&mut self, filesystem: usize, number: u64) -> Result<NodeId> {
        let key = (filesystem, number >> LOW_BITS);
        let space = match self.by_space.get(&key) {
            Some(space) => *space,
            None => {
                let count = self.counts.entry(filesystem).or_default();
                if self.spaces.len() >= SPACES_MAX || *count >= SPACES_OF_ONE_MAX {
                    return Err(Error::refused("too many subvolumes, or numbers of files far apart"));
                }
                *count += 1;
                self.spaces.push(key);
                self.by_space.insert(key, self.spaces.len() as u64 - 1);
                self.spaces.len() as u64 - 1
            }
        };
        Ok(space << LOW_BITS | number & LOW)
    }

    /// The node with that number.
    pub(super) fn find(&self, id: NodeId) -> Option<Numbered<P>> {
        let (space, low) = ((id >> LOW_BITS) as usize, id & LOW);
        if space == 0 {
            let place = self.places.get((low as usize).checked_sub(1)?)?;
            return Some(Numbered::Place(place.clone()));
        }
        let (filesystem, high) = *self.spaces.get(space)?;
        Some(Numbered::File { filesystem, number: high << LOW_BITS | low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        let mut numbers = Numbers::new(&"root");
        assert_eq!((numbers.place(&"root"), numbers.place(&"other"), numbers.place(&"other")), (1, 2, 2));
        assert_eq!(numbers.find(2), Some(Numbered::Place("other")));
        let mut seen = std::collections::HashSet::new();
        for (filesystem, number) in [(0, 2), (1, 2), (0, 5 << 40 | 256), (0, 6 << 40 | 256), (0, u64::MAX)] {
            let id = numbers.file(filesystem, number).unwrap();
            assert!(id >> LOW_BITS > 0 && seen.insert(id));
            assert_eq!(numbers.file(filesystem, number).unwrap(), id);
            assert_eq!(numbers.find(id), Some(Numbered::File { filesystem, number }));
        }
        for id in [0, 3, 77 << 40 | 1, u64::MAX] {
            assert_eq!(numbers.find(id), None);
        }
        let full = (0..=u64::from(SPACES_OF_ONE_MAX)).map(|high| numbers.file(9, high << LOW_BITS));
        assert_eq!(full.filter(Result::is_err).count(), 1);
        numbers.file(10, 1).unwrap();
    }
}
