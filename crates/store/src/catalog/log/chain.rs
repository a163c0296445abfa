//! Proves a state from single entries, wherever they were found: each names the one before it by its hash.

use std::collections::HashMap;

use super::{Entry, State};
use platter_records::Action;

/// A state that a chain of entries proves.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) state: State,
    /// Number and hash of the last entry.
    pub(crate) last: (u64, String),
}

/// Returns the newest state that these entries prove: that of the entry with the highest number from which the hashes lead back
/// without a gap to a copy of all rows, and whose digest agrees. Of entries with the same number, the later one in the list
/// counts.
pub(crate) fn prove<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Proven> {
    let mut newest_first: Vec<&Entry> = entries.collect();
    let by_hash: HashMap<&str, &Entry> =
        newest_first.iter().map(|entry| (entry.hash.as_str(), *entry)).collect();
    newest_first.reverse();
    newest_first.sort_by_key(|entry| std::cmp::Reverse(entry.change.number));
    newest_first.into_iter().find_map(|last| prove_one(last, &by_hash))
}

fn prove_one(last: &Entry, by_hash: &HashMap<&str, &Entry>) -> Option<Proven> {
    let mut chain = vec![last];
    let mut entry = last;
    while !begins_copy(entry, by_hash) {
        entry = by_hash.get(entry.before.as_str())?;
        // Numbers fall by one, so this ends.
        if entry.change.number.checked_add(1) != chain.last().map(|later| later.change.number) {
            return None;
        }
        chain.push(entry);
    }
    let mut state = State::default();
    chain.iter().rev().for_each(|entry| state.apply(entry));
    let last = (last.change.number, last.hash.clone());
    (chain[0].after == state.digest()).then_some(Proven { state, last })
}

/// Returns whether a copy of all rows begins with that entry.
fn begins_copy(entry: &Entry, by_hash: &HashMap<&str, &Entry>) -> bool {
    let is_copy = |entry: &Entry| {
        matches!(entry.change.action, Action::Init {} | Action::Rebuild {} | Action::Snapshot {})
    };
    // All entries of a copy but its last one have no digest.
    is_copy(entry)
        && !by_hash
            .get(entry.before.as_str())
            .is_some_and(|before| is_copy(before) && before.after.is_empty())
}
