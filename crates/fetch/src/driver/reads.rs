//! What this node fetches for peers, as the home of the blocks.
//!
//! Owns how many such questions are served at once. Must never keep one that its asker cancelled.

use std::collections::{HashMap, HashSet};

use platter_cast::peer::NodeId;
use platter_image::BlockId;

/// Most questions that are fetched for at once; others are answered with what is held.
const READS_MAX: usize = 64;

/// A question that is being fetched for.
struct Read {
    node: NodeId,
    request: u32,
    left: HashSet<BlockId>,
    missing: Vec<BlockId>,
}

/// What a frame, or the end of a fetch, did for a question.
pub(super) enum Progress {
    Nothing,
    /// The frame is for it.
    Gives,
    /// So was that, and it was the last; these do not come.
    Ends(Vec<BlockId>),
}

/// All of them, by the number that the machine knows the question by.
#[derive(Default)]
pub(super) struct Reads(HashMap<u64, Read>);

impl Reads {
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < READS_MAX
    }

    pub(super) fn begin(&mut self, number: u64, node: NodeId, request: u32, ids: &[BlockId]) {
        let left = ids.iter().copied().collect();
        self.0.insert(number, Read { node, request, left, missing: Vec::new() });
    }

    pub(super) fn get(&self, number: u64) -> Option<(NodeId, u32)> {
        self.0.get(&number).map(|read| (read.node, read.request))
    }

    /// A frame came that holds these.
    pub(super) fn came<'a>(&mut self, number: u64, ids: impl Iterator<Item = &'a BlockId>) -> Progress {
        let Some(read) = self.0.get_mut(&number) else { return Progress::Nothing };
        let before = read.left.len();
        ids.for_each(|id| _ = read.left.remove(id));
        if read.left.len() == before { Progress::Nothing } else { self.look(number) }
    }

    /// That block does not come.
    pub(super) fn failed(&mut self, number: u64, id: &BlockId) -> Progress {
        let Some(read) = self.0.get_mut(&number) else { return Progress::Nothing };
        if read.left.remove(id) {
            read.missing.push(*id);
        }
        self.look(number)
    }

    /// Nobody waits for it any more.
    pub(super) fn cancel(&mut self, number: u64) {
        self.0.remove(&number);
    }

    fn look(&mut self, number: u64) -> Progress {
        if self.0.get(&number).is_some_and(|read| !read.left.is_empty()) {
            return Progress::Gives;
        }
        self.0.remove(&number).map_or(Progress::Nothing, |read| Progress::Ends(read.missing))
    }
}
