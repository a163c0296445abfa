//! Blocks from wherever they are: a store, a cache, a machine far away.
//!
//! Finding a block gives a lease on a frame that holds it, and a lease can be read as long as it lives: what holds the frame
//! keeps it readable, or it is in memory. A frame that cannot be read all the same is damaged. Its holder then forgets it, and
//! [`read_found`] looks for the block once more: that is the only place where this is done.

use std::sync::Arc;

use crate::{BlockId, BlockPlace, Error, ErrorKind, FrameAddress, Result};

/// Frames that are tried for one block: where each is damaged, something is wrong with more than a frame.
const FRAMES_MAX: usize = 4;

/// Something that blocks can be read from, by many threads at once.
pub trait BlockSource: Send + Sync {
    /// A frame with the block of that name; waits for it where it is far away. `None`: nobody has it.
    ///
    /// # Errors
    /// `Transient` when nobody could be asked; what reading an index says.
    fn find(&self, id: &BlockId) -> Result<Option<FoundBlock>>;

    /// These blocks will be asked for soon, and likely in this order. Only a hint: it must not wait, and whatever fails is
    /// told when the blocks are asked for. A source that is far away fetches them meanwhile.
    fn will_need(&self, _ids: &[BlockId]) {}

    /// Most bytes of a disk of which a sequential reader should tell [`BlockSource::will_need`] ahead of where it is; 0 for
    /// a source that need not be told, because it is near.
    fn hint_length(&self) -> u64 {
        0
    }

    /// Whether that block or page can be had without asking a machine far away: reading it ahead in vain then costs little. Asking is no
    /// use of it.
    fn is_near(&self, _id: &BlockId) -> bool {
        true
    }
}

/// What keeps frames readable for whoever has a lease on one.
pub trait FrameHolder: Send + Sync {
    /// Replaces `stored` by the whole frame, header and payload: nothing is proved. Whoever decodes it verifies it
    /// ([`crate::frame`]).
    ///
    /// # Errors
    /// `Io`, or `Corrupt` when it is damaged.
    fn read(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()>;

    /// The frame is damaged: whoever decoded it says so. The holder reads it again, and if it is still bad, remembers that.
    fn found_damaged(&self, _address: FrameAddress) {}

    /// Whether frames lie here in the order in which they are read. Elsewhere, who reads one block of a frame need not want
    /// its others.
    fn is_in_order(&self) -> bool {
        false
    }

    /// Where they do: blocks of the frames that whoever reads in this one comes to next, one of each, in order. To be asked
    /// once for each frame that somebody comes to.
    fn read_on(&self, _address: FrameAddress) -> Vec<BlockId> {
        Vec::new()
    }
}

/// A frame that can be read as long as this lives.
#[derive(Clone)]
pub struct FrameLease {
    address: FrameAddress,
    holder: Arc<dyn FrameHolder>,
}

/// A block that was found: in that frame, as its block number `slot`, counted from 0.
#[derive(Clone, Debug)]
pub struct FoundBlock {
    /// The frame.
    pub frame: FrameLease,
    /// The position of the block in the frame's list.
    pub slot: u32,
}

impl FoundBlock {
    /// The block at a place of that holder.
    pub fn at(place: BlockPlace, holder: Arc<dyn FrameHolder>) -> Self {
        Self { frame: FrameLease { address: place.frame, holder }, slot: place.slot }
    }

    /// The same block, in a frame that its reader calls otherwise: its holder must know where it is.
    #[must_use]
    pub fn called(mut self, address: FrameAddress) -> Self {
        self.frame.address = address;
        self
    }

    /// The block at a place in a frame that is in memory.
    pub fn in_memory(place: BlockPlace, stored: Arc<[u8]>) -> Self {
        Self::at(place, Arc::new(InMemory(stored)))
    }
}

impl FrameLease {
    /// Tells frames of one source apart: no two of them ever have the same.
    pub fn address(&self) -> FrameAddress {
        self.address
    }

    /// As [`FrameHolder::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, stored: &mut Vec<u8>) -> Result<()> {
        self.holder.read(self.address, stored)
    }

