//! The decisions of collection, each a pure function of what its caller holds under a lock. The store and the model in
//! `model/` call the same functions, so a schedule that breaks one breaks the other.
//!
//! Never does I/O, never takes a lock, never decides by a clock.

use platter_records::PackState;

/// What a lookup for deduplication may do with a pack that has the block. Decided under the index lock for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// Pin the pack and refer to it.
    Pin,
    /// Return the pack to live, then pin it.
    Rescue,
    /// The block counts as missing, and is stored again.
    Missing,
}

/// Decides what a lookup does with a pack in that state.
pub fn lookup(state: PackState) -> LookupAnswer {
    match state {
        PackState::Open | PackState::Live => LookupAnswer::Pin,
        PackState::Condemned => LookupAnswer::Rescue,
        PackState::Dead | PackState::Deleted => LookupAnswer::Missing,
    }
}

/// Returns whether a pack may be condemned. Decided under the catalog lock and the index lock for writing, after every version
/// in the catalog was marked. `are_copied`: every live block of the pack has a copy in a live pack that is not being condemned.
pub fn may_condemn(state: PackState, is_pinned: bool, are_copied: bool) -> bool {
    let is_candidate = matches!(state, PackState::Live | PackState::Condemned);
    is_candidate && !is_pinned && are_copied
}

/// Returns whether a condemned pack may be declared dead. Decided under the same locks as [`may_condemn`].
pub fn may_die(state: PackState, is_pinned: bool) -> bool {
    state == PackState::Condemned && !is_pinned
}

/// Returns whether the file of a pack may be deleted. `committed` is the state that the catalog has durably.
pub fn may_delete(committed: PackState) -> bool {
    committed == PackState::Dead
}
