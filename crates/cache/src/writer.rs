//! Writes the newest segment, and evicts old ones.
//!
//! Room is made before a segment is begun, so that the full segment fits under the limit. When a segment is evicted, the frames
//! that stay are first copied to the newest segment, and synced there if one is pinned. Until then both copies exist, so
//! the limit may be exceeded by one segment.

use std::sync::Arc;
use std::time::Instant;

use platter_image::frame::FrameHeader;
use platter_image::{Error, FrameAddress, IoContext, Result};
use platter_vfs::{OpenMode, VfsFile};

use super::frame_cache::Shared;
use super::place::pack_id;
use platter_pack::ids;
use platter_pack::{
    FrameRow, HEADER_LENGTH, PACK_BLOCKS_MAX, PACK_FRAMES_MAX, PackDirectory, begins_locked, encode_end,
    encode_header, end_length, write_frame,
};

/// State that only one thread at a time changes.
#[derive(Debug)]
pub(super) struct Writer {
    newest: Option<Newest>,
    next_number: u32,
    /// Whether the newest segment, or the next one to be begun, fits under the limit.
    has_room: bool,
    /// Whether a note that pins leave no room was already made.
    told_full: bool,
    /// Nothing is stored before this time.
    resume_at: Option<Instant>,
}

/// The newest segment, to which frames are appended.
#[derive(Debug)]
pub(super) struct Newest {
    pub(super) number: u32,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) length: u64,
    pub(super) directory: PackDirectory,
}

impl Newest {
    fn is_full_for(&self, header: &FrameHeader, segment_bytes: u64) -> bool {
        let (frames, blocks) =
            (self.directory.frames.len() + 1, self.directory.ids.len() + header.blocks.len());
        let length = self.length + header.packed_length() as u64 + end_length(frames, blocks);
        length > segment_bytes || frames > PACK_FRAMES_MAX || blocks > PACK_BLOCKS_MAX
    }
}

impl Writer {
    /// Continues the segment `newest` of an earlier process. Further segments get numbers from `next_number` on.
    pub(super) fn new(newest: Option<Newest>, next_number: u32) -> Self {
        Self { newest, next_number, has_room: false, told_full: false, resume_at: None }
    }

    /// Stores a frame. Returns false if no room can be made for it.
    ///
    /// # Errors
    /// `Io`: the caller should then call [`Writer::pause`].
    pub(super) fn take(&mut self, cache: &Shared, stored: &[u8], header: &FrameHeader) -> Result<bool> {
        if self.resume_at.is_some_and(|at| Instant::now() < at) {
            return Ok(false);
        }
        self.resume_at = None;
        loop {
            if self.is_full_for(cache, header) {
                self.seal(cache)?;
            }
            if self.has_room {
                break;
            }
            if !self.make_room(cache)? {
                return Ok(false);
            }
            self.has_room = true;
        }
        self.append(cache, stored, header)?;
        Ok(true)
    }

    /// Handles a failed write: ends the newest segment, and stores nothing for a while.
    pub(super) fn pause(&mut self, cache: &Shared) {
        self.abandon(cache);
        self.resume_at = Some(Instant::now() + cache.options.pause);
    }

    /// Evicts segments until a full newest segment fits under the limit. Returns false if too much is pinned.
    pub(super) fn make_room(&mut self, cache: &Shared) -> Result<bool> {
        loop {
            let victims = {
                let frames = cache.frames();
                if frames.sealed_bytes() + cache.options.segment_bytes <= cache.options.limit_bytes {
                    self.told_full = false;
                    return Ok(true);
                }
                frames.victims()
            };
            // Without the key of its frames, they can be neither verified nor copied: a later process may have it.
            let full_of = if victims.is_empty() { "pinned blocks" } else { "blocks whose key is missing" };
            let is_open = |(_, file): &(u32, Arc<dyn VfsFile>)| !begins_locked(&**file);
            let Some((victim, _)) = victims.into_iter().find(is_open) else {
                if !std::mem::replace(&mut self.told_full, true) {
                    cache.note(format!(
                        "the cache in {} is full of {full_of}: nothing more is stored; use a larger limit than {} bytes",
                        cache.place.dir().display(),
                        cache.options.limit_bytes
                    ));
                }
                return Ok(false);
            };
            self.evict(cache, victim)?;
        }
    }

