//! Fetches for peers, as the home of blocks.
//!
//! Limits the number of such requests. Must never keep a request that its sender cancelled.

use std::collections::{HashMap, HashSet};

use platter_cast::peer::NodeId;
use platter_image::BlockId;

/// Most requests with fetches at once; further ones are answered with held frames only.
const READS_MAX: usize = 64;

/// A request with a fetch under way.
struct Read {
    node: NodeId,
    request: u32,
    left: HashSet<BlockId>,
    missing: Vec<BlockId>,
}

/// The effect of a frame, or of the end of a fetch, on a request.
pub(super) enum Progress {
    Nothing,
    /// The frame belongs to the reply.
    Gives,
    /// The frame belongs to the reply and was the last; these blocks were not found.
    Ends(Vec<BlockId>),
}

/// All requests, by the machine's number.
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

    /// A frame with these blocks arrived.
    pub(super) fn came<'a>(&mut self, number: u64, ids: impl Iterator<Item = &'a BlockId>) -> Progress {
        let Some(read) = self.0.get_mut(&number) else { return Progress::Nothing };
        let before = read.left.len();
        ids.for_each(|id| _ = read.left.remove(id));
        if read.left.len() == before { Progress::Nothing } else { self.look(number) }
    }

    /// This block cannot be fetched.
    pub(super) fn failed(&mut self, number: u64, id: &BlockId) -> Progress {
        let Some(read) = self.0.get_mut(&number) else { return Progress::Nothing };
        if read.left.remove(id) {
            read.missing.push(*id);
        }
        self.look(number)
    }

    /// Its sender no longer waits.
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
