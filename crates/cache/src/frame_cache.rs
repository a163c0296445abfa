//! The public interface of a cache.
//!
//! There are two main locks. The writer's lock is held while frames are written and segments evicted. The index's lock is held
//! briefly, and never during file I/O. So a read that finds its frame never waits for a write or a sync. Locks are taken in this
//! order: pinning, writer, syncing, frames.

use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_image::frame::{DecoderPool, FrameHeader, ListedBlock, STORED_LENGTH_MAX, Verify};
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, HeldFrame, IoContext, Kind, Lease, Result,
};
use platter_vfs::{OpenMode, Vfs, VfsFile};

use super::changes::CacheChanges;
use super::frames::{Frames, ToRead};
use super::options::{CacheCounts, CacheOptions};
use super::pins::{self, PINS_MAX, PinName};
use super::place::CachePlace;
use super::segment;
use super::writer::{Newest, Writer};
use platter_pack::{lay_ids, read_frame};
use platter_records::StoreId;

/// Maximum number of notes that wait to be collected.
const NOTES_MAX: usize = 64;

/// An open cache. All functions may be called from many threads; clones share one cache. Only [`Cache::sync`], changes of
/// pins, and evictions with pinned frames wait for a sync.
#[derive(Clone, Debug)]
pub struct Cache(Arc<Shared>);

/// A frame of the cache, in an open segment: it can be read though the segment has been evicted meanwhile.
struct CachedFrame {
    cache: Arc<Shared>,
    address: FrameAddress,
    found: ToRead,
}

impl HeldFrame for CachedFrame {
    fn read(&self, stored: &mut Vec<u8>) -> Result<()> {
        self.cache.read_checked(self.address, &self.found, stored).map(drop)
    }
}

/// The state that all clones share.
pub(super) struct Shared {
    pub(super) place: CachePlace,
    pub(super) id: StoreId,
    pub(super) options: CacheOptions,
    frames: Mutex<Frames>,
    writer: Mutex<Writer>,
    /// Only one sync runs at a time: after a failed sync, a concurrent one could wrongly succeed (design: durable).
    syncing: Mutex<()>,
    pinning: Mutex<()>,
    decoders: DecoderPool,
    notes: Mutex<Vec<String>>,
    _lock: Box<dyn VfsFile>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache in {}", self.place.dir().display())
    }
}

impl Cache {
    /// Opens the cache in a directory, which is created if missing. Evicts frames if the limit was lowered.
    ///
    /// # Errors
    /// `Refused` when the limit is too small, another process has the cache open, or a newer Platter made it; `Io`.
    pub fn open(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>, options: CacheOptions) -> Result<Self> {
        options.check()?;
        let place = CachePlace::new(vfs, dir);
        let (lock, id) = place.open()?;
        let shared = Shared {
            place,
            id,
            options,
            frames: Mutex::new(Frames::new(options.limit_bytes)),
            writer: Mutex::new(Writer::new(None, 0)),
            syncing: Mutex::default(),
            pinning: Mutex::default(),
            decoders: DecoderPool::default(),
            notes: Mutex::default(),
            _lock: lock,
        };
        shared.load()?;
        Ok(Self(Arc::new(shared)))
    }

    /// Returns its directory. Other code may keep small files there, under names that this crate does not use.
    pub fn dir(&self) -> &Path {
        self.0.place.dir()
    }

    /// Returns its id, which is random and never changes.
    pub fn id(&self) -> StoreId {
        self.0.id
    }

