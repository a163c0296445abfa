//! A lease on a frame: whoever holds it can read the frame, whatever the source drops meanwhile.
//!
//! A source of lasting places leases by address. A source that drops frames to make room (a cache, or frames on their way from
//! another machine) hands out the bytes, or an open file that they lie in.

use std::sync::Arc;

use crate::{BlockPlace, Error, Result};

/// A frame that holds a wanted block.
#[derive(Clone)]
pub struct Lease {
    /// Where the block stands. Equal frame addresses of one source mean the same frame; only a source of lasting places
    /// ([`crate::FrameIndex`]) can be asked for it again by that.
    pub place: BlockPlace,
    held: Held,
}

#[derive(Clone)]
enum Held {
    /// The source reads it at its address.
    InPlace,
    InMemory(Arc<[u8]>),
    Elsewhere(Arc<dyn HeldFrame>),
}

/// A frame that can be read for as long as this lives.
pub trait HeldFrame: Send + Sync {
    /// Replaces `stored` by the whole frame, header and payload.
    ///
    /// # Errors
    /// `Transient` when it turned out to be damaged and the source will have it again: take another lease. `Io`.
    fn read(&self, stored: &mut Vec<u8>) -> Result<()>;
}

impl Lease {
    /// Of a source whose places last.
    pub fn in_place(place: BlockPlace) -> Self {
        Self { place, held: Held::InPlace }
    }

    /// Of a frame in memory.
    pub fn in_memory(place: BlockPlace, stored: Arc<[u8]>) -> Self {
        Self { place, held: Held::InMemory(stored) }
    }

    /// Of a frame that something else holds.
    pub fn held_by(place: BlockPlace, frame: Arc<dyn HeldFrame>) -> Self {
        Self { place, held: Held::Elsewhere(frame) }
    }

    /// Whether the source has to read it, by its address.
    pub fn is_in_place(&self) -> bool {
        matches!(self.held, Held::InPlace)
    }

    /// Replaces `stored` by the whole frame, of a lease that is not [`Lease::in_place`].
    ///
    /// # Errors
    /// As [`HeldFrame::read`].
    pub fn read(&self, stored: &mut Vec<u8>) -> Result<()> {
        match &self.held {
            Held::InMemory(frame) => {
                stored.clear();
                stored.extend_from_slice(frame);
                Ok(())
            }
            Held::Elsewhere(frame) => frame.read(stored),
            Held::InPlace => Err(Error::bug("a frame in place is read by its source")),
        }
    }
}
