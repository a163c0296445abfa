//! What this node holds, as its peers may have it.

use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Kind};

/// What became held and what went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldChanges {
    /// Blocks and pages that are held now; all of them, if `whole`.
    pub(crate) added: Vec<BlockId>,
    /// Those that are not any more.
    pub(crate) dropped: Vec<BlockId>,
    /// Whether nothing else is held.
    pub(crate) whole: bool,
    /// What to ask with the next time.
    pub(crate) mark: u64,
}

/// Frames that a node keeps. Asked by several threads at once.
pub(crate) trait Holdings: Send + Sync {
    /// A whole frame that holds that block, as it is stored; none when it is not held, or damaged.
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>>;

    /// Keeps a frame whose blocks were all hashed on this machine, if there is room.
    fn keep(&self, stored: &[u8], header: &FrameHeader);

    /// What changed since a mark that an earlier call gave; 0 at first.
    fn changes(&self, since: u64) -> HeldChanges;

    /// A number that grows whenever the node's own disks read what is held: peers yield to that.
    fn own_reads(&self) -> u64;
}
