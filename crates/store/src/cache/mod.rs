//! A store in cache mode: verified frames of any origin's stores, in a directory with a size limit.
//!
//! ```text
//! put ─▶ newest segment ─full▶ sealed segments ─oldest▶ evicted: what was read since, or is pinned, goes to the newest
//! get ─▶ index ─▶ segment ─▶ checked by checksum, hashed the first time after opening
//! ```
//!
//! All of it can be had again from elsewhere: what is damaged, or cannot be read or written, is not held, and nobody's read
//! fails for it. Must never give out bytes that were not checked, nor drop what is pinned, nor pass its limit by more than one
//! segment. The layout is `docs/formats/cache.md`. Ids of blocks and pages cannot be equal, so one index has both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, BlockPlace, FrameAddress, Kind, Result};
use platter_vfs::Vfs;

/// How large a cache is, and how it works.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Most bytes of its files, passed by one segment at most, for a moment.
    pub limit_bytes: u64,
    /// Bytes of one segment; less where the limit is small.
    pub segment_bytes: u64,
    /// After a write that failed, nothing is taken for so long.
    pub pause: Duration,
}

/// The name of a set of pins: 1 to 80 characters of `a-z`, `0-9`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinName(String);

/// A whole frame that holds a block: header and payload as they lie, checked, and which of its blocks it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    pub stored: Vec<u8>,
    pub slot: u32,
}

/// What became held and what went, for whoever keeps a filter of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheChanges {
    /// Blocks that were not held before; all that are held, if `whole`.
    pub added: Vec<BlockId>,
    /// Blocks that are held no longer.
    pub dropped: Vec<BlockId>,
    /// `since` was too long ago, or of another opening: begin anew with `added`.
    pub whole: bool,
    /// What to ask with the next time.
    pub mark: u64,
}

/// What a cache did since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Frames that were asked for and held.
    pub hits: u64,
    /// Frames that were asked for and not held.
    pub misses: u64,
    /// Frames taken.
    pub taken: u64,
    /// Frames not taken: everything is pinned, or writing failed lately.
    pub refused: u64,
    /// Frames that went to make room.
    pub evicted: u64,
    /// Frames that went because they were damaged.
    pub damaged: u64,
    /// Writes and syncs that failed.
    pub write_failures: u64,
    /// Blocks and pages held.
    pub blocks: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of frames that are pinned.
    pub pinned_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

/// An open cache. Everything may be called from many threads; clones are the same cache. Nothing waits for a sync but
/// [`Cache::sync`] and the changing of pins.
#[derive(Clone, Debug)]
pub struct Cache(Arc<()>);

impl Cache {
    /// Opens the cache in a directory, which is made when missing, and makes it smaller when its limit was larger.
    ///
    /// # Errors
    /// `Refused` when the limit is too small, another process has it open, or a newer Platter made it; `Io`.
    pub fn open(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>, options: CacheOptions) -> Result<Self>;

    /// Whether that block or page is held.
    pub fn holds(&self, id: &BlockId) -> bool;

    /// The frame that holds that block, to be read: checked, and noted as used. `None` when it is not held, or just turned out
    /// to be damaged.
    pub fn get(&self, kind: Kind, id: &BlockId) -> Option<StoredFrame>;

    /// Where the frame with that block lies: [`Cache::get`] in two steps, for those who speak
    /// [`platter_image::FrameSource`].
    pub fn locate(&self, kind: Kind, id: &BlockId) -> Option<BlockPlace>;

    /// Replaces `stored` by the frame at an address that [`Cache::locate`] or [`Cache::put`] gave, as for [`Cache::get`]; false
    /// when it is no longer there: [`Cache::gone`] then says what it held.
    pub fn read(&self, address: FrameAddress, stored: &mut Vec<u8>) -> bool;

    /// The first block of a frame that was at that address not long ago.
    pub fn gone(&self, address: FrameAddress) -> Option<BlockId>;

    /// Takes a frame whose blocks were all hashed on this machine, of any kind; `header` is its own. What is held already costs
    /// nothing. Gives where it lies; `None` when it was not taken, because everything is pinned or writing failed lately:
    /// [`Cache::notes`] says so.
    pub fn put(&self, stored: &[u8], header: &FrameHeader) -> Option<FrameAddress>;

    /// Makes that set of pins be exactly these blocks and pages, held now or later: they are not evicted. Durable when this
    /// returns; not the frames, which [`Cache::sync`] is for.
    ///
    /// # Errors
    /// `Io`: the set is as it was before, or as it was to be.
    pub fn pin(&self, set: &PinName, ids: &[BlockId]) -> Result<()>;

    /// Removes a set of pins, if there is one.
    ///
    /// # Errors
    /// `Io`.
    pub fn unpin(&self, set: &PinName) -> Result<()>;

    /// The sets of pins, by name.
    pub fn pin_sets(&self) -> Vec<PinName>;

    /// What a set pins, sorted; `None` when there is no such set.
    ///
    /// # Errors
    /// `Corrupt` when its file is damaged; `Io`.
    pub fn pinned(&self, set: &PinName) -> Result<Option<Vec<BlockId>>>;

    /// Makes durable what was taken before. What is held after that and pinned is held after a power loss.
    ///
    /// # Errors
    /// `Io`: what was not durable before is no longer held.
    pub fn sync(&self) -> Result<()>;

    /// What became held and what went since a mark that an earlier call gave; 0 at first.
    pub fn changes(&self, since: u64) -> CacheChanges;

    /// What it did, and what it holds.
    pub fn counts(&self) -> CacheCounts;

    /// What a person should know since the last call: damage, failed writes, pins that leave no room. Each told once.
    pub fn notes(&self) -> Vec<String>;
}
