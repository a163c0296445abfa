//! Groups of blocks, and the node that is a group's home.
//!
//! Owns both rules: every node must come to the same result from what it knows. A group is a run of ids in the order of
//! a recipe, cut where an id's own bits say so: two images that share a run share its groups, wherever it stands, and a
//! frame lies in one group nearly always. The home is the node of the highest hash with the group (rendezvous hashing,
//! Thaler and Ravishankar 1998): when a node goes, its groups spread over all others, and nothing else moves. Fetching
//! at the home is the home-store of the web cache Squirrel (Iyer, Rowstron, Druschel 2002).

use platter_image::BlockId;

use crate::peer::NodeId;
use crate::random::mix;

/// Most ids of a group. On average they have 16: a few frames.
pub const GROUP_BLOCKS_MAX: usize = 64;
/// An id begins a group when these bits of its last byte are zero: every 16th does.
const BORDER_BITS: u8 = 15;

/// The group of each id, for ids in the order of a recipe, from the start of one of its pages.
pub fn groups(ids: &[BlockId]) -> Vec<u64> {
    let (mut group, mut length) = (0, GROUP_BLOCKS_MAX);
    let of = |id: &BlockId| {
        if id.0[31] & BORDER_BITS == 0 || length == GROUP_BLOCKS_MAX {
            let (words, _) = id.0.as_chunks::<8>();
            (group, length) = (u64::from_le_bytes(words[2]), 0);
        }
        length += 1;
        group
    };
    ids.iter().map(of).collect()
}

/// A node's part of every hash with a group.
pub(super) fn node_hash(node: &NodeId) -> u64 {
    let (words, _) = node.0.as_chunks::<8>();
    mix(mix(u64::from_le_bytes(words[0])) ^ u64::from_le_bytes(words[1]))
}

/// The rank of a node for a group: the node with the highest is the group's home.
pub(super) fn affinity(node_hash: u64, group: u64) -> u64 {
    mix(node_hash ^ mix(group))
}
