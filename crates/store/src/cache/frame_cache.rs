//! A cache as its owner sees it.
//!
//! Two locks: the writer's, held while frames are written and segments evicted, and the index's, held for moments and never
//! while a file is touched. Whoever finds its frame here never waits for who writes or syncs. Taken in this order: pinning,
//! writer, syncing, frames.

use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_image::frame::{FrameDecoder, FrameHeader, ListedBlock, STORED_LENGTH_MAX, Verify};
use platter_image::{BlockId, BlockPlace, Error, FrameAddress, IoContext, Kind, Result};
use platter_vfs::{OpenMode, Vfs, VfsFile};

use super::changes::CacheChanges;
use super::frames::Frames;
use super::options::{CacheCounts, CacheOptions};
use super::pins::{self, PINS_MAX, PinName};
use super::place::CachePlace;
use super::segment;
use super::writer::{Newest, Writer};
use crate::identity::StoreId;
use crate::pack::{lay_ids, read_frame};

/// Most notes that wait to be told.
const NOTES_MAX: usize = 64;
/// Decoders kept between reads.
const DECODERS_KEPT_MAX: usize = 8;

/// An open cache. Everything may be called from many threads; clones are the same cache. Nothing waits for a sync but
/// [`Cache::sync`], the changing of pins, and whoever makes room where something is pinned.
#[derive(Clone, Debug)]
pub struct Cache(Arc<Shared>);

/// A whole frame that holds a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Header and payload as they lie, checked.
    pub stored: Vec<u8>,
    /// Which of its blocks the wanted one is.
    pub slot: u32,
}

/// What all clones share.
pub(super) struct Shared {
    pub(super) place: CachePlace,
    pub(super) id: StoreId,
    pub(super) options: CacheOptions,
    frames: Mutex<Frames>,
    writer: Mutex<Writer>,
    /// One sync at a time: after a failed one, a later one would say that all is well (design: durable).
    syncing: Mutex<()>,
    pinning: Mutex<()>,
    decoders: Mutex<Vec<FrameDecoder>>,
    notes: Mutex<Vec<String>>,
    _lock: Box<dyn VfsFile>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache in {}", self.place.dir().display())
    }
}

