//! Groups of blocks, and their homes.
//!
//! Owns both rules. All nodes must get the same results. A group is a run of ids in the order of a recipe; the ids
//! themselves determine where groups begin. So two images with a common run of ids have common groups, wherever the run
//! is, and a frame nearly always belongs to one group. The home of a group is the node with the highest hash together
//! with the group (rendezvous hashing, Thaler and Ravishankar 1998): when a node leaves, its groups are distributed
//! over all others, and no other group moves. Fetching through the home corresponds to the home-store scheme of the web
//! cache Squirrel (Iyer, Rowstron, Druschel 2002).

use platter_image::BlockId;

use crate::peer::NodeId;
use crate::random::mix;

/// Maximum number of ids of a group. The average is 16: a few frames.
pub const GROUP_BLOCKS_MAX: usize = 64;
/// An id begins a group when these bits of its last byte are zero: every 16th does.
const BORDER_BITS: u8 = 15;

/// Returns the group of each id. The ids are in the order of a recipe, from the start of one of its pages.
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

/// Hashes a node's id, for use in [`affinity`].
pub(super) fn node_hash(node: &NodeId) -> u64 {
    let (words, _) = node.0.as_chunks::<8>();
    mix(mix(u64::from_le_bytes(words[0])) ^ u64::from_le_bytes(words[1]))
}

/// The rank of a node for a group: the node with the highest is the group's home.
pub(super) fn affinity(node_hash: u64, group: u64) -> u64 {
    mix(node_hash ^ mix(group))
}