    fn is_full_for(&self, cache: &Shared, header: &FrameHeader) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.is_full_for(header, cache.options.segment_bytes))
    }

    /// Evicts a segment after copying the frames that stay. The copies count only once the segment is removed from the index: if
    /// they cannot be made durable, nothing is lost.
    fn evict(&mut self, cache: &Shared, victim: u32) -> Result<()> {
        let survivors = cache.frames().survivors(victim);
        let (mut stored, mut copies) = (Vec::new(), Vec::new());
        for survivor in &survivors {
            // Damaged frames are dropped here too.
            let Some(found) = cache.frames().to_read(survivor.address) else { continue };
            if let Ok(header) = cache.read_checked(survivor.address, &found, &mut stored) {
                copies.push(self.append(cache, &stored, &header)?);
            }
        }
        if survivors.iter().any(|survivor| survivor.pinned) {
            cache.sync()?;
        }
        let mut frames = cache.frames();
        let went = frames.remove_segment(victim);
        frames.counts.evicted += went.saturating_sub(copies.len() as u64);
        copies.into_iter().for_each(|copy| frames.revive(copy));
        drop(frames);
        // After a crash the file may reappear. Its frames then exist twice, and it is evicted next.
        cache.place.remove_segment(victim)
    }

    /// Appends a frame and returns its address. All of its blocks were hashed.
    fn append(&mut self, cache: &Shared, stored: &[u8], header: &FrameHeader) -> Result<FrameAddress> {
        if self.is_full_for(cache, header) {
            self.seal(cache)?;
        }
        if self.newest.is_none() {
            self.newest = Some(self.begin(cache)?);
        }
        let Some(newest) = self.newest.as_mut() else {
            return Err(Error::bug("the cache has no segment although it just began one"));
        };
        let offset = newest.length;
        let packed_length = write_frame(&*newest.file, offset, stored).map_err(|error| {
            error.within(format!("appending to {}", cache.place.segment(newest.number).display()))
        })?;
        newest.length += u64::from(packed_length);
        let row = FrameRow {
            offset,
            packed_length,
            raw_length: header.raw_length,
            kind: header.kind,
            blocks: header.blocks.len() as u32,
        };
        let (address, ids) = (row.address(newest.number), ids(&header.blocks).collect::<Vec<_>>());
        newest.directory.push(row, ids.iter().copied());
        let mut frames = cache.frames();
        frames.set_length(newest.number, newest.length, true);
        frames.push(address, header.kind, &ids, true);
        Ok(address)
    }

    fn begin(&mut self, cache: &Shared) -> Result<Newest> {
        let number = self.next_number;
        self.next_number = number.checked_add(1).ok_or_else(|| {
            Error::refused(format!(
                "the cache in {} has used all segment numbers: remove it",
                cache.place.dir().display()
            ))
        })?;
        let file = cache.place.open_segment(number, OpenMode::CreateNew)?;
        let path = cache.place.segment(number);
        if let Err(error) = file.write_all_at(&encode_header(pack_id(number), cache.id), 0) {
            // If it cannot be removed, it is an empty segment.
            let _ = cache.place.remove_segment(number);
            return Err(Error::io(format!("writing {}", path.display()), error));
        }
        cache.frames().add_segment(number, file.clone(), HEADER_LENGTH, true);
        Ok(Newest { number, file, length: HEADER_LENGTH, directory: PackDirectory::default() })
    }

    /// Ends the newest segment with its footer, which is not synced.
    fn seal(&mut self, cache: &Shared) -> Result<()> {
        self.has_room = false;
        let Some(newest) = &self.newest else { return Ok(()) };
        let mut length = newest.length;
        encode_end(pack_id(newest.number), newest.length, &newest.directory, |piece| {
            let written = newest.file.write_all_at(piece, length);
            length += piece.len() as u64;
            written.context(|| format!("writing the end of {}", cache.place.segment(newest.number).display()))
        })?;
        cache.frames().set_length(newest.number, length, false);
        self.newest = None;
        Ok(())
    }

    /// Ends the newest segment without a footer. Its frames can still be read.
    fn abandon(&mut self, cache: &Shared) {
        self.has_room = false;
        if let Some(newest) = self.newest.take() {
            // The file may have bytes of the failed write after its frames; they count too.
            let length = newest.file.length().unwrap_or(newest.length).max(newest.length);
            cache.frames().set_length(newest.number, length, false);
        }
    }
}
