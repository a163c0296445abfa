//! The frames that this node can serve to peers.

use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Kind};

/// Changes of the held blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldChanges {
    /// Blocks and pages that are now held; all held ones, if `whole`.
    pub(crate) added: Vec<BlockId>,
    /// Blocks and pages that are no longer held.
    pub(crate) dropped: Vec<BlockId>,
    /// Whether `added` lists everything that is held.
    pub(crate) whole: bool,
    /// The mark for the next call.
    pub(crate) mark: u64,
}

/// Frames that a node holds. Used by several threads at once.
pub(crate) trait Holdings: Send + Sync {
    /// Returns a whole stored frame with this block; `None` when it is not held, or damaged.
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>>;

    /// Stores a verified frame, if there is room.
    fn keep(&self, stored: &[u8], header: &FrameHeader);

    /// Returns the changes since a mark from an earlier call; 0 at first.
    fn changes(&self, since: u64) -> HeldChanges;

    /// A number that grows whenever the node's own disks read held frames: peers yield to these reads.
    fn own_reads(&self) -> u64;
}
