//! The newest segment, which grows, and the way of old ones out of the cache.
//!
//! Room is made before a segment is begun, so that it fits under the limit when it is full. What stays of a segment that goes
//! is copied to the newest one first, and made durable there if it is pinned: until then both copies lie there, which is the
//! one segment by which the limit may be passed.

use std::sync::Arc;
use std::time::Instant;

use platter_image::frame::FrameHeader;
use platter_image::{Error, FrameAddress, IoContext, Result};
use platter_vfs::{OpenMode, VfsFile};

use super::frame_cache::Shared;
use super::place::pack_id;
use crate::index::ids;
use crate::pack::{
    FrameRow, HEADER_LENGTH, PACK_BLOCKS_MAX, PACK_FRAMES_MAX, PackDirectory, encode_end, encode_header,
    end_length, write_frame,
};

/// What only one thread at a time changes.
#[derive(Debug)]
pub(super) struct Writer {
    newest: Option<Newest>,
    next_number: u32,
    /// The newest segment, or the one that will be begun, fits under the limit.
    has_room: bool,
    /// It was said that pins leave no room.
    told_full: bool,
    /// Nothing is taken before that.
    resume_at: Option<Instant>,
}

/// The segment that grows.
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
    /// Goes on with `newest`, an earlier process's; other segments get numbers from `next_number` on.
    pub(super) fn new(newest: Option<Newest>, next_number: u32) -> Self {
        Self { newest, next_number, has_room: false, told_full: false, resume_at: None }
    }

    /// Takes a frame; false when there is no room that may be made.
    ///
    /// # Errors
    /// `Io`: nothing is to be taken for a while.
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

    /// A write failed: nothing more goes to that segment, and nothing is taken for a while.
    pub(super) fn pause(&mut self, cache: &Shared) {
        self.abandon(cache);
        self.resume_at = Some(Instant::now() + cache.options.pause);
    }

    /// Evicts until the newest segment fits under the limit when it is full; false when too much is pinned.
    pub(super) fn make_room(&mut self, cache: &Shared) -> Result<bool> {
        loop {
            let victim = {
                let frames = cache.frames();
                if frames.sealed_bytes() + cache.options.segment_bytes <= cache.options.limit_bytes {
                    self.told_full = false;
                    return Ok(true);
                }
                frames.victim()
            };
            let Some(victim) = victim else {
                if !std::mem::replace(&mut self.told_full, true) {
                    cache.note(format!(
                        "the cache in {} is full of what is pinned: nothing more is kept; a larger limit than {} bytes would help",
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

    /// Removes a segment, after what stays of it was copied. The copies count when it is gone, not before: if they cannot be
    /// made durable, nothing was lost.
    fn evict(&mut self, cache: &Shared, victim: u32) -> Result<()> {
        let survivors = cache.frames().survivors(victim);
        let (mut stored, mut copies) = (Vec::new(), Vec::new());
        for survivor in &survivors {
            // What is damaged is dropped here as everywhere.
            if let Some(header) = cache.read_checked(survivor.address, &mut stored) {
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
        // After a crash the name may be back: its frames are then there twice, and it goes the next time.
        cache.place.remove_segment(victim)
    }

    /// Writes a frame, all of whose blocks were hashed, behind the others, and gives where it lies.
    fn append(&mut self, cache: &Shared, stored: &[u8], header: &FrameHeader) -> Result<FrameAddress> {
        if self.is_full_for(cache, header) {
            self.seal(cache)?;
        }
        if self.newest.is_none() {
            self.newest = Some(self.begin(cache)?);
        }
        let Some(newest) = self.newest.as_mut() else {
            return Err(Error::bug("a cache without the segment it has just begun"));
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
            Error::refused(format!("the cache in {} is worn out: remove it", cache.place.dir().display()))
        })?;
        let file = cache.place.open_segment(number, OpenMode::CreateNew)?;
        let path = cache.place.segment(number);
        if let Err(error) = file.write_all_at(&encode_header(pack_id(number), cache.id), 0) {
            // If it stays, it is an empty segment.
            let _ = cache.place.remove_segment(number);
            return Err(Error::io(format!("writing {}", path.display()), error));
        }
        cache.frames().add_segment(number, file.clone(), HEADER_LENGTH, true);
        Ok(Newest { number, file, length: HEADER_LENGTH, directory: PackDirectory::default() })
    }

    /// Ends the newest segment by its footer. Nothing waits for that to be durable.
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

    /// Leaves the newest segment as it is: what is in it is read on.
    fn abandon(&mut self, cache: &Shared) {
        self.has_room = false;
        if let Some(newest) = self.newest.take() {
            // Bytes of what failed may stand behind its frames, and count.
            let length = newest.file.length().unwrap_or(newest.length).max(newest.length);
            cache.frames().set_length(newest.number, length, false);
        }
    }
}
