//! What happens to the machine.

use std::sync::Arc;

use crossbeam_channel::Sender;
use platter_cast::peer::{NodeId, PeerMessage};
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Error, Result};

use crate::peers::counts::PeerCounts;
use crate::peers::directory::Learned;
use crate::peers::holdings::HeldChanges;
use crate::peers::link::Link;
use crate::peers::serving::Answer;
use crate::peers::wants::{Found, Place};

/// A frame whose blocks were all hashed on this machine.
#[derive(Clone, Debug)]
pub(in crate::peers) struct VerifiedFrame {
    pub(in crate::peers) header: FrameHeader,
    pub(in crate::peers) stored: Arc<[u8]>,
}

impl VerifiedFrame {
    /// The blocks in it.
    pub(in crate::peers) fn ids(&self) -> impl Iterator<Item = &BlockId> {
        self.header.blocks.iter().map(|block| &block.id)
    }
}

/// What other threads tell.
pub(in crate::peers) enum Event {
    /// There is a connection.
    Linked(Link),
    /// A connection could not be made.
    NotLinked(NodeId),
    /// A message came; a frame in it was verified, and has that header.
    Message { number: u64, node: NodeId, message: PeerMessage, header: Option<FrameHeader> },
    /// A connection takes messages again.
    Drained { number: u64, node: NodeId },
    /// A connection ended; `Corrupt` if by a lie.
    Closed { number: u64, node: NodeId, lie: Option<Error> },
    /// What is held for a peer's question.
    Served(Answer),
    /// The origin sent a frame for that question.
    OriginFrame { number: u32, frame: VerifiedFrame },
    /// The origin's answer ended: what is not there, or why it did not come.
    OriginEnded { number: u32, result: Result<Vec<BlockId>> },
    /// What this node holds has changed.
    Held(HeldChanges),
}

/// What this node's own readers ask.
pub(in crate::peers) enum Command {
    /// Somebody waits for that.
    Want { place: Place, id: BlockId, waiter: Sender<Found> },
    /// A source's reader will want these, each in its group.
    Hint { source: u64, places: Vec<(Place, BlockId)> },
    /// That source's reader is gone.
    Forget(u64),
    /// The registry told of nodes.
    Nodes(Learned),
    /// What was done so far?
    Counts(Sender<PeerCounts>),
    /// It is over.
    End,
}
