//! Sources and stores of frames: the traits that connect store, disk, cast and virtual disks.
//!
//! A trait's name states the permission: a [`FrameSource`] can be read, a [`FrameStore`] can also be added
//! to.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::{FrameHeader, HEADER_LENGTH};
use crate::{BlockId, Error, ErrorKind, Lease, Result};

/// Bytes read at first to get a header; enough for frames of up to 24 blocks.
const HEADER_GUESS: usize = HEADER_LENGTH + 36 * 24;

/// Where a frame lies in a source. Sorted addresses are in the fastest reading order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameAddress {
    /// The number of the pack; a source numbers its packs anew each time it is opened.
    pub pack: u32,
    /// Offset of the frame's header in the pack.
    pub offset: u64,
    /// Length of the whole frame in bytes, header and payload; at most [`crate::frame::STORED_LENGTH_MAX`].
    /// In a pack it may take fewer bytes.
    pub length: u32,
}

/// Where a block stands: its frame, and its position in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockPlace {
    /// The frame.
    pub frame: FrameAddress,
    /// The block's position in the frame's list, from 0.
    pub slot: u32,
}

/// A source of frames, used by many threads at once.
pub trait FrameSource: Send + Sync {
    /// A lease on a frame with the block or page of that name, fetched if need be; `None` when it is nowhere.
    ///
    /// # Errors
    /// When the index cannot be read; `Transient` when another machine that has it is down.
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>>;

    /// Replaces `stored` by the whole frame of a lease of this source, header and payload: nothing is proved. Whoever decodes it
    /// verifies it ([`crate::frame`]).
    ///
    /// # Errors
    /// `Io`, or `Corrupt` when no such frame is there; `Transient` when another lease is to be taken.
    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        lease.read(stored)
    }

    /// Announces that these blocks will be requested soon, probably in this order. Only a hint: it does not
    /// wait, and errors are reported when the blocks are requested. A far source fetches them in the
    /// meantime.
    fn will_need(&self, _ids: &[BlockId]) {}

    /// The most bytes of a disk that a sequential reader should announce with [`FrameSource::will_need`]
    /// ahead of its position; 0 for a near source, which needs no announcements.
    fn hint_length(&self) -> u64 {
        0
    }

    /// For a source that stores frames in reading order, such as a hoard: one block of each frame that
    /// follows this one, in order. `None` for other sources; there, a reader of one block need not want the
    /// other blocks of its frame. Call it once for each frame that a reader reaches.
    fn read_on(&self, _address: FrameAddress) -> Option<Vec<BlockId>> {
        None
    }

    /// Whether reading that block or page needs no far machine, so that reading it ahead in vain costs
    /// little. Does not count as an access.
    fn is_near(&self, _id: &BlockId) -> bool {
        true
    }

    /// Reports that the frame read from that address is damaged; called by its decoder. A source that keeps
    /// frames reads the frame again and records the damage if it is real. Errors are ignored: the reader
    /// could not act on them.
    fn found_damaged(&self, _address: FrameAddress) {}
}

/// A source whose frames have lasting places: what was located can be read later, in the order of places.
pub trait FrameIndex: FrameSource {
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
    /// As for [`FrameIndex::read_frame`].
    fn read_frame_start(&self, address: FrameAddress, length: usize, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(address, stored)?;
        stored.truncate(length);
        Ok(())
    }
}

/// A lease on a frame with that block.
///
/// # Errors
/// `Missing` when it is nowhere: the version that names it is damaged.
pub fn lease(source: &(impl FrameSource + ?Sized), id: &BlockId) -> Result<Lease> {
    source.lease(id)?.ok_or_else(|| nowhere(id))
}

fn nowhere(id: &BlockId) -> Error {
    Error::missing(format!("block {id} is in no pack; run `platter check`"))
}

/// Where a frame with the block or page of that name lies.
///
/// # Errors
/// `Missing` when it is nowhere: the version that names it is damaged.
pub fn locate(source: &(impl FrameIndex + ?Sized), id: &BlockId) -> Result<BlockPlace> {
    source.locate(id)?.ok_or_else(|| nowhere(id))
}

/// Passes on the result of decoding the frame at an address, and reports a damaged frame to its source.
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

/// The header of the frame at an address; `head` is a buffer for its bytes.
///
/// # Errors
/// Those of [`FrameSource::read_frame`]; `Corrupt` when it is not a valid header.
pub fn header_of(
    source: &(impl FrameIndex + ?Sized),
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

/// A source to which frames can be added.
pub trait FrameStore: FrameIndex {
    /// If the block is here, pins it: while the pin lives, collection keeps it. The only question deduplication may
    /// ask (design: pins); there is no `exists`.
    ///
    /// # Errors
    /// When the index cannot be read.
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>>;

    /// Looks up and pins many blocks in one call, which is a single request to a far store. Results are in
    /// the order of `ids`.
    ///
    /// # Errors
    /// Those of [`FrameStore::lookup_and_pin`].
    fn lookup_and_pin_all(&self, ids: &[BlockId]) -> Result<Vec<Option<Pin>>> {
        ids.iter().map(|id| self.lookup_and_pin(id)).collect()
    }

    /// How many concurrent calls of [`FrameStore::lookup_and_pin_all`] are useful: more than one for a far
    /// store.
    fn lookups_under_way(&self) -> usize {
        1
    }

    /// Pins the block if the store has it, even if it is damaged. For entries copied unread from a base
    /// version: they refer to what that version refers to, and cannot be stored anew. Deduplication never
    /// calls this.
    ///
    /// # Errors
    /// Those of [`FrameStore::lookup_and_pin`].
    fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        self.lookup_and_pin(id)
    }

    /// Adds an encoded frame. [`FrameStore::lookup_and_pin`] finds it at once, but it becomes durable only
    /// when something that refers to it is published.
    ///
    /// # Errors
    /// `Io` when there is no space or a write failed; the store then accepts no more frames.
    fn append(&self, frame: &crate::frame::EncodedFrame) -> Result<Pin>;
}

/// Keeps blocks from being collected while it exists. Many pins share one holder, such as a pack's, so clones
/// are cheap.
#[derive(Clone)]
pub struct Pin(Arc<dyn Any + Send + Sync>);

impl Pin {
    /// A pin that keeps `holder` alive.
    pub fn new(holder: Arc<dyn Any + Send + Sync>) -> Self {
        Self(holder)
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// Many pins, one per holder: memory grows with the number of packs, not of blocks.
#[derive(Debug, Default)]
pub struct PinSet(HashMap<usize, Pin>);

impl PinSet {
    /// Keeps that pin until the set is dropped.
    pub fn insert(&mut self, pin: Pin) {
        self.0.entry(Arc::as_ptr(&pin.0).cast::<()>() as usize).or_insert(pin);
    }

    /// Adds the pins of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
