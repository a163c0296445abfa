//! What became held and what went, in order, for whoever keeps a filter of it. Pure.

use std::collections::{BTreeMap, VecDeque};

use platter_image::BlockId;

/// Changes that are remembered; whoever is further behind begins anew.
const CHANGES_MAX: usize = 1 << 16;

/// What became held and what went since some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheChanges {
    /// Blocks and pages that were not held then; all that are held, if `whole`.
    pub added: Vec<BlockId>,
    /// Blocks and pages that are held no longer.
    pub dropped: Vec<BlockId>,
    /// That moment is too long ago: begin anew with `added`.
    pub whole: bool,
    /// What to ask with the next time.
    pub mark: u64,
}

/// The last changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// The number of the first one in `last`. 0 is nobody's, so that asking with it gives everything.
    first: u64,
    /// Ids come and go by turns.
    last: VecDeque<(BlockId, bool)>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { first: 1, last: VecDeque::new() }
    }
}

impl Changes {
    /// Notes that an id became held, or is held no longer.
    pub(super) fn push(&mut self, id: BlockId, is_held: bool) {
        if self.last.len() == CHANGES_MAX {
            self.last.pop_front();
            self.first += 1;
        }
        self.last.push_back((id, is_held));
    }

    /// What to ask with to get what comes after now.
    pub(super) fn mark(&self) -> u64 {
        self.first + self.last.len() as u64
    }

    /// The changes since a mark, those that another undid left out; `None` when they are not known any more.
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
    fn changes_are_told_once_and_what_was_undone_is_not() {
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
        assert_eq!(since(changes.mark() + 1), None, "a mark of another life");
    }

    #[test]
    fn who_is_far_behind_begins_anew() {
        let mut changes = Changes::default();
        let start = changes.mark();
        (0..CHANGES_MAX as u32).for_each(|n| changes.push(id(n), true));
        assert_eq!(changes.since(start).unwrap().added.len(), CHANGES_MAX);
        changes.push(id(0), false);
        assert_eq!(changes.since(start), None);
        assert!(changes.since(start + 1).is_some() && changes.last.len() == CHANGES_MAX);
    }
}
