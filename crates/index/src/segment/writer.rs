//! Writes a segment from sorted entries. The caller syncs and names it only once it is complete.

use std::hash::Hasher;

use platter_image::{Error, IoContext, Result};
use platter_records::StoreId;
use platter_vfs::VfsFile;
use twox_hash::XxHash3_64;

use super::filter::{Filter, groups_log2_for};
use super::format::{ENTRIES_MAX, SegmentHead, SegmentId, encode_page};
use crate::PAGE_LENGTH;
use crate::entry::{ENTRIES_PER_PAGE, Entry, prefix};

/// Number of bytes that are written at once.
const PIECE_LENGTH: usize = 256 * PAGE_LENGTH;

/// A segment that is being written. Needs 8 bytes of memory for a page and about 1.5 bytes for an entry.
pub(crate) struct SegmentWriter<'a> {
    file: &'a dyn VfsFile,
    head: SegmentHead,
    page: Vec<Entry>,
    piece: Vec<u8>,
    written: u64,
    fences: Vec<u8>,
    filter: Filter,
    last: Option<Entry>,
}

impl<'a> SegmentWriter<'a> {
    /// Begins a segment in an empty file. `entries_max`: at most so many entries follow.
    pub(crate) fn new(file: &'a dyn VfsFile, id: SegmentId, store: StoreId, entries_max: u64) -> Self {
        let filter_groups_log2 = groups_log2_for(entries_max);
        let head =
            SegmentHead { id, store, entries: 0, filter_groups_log2, fences_checksum: 0, filter_checksum: 0 };
        Self {
            file,
            head,
            page: Vec::with_capacity(ENTRIES_PER_PAGE),
            piece: Vec::with_capacity(PIECE_LENGTH),
            written: SegmentHead::page_at(0),
            fences: Vec::new(),
            filter: Filter::new(filter_groups_log2),
            last: None,
        }
    }

    /// Appends an entry that is greater than the last one.
    pub(crate) fn push(&mut self, entry: Entry) -> Result<()> {
        entry.check()?;
        if self.last.replace(entry).is_some_and(|last| last >= entry) {
            return Err(Error::bug("the entries of an index segment are not sorted"));
        }
        if self.head.entries == ENTRIES_MAX {
            return Err(Error::refused(format!("an index segment has at most {ENTRIES_MAX} entries")));
        }
        self.head.entries += 1;
        self.filter.add(&entry.id);
        self.page.push(entry);
        if self.page.len() == ENTRIES_PER_PAGE { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> Result<()> {
        let Some(first) = self.page.first() else { return Ok(()) };
        let number = self.fences.len() / 8;
        self.fences.extend_from_slice(&prefix(&first.id).to_le_bytes());
        encode_page(self.head.id, number as u64, &self.page, &mut self.piece);
        self.page.clear();
        if self.piece.len() >= PIECE_LENGTH { self.write_piece() } else { Ok(()) }
    }

    fn write_piece(&mut self) -> Result<()> {
        self.file.write_all_at(&self.piece, self.written).context(|| "writing an index segment".into())?;
        self.written += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Writes the rest, and syncs the file. Returns the header, or `None` if there were no entries.
    pub(crate) fn finish(mut self) -> Result<Option<SegmentHead>> {
        self.end_page()?;
        if self.head.entries == 0 {
            return Ok(None);
        }
        self.head.fences_checksum = XxHash3_64::oneshot(&self.fences);
        let fences = std::mem::take(&mut self.fences);
        self.piece.extend_from_slice(&fences);
        self.write_piece()?;
        let groups = 1_usize << self.head.filter_groups_log2;
        let step = PIECE_LENGTH / super::filter::GROUP_LENGTH as usize;
        let mut hasher = XxHash3_64::new();
        for first in (0..groups).step_by(step) {
            self.piece = self.filter.encode(first, step);
            hasher.write(&self.piece);
            self.write_piece()?;
        }
        self.head.filter_checksum = hasher.finish();
        let written = self.file.write_all_at(&self.head.encode(), 0).and_then(|()| self.file.sync());
        written.context(|| "writing the header of an index segment".into())?;
        Ok(Some(self.head))
    }
}