    /// Returns whether a block or page is held.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.0.frames().holds(id)
    }

    /// A lease on the frame with that block, noted as used. Reading it checks the frame; one that is damaged is dropped, and
    /// reading fails as `Transient`.
    pub fn lease(&self, kind: Kind, id: &BlockId) -> Option<Lease> {
        let mut frames = self.0.frames();
        let place = frames.place(kind, id);
        frames.note_asked(place);
        self.leased(&frames, place?)
    }

    /// The same without counting it: for whoever has just put the frame there, and for peers.
    pub fn lease_unnoted(&self, kind: Kind, id: &BlockId) -> Option<Lease> {
        let frames = self.0.frames();
        self.leased(&frames, frames.place(kind, id)?)
    }

    fn leased(&self, frames: &Frames, place: BlockPlace) -> Option<Lease> {
        let found = frames.to_read(place.frame)?;
        let frame = CachedFrame { cache: self.0.clone(), address: place.frame, found };
        Some(Lease::held_by(place, Arc::new(frame)))
    }

    /// Stores a frame. All of its blocks were hashed on this machine, and `header` is its header. Does nothing if all blocks are
    /// held. Returns false if it was not stored, because everything is pinned or a write failed recently; see [`Cache::notes`].
    pub fn put(&self, stored: &[u8], header: &FrameHeader) -> bool {
        let whole = header.stored_length() == stored.len() && stored.len() <= STORED_LENGTH_MAX;
        if !whole || header.blocks.is_empty() {
            return false;
        }
        if self.0.holds_all(&header.blocks) {
            return true;
        }
        let mut writer = self.0.writer();
        // Another thread may have stored it meanwhile.
        if self.0.holds_all(&header.blocks) {
            return true;
        }
        let taken = writer.take(&self.0, stored, header).unwrap_or_else(|error| {
            writer.pause(&self.0);
            self.0.frames().counts.write_failures += 1;
            let seconds = self.0.options.pause.as_secs();
            self.0.note(format!("nothing is stored in the cache for {seconds} s: {}", error.with_causes()));
            false
        });
        let mut frames = self.0.frames();
        if taken {
            frames.counts.taken += 1;
        } else {
            frames.counts.refused += 1;
        }
        taken
    }

    /// Sets the blocks and pages of a set of pins. Pinned blocks are not evicted, whether they are held now or later. The set is
    /// durable on return; use [`Cache::sync`] for the frames.
    ///
    /// # Errors
    /// `Refused` for too many ids; `Io`: the set is unchanged now, but may have changed at the next opening.
    pub fn pin(&self, set: &PinName, ids: &[BlockId]) -> Result<()> {
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() > PINS_MAX {
            return Err(Error::refused(format!(
                "{set} has {} pins, but at most {PINS_MAX} are allowed",
                sorted.len()
            )));
        }
        let bytes = pins::encode(&sorted);
        let _one = self.0.pinning.lock();
        let old = self.pinned(set).ok().flatten();
        self.0.place.write_pins(set, &bytes)?;
        // Holding the writer's lock, because an eviction in progress may be dropping newly pinned frames.
        let _writer = self.0.writer();
        self.0.frames().set_pins(set, Some((&sorted, bytes.len() as u64)), old.as_deref());
        Ok(())
    }

    /// Removes a set of pins, if it exists.
    ///
    /// # Errors
    /// `Io`.
    pub fn unpin(&self, set: &PinName) -> Result<()> {
        let _one = self.0.pinning.lock();
        let old = self.pinned(set).ok().flatten();
        self.0.place.remove_pins(set)?;
        self.0.frames().set_pins(set, None, old.as_deref());
        Ok(())
    }

    /// Returns the ids of a set, sorted; `None` if there is no such set.
    ///
    /// # Errors
    /// `Corrupt` when its file is damaged; `Io`.
    pub fn pinned(&self, set: &PinName) -> Result<Option<Vec<BlockId>>> {
        let bytes = self.0.place.read_pins(set)?;
        bytes.map(|bytes| pins::decode(&bytes).map_err(|error| error.within(set.to_string()))).transpose()
    }

    /// Returns the names of all sets of pins.
    ///
    /// # Errors
    /// `Io`.
    pub fn pin_sets(&self) -> Result<Vec<PinName>> {
        self.0.place.list_pins()
    }

    /// Makes stored frames durable: pinned blocks that are held when this succeeds are still held after a power
    /// failure.
    ///
    /// # Errors
    /// `Io`: frames that were not known to be durable before are no longer held.
    pub fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    /// Returns the changes since the mark of an earlier call; everything that is held if `since` is 0.
    pub fn changes(&self, since: u64) -> CacheChanges {
        self.0.frames().changes(since)
    }

    /// Returns counters and current size.
    pub fn counts(&self) -> CacheCounts {
        self.0.frames().counts()
    }

    /// Returns messages for the user since the last call: damage, failed writes, pins that leave no room. Each is returned once.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.notes.lock())
    }
}

