//! Where frames come from and go to: the traits at which store, disk, cast and virtual disks meet.
//!
//! The name of a trait is the permission: a [`FrameSource`] can be read, a [`FrameStore`] can also be added to.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::{FrameHeader, HEADER_LENGTH};
use crate::{BlockId, Error, ErrorKind, Result};

/// Read at once of a header: it fits frames of up to 24 blocks.
const HEADER_GUESS: usize = HEADER_LENGTH + 36 * 24;

/// Where a frame lies in a source. Sorting by it gives the order in which they are read fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameAddress {
    /// The pack, as the source numbers its packs while it is open.
    pub pack: u32,
    /// First byte of the frame's header in the pack.
    pub offset: u64,
    /// Length of the whole frame, header and payload, in bytes; at most [`crate::frame::STORED_LENGTH_MAX`]. Where it lies
    /// it may be shorter.
    pub length: u32,
}

/// Where a block stands: in which frame, and as which of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockPlace {
    /// The frame.
    pub frame: FrameAddress,
    /// The position of the block in the frame's list, from 0.
    pub slot: u32,
}

/// Something frames can be read from, by many threads at once.
pub trait FrameSource: Send + Sync {
    /// Where the block, page or record of that name stands, if it is here.
    ///
    /// # Errors
    /// When the index cannot be read.
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>>;

    /// Replaces `stored` by the whole frame, header and payload: nothing is proved. Whoever decodes it verifies it
    /// ([`crate::frame`]).
    ///
    /// # Errors
    /// `Io`, or `Corrupt` when no such frame is there.
    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()>;

    /// Replaces `stored` by the first `length` bytes of the frame, or all of it if it is shorter: enough for whoever
    /// wants the header only.
    ///
    /// # Errors
    /// As for [`FrameSource::read_frame`].
    fn read_frame_start(&self, address: FrameAddress, length: usize, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(address, stored)?;
        stored.truncate(length);
        Ok(())
    }

    /// These blocks will be asked for soon, and likely in this order. Only a hint: it must not wait, and whatever fails is
    /// told when the blocks are asked for. A source that is far away fetches them meanwhile.
    fn will_need(&self, _ids: &[BlockId]) {}

    /// Most bytes of a disk of which a sequential reader should tell [`FrameSource::will_need`] ahead of where it is; 0 for a
    /// source that need not be told, because it is near.
    fn hint_length(&self) -> u64 {
        0
    }

    /// Of frames that lie in the order in which they are read: blocks of those that whoever reads in this one comes to next, one of
    /// each, in order. `None` where frames lie otherwise: who reads one block of a frame then need not want its others. To be asked
    /// once for each frame that somebody comes to.
    fn read_on(&self, _address: FrameAddress) -> Option<Vec<BlockId>> {
        None
    }

    /// Whether that block or page can be had without asking a machine far away: reading it ahead in vain then costs little. Asking is no
    /// use of it.
    fn is_near(&self, _id: &BlockId) -> bool {
        true
    }

    /// The frame that was read from that address is damaged: whoever decoded it says so. A source that keeps frames reads it
    /// again, and if it is still bad, remembers that. What becomes of it is nothing that the reader could act on.
    fn found_damaged(&self, _address: FrameAddress) {}
}

/// Where a frame with the block or page of that name lies.
///
/// # Errors
/// `Missing` when it is nowhere: the version that names it is damaged.
pub fn locate(source: &(impl FrameSource + ?Sized), id: &BlockId) -> Result<BlockPlace> {
    source.locate(id)?.ok_or_else(|| Error::missing(format!("block {id} is in no pack; run `platter check`")))
}

/// The same result of decoding the frame at an address; tells its source when the frame is damaged.
///
/// # Errors
/// Those of `decoded`.
pub fn judged<T>(
    source: &(impl FrameSource + ?Sized),
    address: FrameAddress,
    decoded: Result<T>,
) -> Result<T> {
    if decoded.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
        source.found_damaged(address);
    }
    decoded
}

/// The header of the frame at an address; `head` is for its bytes.
///
/// # Errors
/// As for [`FrameSource::read_frame`]; `Corrupt` when it is no header.
pub fn header_of(
    source: &(impl FrameSource + ?Sized),
    address: FrameAddress,
    head: &mut Vec<u8>,
) -> Result<FrameHeader> {
    source.read_frame_start(address, HEADER_GUESS, head)?;
    let (needed, _) = judged(source, address, FrameHeader::peek_lengths(head))?;
    if needed > head.len() {
        source.read_frame_start(address, needed, head)?;
    }
    judged(source, address, FrameHeader::parse(head))
}

/// Something frames can be added to.
pub trait FrameStore: FrameSource {
    /// If the block is here, pins it: while the pin lives, collection keeps it. The only question deduplication may
    /// ask (design: pins); there is no `exists`.
    ///
    /// # Errors
    /// When the index cannot be read.
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>>;

    /// The same for many blocks at once, in their order: one question where the store is far away.
    ///
    /// # Errors
    /// As for [`FrameStore::lookup_and_pin`].
    fn lookup_and_pin_all(&self, ids: &[BlockId]) -> Result<Vec<Option<Pin>>> {
        ids.iter().map(|id| self.lookup_and_pin(id)).collect()
    }

    /// Calls of [`FrameStore::lookup_and_pin_all`] that are worth having under way at once: more than one where the
    /// answers take long to come.
    fn lookups_under_way(&self) -> usize {
        1
    }

    /// If a block of that name is here, sound or damaged, pins it: for entries that are taken over from a version without
    /// being read. They refer to what that version refers to, and cannot be stored anew. Deduplication never asks this.
    ///
    /// # Errors
    /// As for [`FrameStore::lookup_and_pin`].
    fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        self.lookup_and_pin(id)
    }

    /// Adds an encoded frame. It is found by [`FrameStore::lookup_and_pin`] at once, and durable only when whatever
    /// refers to it has been published.
    ///
    /// # Errors
    /// `Io`: out of space, or a failed write; the store then takes nothing more.
    fn append(&self, frame: &crate::frame::EncodedFrame) -> Result<Pin>;
}

/// Keeps blocks from being collected while it lives. Many pins share one holder (a pack's), so a clone is cheap.
#[derive(Clone)]
pub struct Pin(Arc<dyn Any + Send + Sync>);

impl Pin {
    /// A pin that holds `holder`.
    pub fn new(holder: Arc<dyn Any + Send + Sync>) -> Self {
        Self(holder)
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// Many pins, with one kept for each holder: its memory follows the number of packs, not of blocks.
#[derive(Debug, Default)]
pub struct PinSet(HashMap<usize, Pin>);

impl PinSet {
    /// Holds that pin until the set is dropped.
    pub fn insert(&mut self, pin: Pin) {
        self.0.entry(Arc::as_ptr(&pin.0).cast::<()>() as usize).or_insert(pin);
    }

    /// Holds what `other` holds too.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
