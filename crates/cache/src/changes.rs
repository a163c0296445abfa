//! Which blocks became held and which were dropped, in order, so that a peer filter can be kept up to date. Pure.

use std::collections::{BTreeMap, VecDeque};

use platter_image::BlockId;

/// Number of changes that are kept. A reader that is further behind gets the full list.
const CHANGES_MAX: usize = 1 << 16;

/// The changes of a cache since a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheChanges {
    /// Blocks and pages that became held; if `whole`, all that are held.
    pub added: Vec<BlockId>,
    /// Blocks and pages that are no longer held.
    pub dropped: Vec<BlockId>,
    /// The mark is too old: `added` lists everything that is held.
    pub whole: bool,
    /// The mark for the next call.
    pub mark: u64,
}

/// The most recent changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// Number of the first change in `last`. Number 0 is never used, so mark 0 always returns the full list.
    first: u64,
    /// Each id with whether it became held. For the same id, held and not held alternate.
    last: VecDeque<(BlockId, bool)>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { first: 1, last: VecDeque::new() }
    }
}

impl Changes {
    /// Adds a change: the id became held, or is no longer held.
    pub(super) fn push(&mut self, id: BlockId, is_held: bool) {
        if self.last.len() == CHANGES_MAX {
            self.last.pop_front();
            self.first += 1;
        }
        self.last.push_back((id, is_held));
    }

    /// Returns the mark from which later changes will be returned.
    pub(super) fn mark(&self) -> u64 {
        self.first + self.last.len() as u64
    }

    /// Returns the changes since a mark, without those that were undone; `None` if they are no longer known.
    pub(super) fn since(&self, mark: u64) -> Option<CacheChanges> {
        if !(self.first..=self.mark()).contains(&mark) {
            return None;
        }
        let mut odd: BTreeMap<BlockId, bool> = BTreeMap::new();
        for (id, is_held) in self.last.iter().skip((mark - self.first) as usize) {
            if odd.remove(id).is_none() {
                odd.insert(*id, *is_held);
            }
        }
        let of = |wanted: bool| odd.iter().filter(|(_, held)| **held == wanted).map(|(id, _)| *id).collect();
        Some(CacheChanges { added: of(true), dropped: of(false), whole: false, mark: self.mark() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> BlockId {
        let mut id = BlockId([0; 32]);
        id.0[..4].copy_from_slice(&n.to_le_bytes());
        id
    }

    #[test]
    fn changes_are_returned_once_and_undone_ones_are_left_out() {
        let mut changes = Changes::default();
        assert_eq!(changes.since(0), None);
        let start = changes.mark();
        changes.push(id(1), true);
        changes.push(id(2), true);
        let middle = changes.mark();
        changes.push(id(1), false);
        changes.push(id(3), true);
        changes.push(id(3), false);
        let since = |mark| changes.since(mark).map(|it| (it.added, it.dropped));
        assert_eq!(since(start), Some((vec![id(2)], vec![])));
        assert_eq!(since(middle), Some((vec![], vec![id(1)])));
        assert_eq!(since(changes.mark()), Some((vec![], vec![])));
        assert_eq!(since(changes.mark() + 1), None, "a mark of another process");
    }

    #[test]
    fn a_reader_far_behind_starts_over() {
        let mut changes = Changes::default();
        let start = changes.mark();
        (0..CHANGES_MAX as u32).for_each(|n| changes.push(id(n), true));
        assert_eq!(changes.since(start).unwrap().added.len(), CHANGES_MAX);
        changes.push(id(0), false);
        assert_eq!(changes.since(start), None);
        assert!(changes.since(start + 1).is_some() && changes.last.len() == CHANGES_MAX);
    }
}
