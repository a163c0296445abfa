//! The Bloom filter of the blocks that a node holds. A node sends it to its peers so that they know which node to ask.
//!
//! A filter has one to three *layers*. Each is a Bloom filter with its own capacity in blocks ([`layer`]). When a layer is
//! full, a larger empty one follows, so that a growing cache only sends its new blocks ([`changes`]), and a peer's copy stays
//! bit for bit equal to the owner's. When three layers are full, or as many blocks were evicted as are held, the owner
//! ([`holdings`]) makes a new filter with the next generation number and sends it whole.
//!
//! A filter may claim blocks that are not held: about 1 % by chance, and blocks evicted since. It never denies a block that
//! its owner held at that version. Keys depend on a random salt of the owner, so that nobody can choose blocks that
//! collide. Layout: docs/formats/peer-wire.md.

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

/// A version of a node's filter. A greater version is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterVersion {
    /// Number of the filter; each new filter gets the next number.
    pub generation: u32,
    /// Blocks added since this filter was made.
    pub additions: u32,
}

/// Returns the key of a block under a salt. The filter uses the low 32 bits; the owner keeps all 64. Half of the id is
/// enough input, because an id is a uniformly distributed hash.
fn key_of(salt: u64, id: &BlockId) -> u64 {
    let (words, _) = id.0.as_chunks::<8>();
    let word = |index: usize| u64::from_le_bytes(words[index]);
    mix(mix(word(0) ^ salt) ^ word(1))
}

#[cfg(test)]
mod tests;