    /// As [`FrameHolder::is_in_order`].
    pub fn is_in_order(&self) -> bool {
        self.holder.is_in_order()
    }

    /// As [`FrameHolder::read_on`].
    pub fn read_on(&self) -> Vec<BlockId> {
        self.holder.read_on(self.address)
    }

    /// The same result of decoding the frame; tells its holder when the frame is damaged.
    ///
    /// # Errors
    /// Those of `decoded`.
    pub fn judged<T>(&self, decoded: Result<T>) -> Result<T> {
        if decoded.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
            self.holder.found_damaged(self.address);
        }
        decoded
    }
}

impl std::fmt::Debug for FrameLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameLease({:?})", self.address)
    }
}

/// A frame in memory.
struct InMemory(Arc<[u8]>);

impl FrameHolder for InMemory {
    fn read(&self, _address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        stored.clear();
        stored.extend_from_slice(&self.0);
        Ok(())
    }
}

/// A frame with the block of that name.
///
/// # Errors
/// `Missing` when it is nowhere: the version that names it is damaged. As [`BlockSource::find`].
pub fn find_block(source: &(impl BlockSource + ?Sized), id: &BlockId) -> Result<FoundBlock> {
    source.find(id)?.ok_or_else(|| Error::missing(format!("block {id} is in no pack; run `platter check`")))
}

/// What `read` makes of the frame where a block was found. If it fails, and `find` finds the block in another frame by now,
/// because the holder has forgotten a damaged one, that is read.
///
/// # Errors
/// The failure of `read`, when the block is found nowhere else; those of `find`.
pub fn read_found<T>(
    mut found: FoundBlock,
    find: impl Fn() -> Result<Option<FoundBlock>>,
    mut read: impl FnMut(&FoundBlock) -> Result<T>,
) -> Result<T> {
    for _ in 1..FRAMES_MAX {
        let error = match read(&found) {
            Err(error) => error,
            done => return done,
        };
        match find()? {
            Some(again) if again.frame.address != found.frame.address => found = again,
            _ => return Err(error),
        }
    }
    read(&found)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Frames 0 to `good` are damaged; each is forgotten when it was found so, if it `forgets`.
    struct Damaged {
        good: u64,
        forgets: bool,
        next: Mutex<u64>,
    }

    struct Frames(Arc<Damaged>);

    impl FrameHolder for Damaged {
        fn read(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
            *stored = vec![address.offset as u8];
            if address.offset < self.good { Err(Error::corrupt("damaged")) } else { Ok(()) }
        }

        fn found_damaged(&self, address: FrameAddress) {
            if self.forgets {
                *self.next.lock() = address.offset + 1;
            }
        }
    }

    impl BlockSource for Frames {
        fn find(&self, _id: &BlockId) -> Result<Option<FoundBlock>> {
            let frame = FrameAddress { pack: 0, offset: *self.0.next.lock(), length: 1 };
            Ok(Some(FoundBlock::at(BlockPlace { frame, slot: 0 }, self.0.clone())))
        }
    }

    fn read_from(good: u64, forgets: bool) -> (Result<u8>, u32) {
        let source = Frames(Arc::new(Damaged { good, forgets, next: Mutex::new(0) }));
        let id = BlockId([0; 32]);
        let mut reads = 0;
        let read = read_found(
            find_block(&source, &id).unwrap(),
            || source.find(&id),
            |found| {
                reads += 1;
                let mut stored = Vec::new();
                found.frame.judged(found.frame.read(&mut stored))?;
                Ok(stored[0])
            },
        );
        (read, reads)
    }

    #[test]
    fn a_damaged_frame_that_is_forgotten_is_not_the_end() {
        assert!(matches!(read_from(0, true), (Ok(0), 1)));
        assert!(matches!(read_from(2, true), (Ok(2), 3)));
        let (read, reads) = read_from(1, false);
        assert_eq!((read.unwrap_err().kind(), reads), (ErrorKind::Corrupt, 1), "there is no other one");
        let (read, reads) = read_from(u64::MAX, true);
        assert_eq!((read.unwrap_err().kind(), reads), (ErrorKind::Corrupt, 4), "it is not tried for ever");
    }
}
