//! Reads a segment: lookups by id, and all entries in order.
//!
//! Fences, the first id of each page, are in memory after the first lookup. If a segment has many pages, only every 2^n-th fence is
//! kept, and a lookup reads up to n pages more. The filter is loaded when reading pages without it has taken about as long as
//! loading it takes; so a command that asks little loads little. Both have checksums. A damaged page, fence or filter makes the lookup fail.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use platter_image::fields::u64_at;
use platter_image::{BlockId, Error, IoContext, Result};
use platter_records::StoreId;
use platter_vfs::VfsFile;
use twox_hash::XxHash3_64;

use super::filter::{Filter, GROUP_LENGTH, length_of};
use super::format::{FENCE_LENGTH, Page, SegmentHead};
use crate::PAGE_LENGTH;
use crate::entry::{ENTRIES_PER_PAGE, Entry, prefix};

/// Number of bytes that are read at once where a part of a file is read in order.
const PIECE_LENGTH: usize = 64 * PAGE_LENGTH;
/// Number of pages that are read in order in the time of one at random: 40 on SSDs, 300 on disks that turn.
const PAGES_PER_RANDOM_READ: u64 = 64;
/// A segment up to this length is read ahead once this many pages were read at random: later lookups then find it in memory.
const READ_AHEAD_LENGTH_MAX: u64 = 256 << 20;
const READ_AHEAD_PAGES: u64 = 64;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    file: Box<dyn VfsFile>,
    pub(crate) head: SegmentHead,
    fences: RwLock<Option<Fences>>,
    filter: RwLock<Option<Filter>>,
    /// Number of pages that lookups read.
    pages_read: AtomicU64,
    /// log2 of the pages for each fence in memory.
    fence_step_log2: AtomicU32,
    /// log2 of the filter's groups in memory.
    filter_groups_log2: AtomicU32,
}

/// The first ids of some pages: those whose number is a multiple of 2^`step_log2`.
#[derive(Debug)]
struct Fences {
    step_log2: u32,
    prefixes: Vec<u64>,
}

impl Segment {
    /// Opens a segment of that store.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or belongs to another store; `Refused` when a newer Platter wrote it; `Io`.
    pub(crate) fn open(file: Box<dyn VfsFile>, store: StoreId) -> Result<Self> {
        let mut page = [0; PAGE_LENGTH];
        let length = file.length().context(|| "reading the length of an index segment".into())?;
        read(&*file, &mut page, 0)?;
        let head = SegmentHead::decode(&page, length)?;
        if head.store != store {
            return Err(Error::corrupt(format!("index segment: it belongs to store {}", head.store)));
        }
        Ok(Self {
            file,
            head,
            fences: RwLock::default(),
            filter: RwLock::default(),
            pages_read: AtomicU64::new(0),
            fence_step_log2: AtomicU32::new(0),
            filter_groups_log2: AtomicU32::new(head.filter_groups_log2),
        })
    }

    /// Returns the bytes of memory that fences and filter need with these limits.
    pub(crate) fn memory_with(&self, step_log2: u32, folds: u32) -> u64 {
        let fences = (self.head.pages() >> step_log2) * FENCE_LENGTH;
        fences + length_of(self.head.filter_groups_log2.saturating_sub(folds))
    }

    /// Limits the memory: keeps one fence for 2^`step_log2` pages, and halves the filter `folds` times.
    pub(crate) fn limit(&self, step_log2: u32, folds: u32) {
        self.fence_step_log2.store(step_log2, Ordering::Relaxed);
        let groups_log2 = self.head.filter_groups_log2.saturating_sub(folds);
        self.filter_groups_log2.store(groups_log2, Ordering::Relaxed);
        let mut fences = self.fences.write();
        if fences.as_ref().is_some_and(|fences| fences.step_log2 < step_log2) {
            *fences = None;
        }
        drop(fences);
        if let Some(filter) = &mut *self.filter.write() {
            filter.fold_to(groups_log2);
        }
    }

