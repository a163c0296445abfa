//! A verified frame in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, BlockPlace, FrameAddress, Kind, Lease};

/// Pack number in addresses of frames in memory. No pack or segment has this number.
const PACK: u32 = u32::MAX;

/// A block or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) id: BlockId,
}

/// A frame whose blocks were all hashed on this machine.
#[derive(Debug)]
pub(crate) struct VerifiedFrame {
    /// Unique among the frames of this process.
    number: u64,
    pub(crate) header: FrameHeader,
    pub(crate) stored: Arc<[u8]>,
}

impl VerifiedFrame {
    pub(super) fn new(header: FrameHeader, stored: Arc<[u8]>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self { number: NEXT.fetch_add(1, Ordering::Relaxed), header, stored })
    }

    /// The ids of its blocks.
    pub(super) fn ids(&self) -> impl Iterator<Item = &BlockId> {
        self.header.blocks.iter().map(|block| &block.id)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.ids().map(|id| Key { kind: self.header.kind, id: *id })
    }

    /// Returns a lease on it for one of its blocks.
    pub(crate) fn lease(&self, id: &BlockId) -> Option<Lease> {
        let slot = self.ids().position(|other| other == id)? as u32;
        let frame = FrameAddress { pack: PACK, offset: self.number, length: self.stored.len() as u32 };
        Some(Lease::in_memory(BlockPlace { frame, slot }, self.stored.clone()))
    }
}
