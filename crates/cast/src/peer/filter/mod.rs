//! The Bloom filter of the blocks that a node holds: what it tells its peers, so that they know whom to ask.
//!
//! A filter is one to three *layers*, each a Bloom filter of its own for so many blocks ([`layer`]). A full layer is
//! followed by a larger empty one, so a growing cache is told by its new blocks alone ([`changes`]), and the copy that
//! a peer keeps stays equal to the owner's bit for bit. When three layers are full, or as many blocks were evicted as
//! are held, the owner ([`holdings`]) makes a new filter, of another generation, and sends it whole.
//!
//! A filter may say yes to what is not there: about one time in a hundred by chance, and for blocks evicted since. It
//! never says no to what its owner held at that version. The keys in it depend on a salt of the owner's: whoever makes
//! blocks cannot choose ones that collide. Layout: docs/formats/peer-wire.md.

mod changes;
mod holdings;
mod layer;
mod remote;

pub use changes::{CHANGES_MAX, FilterChanges};
pub(in crate::peer) use changes::{parse_keys, put_keys};
pub use holdings::{Holdings, PieceCursor};
pub use layer::{FILTER_BYTES_MAX, LAYERS_MAX, LayerSize};
pub use remote::{FilterPiece, PIECE_BYTES_MAX, RemoteFilter};

use crate::random::mix;
use platter_image::BlockId;

/// Where a filter stands in its owner's history. Greater is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterVersion {
    /// Counts the filters that were made anew.
    pub generation: u32,
    /// Blocks added to this one since.
    pub additions: u32,
}

/// The key of a block under a salt. The low half stands in filters; the owner knows all of it. Half of the id is
/// enough: it is a hash, and evenly spread.
fn key_of(salt: u64, id: &BlockId) -> u64 {
    let (words, _) = id.0.as_chunks::<8>();
    let word = |index: usize| u64::from_le_bytes(words[index]);
    mix(mix(word(0) ^ salt) ^ word(1))
}

#[cfg(test)]
mod tests;