    /// Returns the memory in use for fences and filter, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let fences = self.fences.read().as_ref().map_or(0, |fences| fences.prefixes.capacity() * 8);
        fences + self.filter.read().as_ref().map_or(0, Filter::memory_bytes)
    }

    /// Adds all entries of a block to `found`.
    ///
    /// # Errors
    /// `Corrupt` when a page is damaged; `Io`.
    pub(crate) fn find(&self, id: &BlockId, found: &mut Vec<Entry>) -> Result<()> {
        if !self.may_have(id)? {
            return Ok(());
        }
        let mut bytes = [0; PAGE_LENGTH];
        for number in self.first_page(prefix(id), &mut bytes)?..self.head.pages() {
            let page = self.page(number, &mut bytes)?;
            for at in page.first_from(&id.0)..page.len() {
                match page.get(at) {
                    Some(entry) if entry.id == *id => found.push(entry),
                    _ => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Returns false if the segment certainly does not have that block.
    fn may_have(&self, id: &BlockId) -> Result<bool> {
        if let Some(filter) = &*self.filter.read() {
            return Ok(filter.may_have(id));
        }
        let read = self.pages_read.load(Ordering::Relaxed).saturating_mul(PAGES_PER_RANDOM_READ);
        if read.saturating_mul(PAGE_LENGTH as u64) < length_of(self.head.filter_groups_log2) {
            return Ok(true);
        }
        // Others wait: they would only read it as well.
        let mut filter = self.filter.write();
        let loaded = match filter.take() {
            Some(loaded) => loaded,
            None => self.load_filter()?,
        };
        Ok(filter.insert(loaded).may_have(id))
    }

    fn load_filter(&self) -> Result<Filter> {
        let mut filter = Filter::new(self.filter_groups_log2.load(Ordering::Relaxed));
        let mut first = 0;
        let length = length_of(self.head.filter_groups_log2);
        let sum = self.read_part(self.head.filter_at(), length, &mut |piece| {
            filter.add_groups(first, piece);
            first += piece.len() / GROUP_LENGTH as usize;
        })?;
        match sum == self.head.filter_checksum {
            true => Ok(filter),
            false => Err(Error::corrupt("index segment: the checksum of its filter is wrong")),
        }
    }

    fn load_fences(&self) -> Result<Fences> {
        let step_log2 = self.fence_step_log2.load(Ordering::Relaxed);
        let mut prefixes = Vec::with_capacity(1 + (self.head.pages() >> step_log2) as usize);
        let mut page = 0_u64;
        let length = self.head.pages() * FENCE_LENGTH;
        let sum = self.read_part(self.head.fences_at(), length, &mut |piece| {
            for fence in piece.chunks_exact(FENCE_LENGTH as usize) {
                if page.is_multiple_of(1 << step_log2) {
                    prefixes.push(u64_at(fence, 0));
                }
                page += 1;
            }
        })?;
        match sum == self.head.fences_checksum {
            true => Ok(Fences { step_log2, prefixes }),
            false => Err(Error::corrupt("index segment: the checksum of its fences is wrong")),
        }
    }

    /// Reads a part of the file piece by piece, and returns its checksum.
    fn read_part(&self, start: u64, length: u64, take: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut piece = vec![0; PIECE_LENGTH.min(length as usize)];
        let (mut done, mut hasher) = (0, XxHash3_64::new());
        while done < length {
            let count = (length - done).min(piece.len() as u64);
            let piece = &mut piece[..count as usize];
            read(&*self.file, piece, start + done)?;
            hasher.write(piece);
            take(piece);
            done += count;
        }
        Ok(hasher.finish())
    }

    /// Returns the last page whose first id is certainly less than every id with that prefix, or 0. The first such id is in that
    /// page or a later one.
    fn first_page(&self, wanted: u64, bytes: &mut [u8; PAGE_LENGTH]) -> Result<u64> {
        let (mut low, mut high) = self.fenced(wanted)?;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.page(middle, bytes)?.first() {
                Some(first) if prefix(&first.id) < wanted => low = middle,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns a range of pages by the fences: the page that is searched is one of them.
    fn fenced(&self, wanted: u64) -> Result<(u64, u64)> {
        if self.fences.read().is_none() {
            let loaded = self.load_fences()?;
            *self.fences.write() = Some(loaded);
        }
        let fences = self.fences.read();
        let Some(Fences { step_log2, prefixes }) = &*fences else { return Ok((0, self.head.pages())) };
        let after = prefixes.partition_point(|fence| *fence < wanted) as u64;
        let pages = self.head.pages();
        Ok((after.saturating_sub(1) << step_log2, (after.max(1) << step_log2).min(pages)))
    }

    /// Reads and checks a page of entries.
    fn page<'a>(&self, number: u64, bytes: &'a mut [u8; PAGE_LENGTH]) -> Result<Page<'a>> {
        read(&*self.file, bytes, SegmentHead::page_at(number))?;
        let read = self.pages_read.fetch_add(1, Ordering::Relaxed);
        if read == READ_AHEAD_PAGES && self.head.file_length() <= READ_AHEAD_LENGTH_MAX {
            self.file.will_read(0, self.head.file_length());
        }
        Page::parse(self.head.id, number, bytes)
    }

    /// Returns all entries in order.
    pub(crate) fn in_order(&self) -> InOrder<'_> {
        InOrder { segment: self, piece: Vec::new(), next_page: 0, entries: Vec::new(), at: 0 }
    }
}

/// Reads the entries of a segment in order.
pub(crate) struct InOrder<'a> {
    segment: &'a Segment,
    piece: Vec<u8>,
    next_page: u64,
    /// The entries of the last piece, and how many were returned.
    entries: Vec<Entry>,
    at: usize,
}

impl InOrder<'_> {
    /// Returns the next entry without taking it; `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<&Entry>> {
        if self.at == self.entries.len() {
            self.read_piece()?;
        }
        Ok(self.entries.get(self.at))
    }

    /// Returns the next entry.
    pub(crate) fn take(&mut self) -> Result<Option<Entry>> {
        let entry = self.peek()?.copied();
        self.at += usize::from(entry.is_some());
        Ok(entry)
    }

    fn read_piece(&mut self) -> Result<()> {
        self.entries.clear();
        self.at = 0;
        let pages = (self.segment.head.pages() - self.next_page).min((PIECE_LENGTH / PAGE_LENGTH) as u64);
        self.piece.resize(pages as usize * PAGE_LENGTH, 0);
        read(&*self.segment.file, &mut self.piece, SegmentHead::page_at(self.next_page))?;
        self.entries.reserve(pages as usize * ENTRIES_PER_PAGE);
        for bytes in self.piece.chunks_exact(PAGE_LENGTH) {
            let page = Page::parse(self.segment.head.id, self.next_page, bytes)?;
            self.entries.extend((0..page.len()).filter_map(|at| page.get(at)));
            self.next_page += 1;
        }
        Ok(())
    }
}

/// Fills `buffer`. If the file ends early, that is damage and not an I/O error.
fn read(file: &dyn VfsFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    match file.read_exact_at(buffer, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt("an index segment is too short").with_source(error))
        }
        result => result.context(|| format!("reading an index segment at offset {offset}")),
    }
}