impl Shared {
    pub(super) fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(super) fn note(&self, what: String) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX {
            notes.push(what);
        }
    }

    fn holds_all(&self, blocks: &[ListedBlock]) -> bool {
        let frames = self.frames();
        blocks.iter().all(|block| frames.holds(&block.id))
    }

    /// Loads what earlier processes stored.
    fn load(&self) -> Result<()> {
        for set in self.place.list_pins()? {
            let ids = self.place.read_pins(&set).and_then(|bytes| pins::decode(&bytes.unwrap_or_default()));
            match ids {
                Ok(ids) => {
                    let length = pins::encode(&ids).len() as u64;
                    self.frames().pins.insert(set, &ids, length);
                }
                Err(error) => self.note(format!(
                    "the cache in {}: the set of pins {set} is lost: {}",
                    self.place.dir().display(),
                    error.with_causes()
                )),
            }
        }
        let numbers = self.place.list_segments()?;
        let mut newest = None;
        for number in &numbers {
            match self.load_segment(*number) {
                Ok(found) => newest = found,
                Err(error) => self.note(format!(
                    "the cache in {}: segment {number:08x} is lost: {}",
                    self.place.dir().display(),
                    error.with_causes()
                )),
            }
        }
        let next_number = numbers.last().map_or(1, |last| last.saturating_add(1));
        if let Some(newest) = &newest {
            self.frames().set_open(newest.number);
        }
        *self.writer() = Writer::new(newest, next_number);
        let mut writer = self.writer();
        if let Err(error) = writer.make_room(self) {
            writer.pause(self);
            self.note(format!("the cache cannot be shrunk to its limit: {}", error.with_causes()));
        }
        Ok(())
    }

    /// Loads a segment. Returns it if frames can be appended to it.
    fn load_segment(&self, number: u32) -> Result<Option<Newest>> {
        let file = self.place.open_segment(number, OpenMode::Write)?;
        let found = segment::read(&*file, number, self.id)?;
        let mut frames = self.frames();
        frames.add_segment(number, file.clone(), found.length, false);
        for (row, ids) in found.directory.iter() {
            frames.push(row.address(number), row.kind, ids, found.hashed);
        }
        let Some(end) = found.end else { return Ok(None) };
        // A crash left incomplete bytes after its last frame.
        if found.length > end {
            file.set_length(end).context(|| format!("truncating segment {number:08x}"))?;
            frames.set_length(number, end, false);
        }
        Ok(Some(Newest { number, file, length: end, directory: found.directory }))
    }

    /// Reads and verifies the frame at an address. Drops it if that fails.
    pub(super) fn read_checked(
        &self,
        address: FrameAddress,
        found: &ToRead,
        stored: &mut Vec<u8>,
    ) -> Result<FrameHeader> {
        let blocks = lay_ids(&found.ids, address.length as usize, stored);
        let read = read_frame(&*found.file, address.offset, address.length as usize, blocks, stored);
        let checked = read.and_then(|()| self.check(stored, found.hashed)).and_then(|header| {
            let is_listed = header.kind == found.kind;
            is_listed
                .then_some(header)
                .ok_or_else(|| Error::corrupt("the frame's kind differs from the listed kind"))
        });
        let mut frames = self.frames();
        match checked {
            Ok(header) => {
                frames.set_hashed(address);
                Ok(header)
            }
            // Its segment keeps it for a later process.
            Err(error) if error.kind() == ErrorKind::Refused => {
                frames.drop_frame(address);
                Err(Error::transient("the key of a frame of the cache is missing").with_source(error))
            }
            Err(error) => {
                if frames.drop_frame(address) {
                    frames.counts.damaged += 1;
                    drop(frames);
                    self.note(format!(
                        "{}: the frame at offset {} is damaged and will be fetched again when needed: {}",
                        self.place.segment(address.pack).display(),
                        address.offset,
                        error.with_causes()
                    ));
                }
                Err(Error::transient("a frame of the cache is damaged").with_source(error))
            }
        }
    }

    fn check(&self, stored: &[u8], hashed: bool) -> Result<FrameHeader> {
        if hashed {
            let header = FrameHeader::parse(stored)?;
            header.payload(stored)?;
            return Ok(header);
        }
        self.decoders.with(|decoder| decoder.decode(stored, Verify::Hashes).map(|(header, _)| header))
    }

    pub(super) fn sync(&self) -> Result<()> {
        let _one = self.syncing.lock();
        let unsynced = self.frames().unsynced();
        let mut result = Ok(());
        for segment in &unsynced {
            match segment.file.sync() {
                Ok(()) => self.frames().set_synced(segment.number, segment.length),
                Err(error) => {
                    self.frames().drop_unsynced(segment.number);
                    let path = self.place.segment(segment.number);
                    result = Err(Error::io(format!("syncing {}", path.display()), error));
                }
            }
        }
        let numbers: Vec<u32> = unsynced.iter().map(|segment| segment.number).collect();
        let named = if numbers.is_empty() { Ok(()) } else { self.place.sync_segment_names() };
        match named {
            Ok(()) => self.frames().set_names_synced(&numbers),
            Err(error) => {
                let mut frames = self.frames();
                // Segments whose names were durable before keep their durable frames.
                numbers.iter().for_each(|number| frames.drop_unsynced(*number));
                result = Err(error);
            }
        }
        if let Err(error) = &result {
            self.frames().counts.write_failures += 1;
            self.note(format!(
                "frames that may not be durable were dropped from the cache: {}",
                error.with_causes()
            ));
        }
        result
    }
}