impl Cache {
    /// Opens the cache in a directory, which is made when missing, and makes it smaller when its limit was larger.
    ///
    /// # Errors
    /// `Refused` when the limit is too small, another process has it open, or a newer Platter made it; `Io`.
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
            decoders: Mutex::default(),
            notes: Mutex::default(),
            _lock: lock,
        };
        shared.load()?;
        Ok(Self(Arc::new(shared)))
    }

    /// Its directory: others may keep small files there, of other names than [`crate::cache`] uses.
    pub fn dir(&self) -> &Path {
        self.0.place.dir()
    }

    /// Its id, random and never changed.
    pub fn id(&self) -> StoreId {
        self.0.id
    }

    /// Whether that block or page is held.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.0.frames().holds(id)
    }

    /// The frame that holds that block, checked, and noted as used. `None` when it is not held, or just turned out to be
    /// damaged.
    pub fn get(&self, kind: Kind, id: &BlockId) -> Option<StoredFrame> {
        let place = self.locate(kind, id)?;
        let mut stored = Vec::new();
        self.read(place.frame, &mut stored).then_some(StoredFrame { stored, slot: place.slot })
    }

    /// Where the frame with that block lies, noted as used: [`Cache::get`] in two steps, for those who speak
    /// [`platter_image::FrameSource`].
    pub fn locate(&self, kind: Kind, id: &BlockId) -> Option<BlockPlace> {
        let mut frames = self.0.frames();
        let place = frames.place(kind, id);
        frames.note_asked(place);
        place
    }

    /// The same without counting it: for whoever has just put the frame there.
    pub fn place_of(&self, kind: Kind, id: &BlockId) -> Option<BlockPlace> {
        self.0.frames().place(kind, id)
    }

    /// Replaces `stored` by the frame at an address that [`Cache::locate`] gave, checked; false when it is no longer there:
    /// [`Cache::gone`] then says what it held.
    pub fn read(&self, address: FrameAddress, stored: &mut Vec<u8>) -> bool {
        self.0.read_checked(address, stored).is_some()
    }

    /// The first block of a frame that was at that address not long ago.
    pub fn gone(&self, address: FrameAddress) -> Option<BlockId> {
        self.0.frames().gone(address)
    }

    /// Takes a frame all of whose blocks were hashed on this machine; `header` is its own. What is held already costs
    /// nothing. False when it was not taken, because everything is pinned or writing failed lately: [`Cache::notes`] says so.
    pub fn put(&self, stored: &[u8], header: &FrameHeader) -> bool {
        let whole = header.stored_length() == stored.len() && stored.len() <= STORED_LENGTH_MAX;
        if !whole || header.blocks.is_empty() {
            return false;
        }
        if self.0.holds_all(&header.blocks) {
            return true;
        }
        let mut writer = self.0.writer();
        // Another thread may have had it.
        if self.0.holds_all(&header.blocks) {
            return true;
        }
        let taken = writer.take(&self.0, stored, header).unwrap_or_else(|error| {
            writer.pause(&self.0);
            self.0.frames().counts.write_failures += 1;
            let seconds = self.0.options.pause.as_secs();
            self.0.note(format!("nothing is kept in the cache for {seconds} s: {}", with_causes(&error)));
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

    /// Makes that set of pins be exactly these blocks and pages, held now or later: they are not evicted. Durable when this
    /// returns; not the frames, which [`Cache::sync`] is for.
    ///
    /// # Errors
    /// `Refused` for too many; `Io`: the set is as it was before, or as it was to be after the next opening.
    pub fn pin(&self, set: &PinName, ids: &[BlockId]) -> Result<()> {
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() > PINS_MAX {
            return Err(Error::refused(format!("{} pins in {set}: {PINS_MAX} at most", sorted.len())));
        }
        let bytes = pins::encode(&sorted);
        let _one = lock(&self.0.pinning);
        let old = self.pinned(set).ok().flatten();
        self.0.place.write_pins(set, &bytes)?;
        // Not while something is on its way out that is to stay.
        let _writer = self.0.writer();
        self.0.frames().set_pins(set, Some((&sorted, bytes.len() as u64)), old.as_deref());
        Ok(())
    }

    /// Removes a set of pins, if there is one.
    ///
    /// # Errors
    /// `Io`.
    pub fn unpin(&self, set: &PinName) -> Result<()> {
        let _one = lock(&self.0.pinning);
        let old = self.pinned(set).ok().flatten();
        self.0.place.remove_pins(set)?;
        self.0.frames().set_pins(set, None, old.as_deref());
        Ok(())
    }

    /// The sets of pins, by name.
    pub fn pin_sets(&self) -> Vec<PinName> {
        self.0.frames().pins.names()
    }

    /// What a set pins, sorted; `None` when there is no such set.
    ///
    /// # Errors
    /// `Corrupt` when its file is damaged; `Io`.
    pub fn pinned(&self, set: &PinName) -> Result<Option<Vec<BlockId>>> {
        let bytes = self.0.place.read_pins(set)?;
        bytes.map(|bytes| pins::decode(&bytes).map_err(|error| error.within(set.to_string()))).transpose()
    }

    /// Makes durable what was taken before: what is held when this has succeeded, and stays pinned, is held after a power
    /// loss.
    ///
    /// # Errors
    /// `Io`: what was not surely durable before is no longer held.
    pub fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    /// What became held and what went since a mark that an earlier call gave; 0 at first.
    pub fn changes(&self, since: u64) -> CacheChanges {
        self.0.frames().changes(since)
    }

    /// What it did, and what it holds.
    pub fn counts(&self) -> CacheCounts {
        self.0.frames().counts()
    }

    /// What a person should know since the last call: damage, failed writes, pins that leave no room. Each is told once.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0.notes))
    }
}

impl Shared {
    pub(super) fn frames(&self) -> MutexGuard<'_, Frames> {
        lock(&self.frames)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    pub(super) fn note(&self, what: String) {
        let mut notes = lock(&self.notes);
        if notes.len() < NOTES_MAX {
            notes.push(what);
        }
    }

    fn holds_all(&self, blocks: &[ListedBlock]) -> bool {
        let frames = self.frames();
        blocks.iter().all(|block| frames.holds(&block.id))
    }

    /// Takes in what earlier processes left.
    fn load(&self) -> Result<()> {
        for set in self.place.list_pins()? {
            let ids = self.place.read_pins(&set).and_then(|bytes| pins::decode(&bytes.unwrap_or_default()));
            match ids {
                Ok(ids) => {
                    let length = pins::encode(&ids).len() as u64;
                    self.frames().pins.insert(set, &ids, length);
                }
                Err(error) => self.note(format!(
                    "the cache in {}: what {set} pins is lost: {}",
                    self.place.dir().display(),
                    with_causes(&error)
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
                    with_causes(&error)
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
            self.note(format!("the cache cannot be made smaller: {}", with_causes(&error)));
        }
        Ok(())
    }

    /// Takes in a segment; gives it to be written on, if it can be.
    fn load_segment(&self, number: u32) -> Result<Option<Newest>> {
        let file = self.place.open_segment(number, OpenMode::Write)?;
        let found = segment::read(&*file, number, self.id)?;
        let mut frames = self.frames();
        frames.add_segment(number, file.clone(), found.length, false);
        for (row, ids) in found.directory.iter() {
            frames.push(row.address(number), row.kind, ids, found.hashed);
        }
        let Some(end) = found.end else { return Ok(None) };
        // What stands behind its last frame was cut by a crash.
        if found.length > end {
            file.set_length(end).context(|| format!("cutting segment {number:08x}"))?;
            frames.set_length(number, end, false);
        }
        Ok(Some(Newest { number, file, length: end, directory: found.directory }))
    }

    /// Reads the frame at an address and checks it; what fails is dropped.
    pub(super) fn read_checked(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Option<FrameHeader> {
        let found = self.frames().to_read(address)?;
        let blocks = lay_ids(&found.ids, address.length as usize, stored);
        let read = read_frame(&*found.file, address.offset, address.length as usize, blocks, stored);
        let checked = read.and_then(|()| self.check(stored, found.hashed)).and_then(|header| {
            let is_listed = header.kind == found.kind;
            is_listed.then_some(header).ok_or_else(|| Error::corrupt("it is of another kind than is listed"))
        });
        let mut frames = self.frames();
        match checked {
            Ok(header) => {
                frames.set_hashed(address);
                Some(header)
            }
            Err(error) => {
                if frames.drop_frame(address) {
                    frames.counts.damaged += 1;
                    drop(frames);
                    self.note(format!(
                        "{}: the frame at {} is damaged and had again when it is wanted: {}",
                        self.place.segment(address.pack).display(),
                        address.offset,
                        with_causes(&error)
                    ));
                }
                None
            }
        }
    }

    fn check(&self, stored: &[u8], hashed: bool) -> Result<FrameHeader> {
        if hashed {
            let header = FrameHeader::parse(stored)?;
            header.payload(stored)?;
            return Ok(header);
        }
        let kept = lock(&self.decoders).pop();
        let mut decoder = kept.map_or_else(FrameDecoder::new, Ok)?;
        let decoded = decoder.decode(stored, Verify::Hashes).map(|(header, _)| header);
        let mut kept = lock(&self.decoders);
        if kept.len() < DECODERS_KEPT_MAX {
            kept.push(decoder);
        }
        decoded
    }

    pub(super) fn sync(&self) -> Result<()> {
        let _one = lock(&self.syncing);
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
                // Those whose names were durable before keep what was.
                numbers.iter().for_each(|number| frames.drop_unsynced(*number));
                result = Err(error);
            }
        }
        if let Err(error) = &result {
            self.frames().counts.write_failures += 1;
            self.note(format!("part of the cache is dropped: {}", with_causes(error)));
        }
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// An error with its causes, for a note.
fn with_causes(error: &Error) -> String {
    let mut what = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        what = format!("{what}: {cause}");
        source = cause.source();
    }
    what
}
