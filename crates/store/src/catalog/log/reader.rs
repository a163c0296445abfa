//! Reads the entries of logs that follow a number or an offset, and not those before them.
//!
//! A log has no index by number. Its numbers grow, and each entry can be verified by itself, so a number is found by probing: from
//! the end backwards in growing steps, then by bisection. A damaged part has no valid entry; a probe then looks further on, and
//! [`Entries`] reports the hole when it reads across it. Must never leave out a log that may have an entry asked for.
//!
//! A log is read in pieces, and garbage only up to [`SEARCH_MAX`] bytes, however long it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platter_image::{IoContext, Result};
use platter_vfs::{OpenMode, VfsFile};

use super::file::{ChangePosition, Head};
use super::format::{
    Candidate, ENTRY_HEAD, FoundEntry, HEADER_LENGTH, TEXT_LENGTH_MAX, entry_length, find_candidate,
    read_header,
};
use super::{ChangeLogContents, Entry};
use crate::place::StorePlace;

/// Bytes of a read that looks for an entry.
pub(super) const PROBE: u64 = 16 << 10;
/// Bytes of a read of entries that follow each other.
pub(super) const PIECE: u64 = 256 << 10;
/// Bytes that are read after the last valid entry in search of the next one: more than a damaged entry of any length has.
pub(super) const SEARCH_MAX: u64 = if cfg!(test) { 4 << 20 } else { TEXT_LENGTH_MAX as u64 + (1 << 20) };

/// Reads up to `count` entries with numbers above `after` and up to that of `head`, ordered by number, from earlier logs and the
/// present one. Skips damaged ones. Returns also whether the logs are undamaged where they were read.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote a log.
pub(crate) fn read_after(
    place: &StorePlace,
    head: &Head,
    after: u64,
    count: usize,
) -> Result<(Vec<Entry>, bool)> {
    if after >= head.number() || count == 0 {
        return Ok((Vec::new(), true));
    }
    let (mut found, mut is_whole) = (BTreeMap::new(), true);
    let (last, mut before) = (head.entry()?, None);
    // The last entry is in the catalog, too.
    let needs_logs = after + 1 < head.number();
    if needs_logs {
        let present = LogFile::of(place, head)?;
        let first = present.as_ref().map(LogFile::first).transpose()?.flatten();
        let needs_earlier = first.is_none_or(|first| first > after + 1);
        let mut logs = if needs_earlier { earlier(place, head, &mut is_whole)? } else { Vec::new() };
        is_whole &= present.is_some();
        logs.extend(present.map(|log| (first.unwrap_or(head.number()), log)));
        for (first, log) in logs {
            if found.keys().nth(count - 1).is_some_and(|last| *last < first) {
                break;
            }
            let (is_sound, end) = log.read_after(after, head.number() - 1, count, &mut found)?;
            (is_whole, before) = (is_whole && is_sound, end);
        }
    }
    if found.len() < count {
        let continues = before == Some((head.number() - 1, last.before.clone()));
        is_whole &= continues || !needs_logs || head.offset() == HEADER_LENGTH as u64;
        found.insert(head.number(), last);
    }
    // Nothing else shows that the end of an earlier log is damaged or missing.
    let numbers = found.keys().take(count);
    is_whole &= numbers.clone().zip(numbers.skip(1)).all(|(number, next)| number + 1 == *next);
    Ok((found.into_values().take(count).collect(), is_whole))
}

/// Opens the earlier logs, ordered by the numbers of their first entries. Clears `is_whole` if one has no valid header.
fn earlier(place: &StorePlace, head: &Head, is_whole: &mut bool) -> Result<Vec<(u64, LogFile)>> {
    let folder = place.earlier_logs();
    let context = || format!("reading {}", folder.display());
    if !place.vfs().exists(&folder).context(context)? {
        return Ok(Vec::new());
    }
    let mut logs = Vec::new();
    for entry in place.vfs().list(&folder).context(context)? {
        let log = LogFile::open(place, &folder.join(&entry.name))?;
        *is_whole &= log.is_some();
        let Some(log) = log.filter(|log| log.id != head.id()) else { continue };
        if let Some(first) = log.first()? {
            logs.push((first, log));
        }
    }
    logs.sort_by_key(|(first, _)| *first);
    Ok(logs)
}

/// Reads the texts of the entries after `position` up to `head`; from the start of the log if `position` is in another one. Ends
/// when they have `bytes_max` bytes or more. `None` if the log is damaged there.
///
/// # Errors
/// `Io`.
pub(crate) fn read_texts(
    place: &StorePlace,
    head: &Head,
    position: Option<&ChangePosition>,
    bytes_max: usize,
) -> Result<Option<Vec<String>>> {
    let known = position.filter(|position| position.log_id() == head.id());
    let offset = known.map_or(HEADER_LENGTH as u64, ChangePosition::offset);
    if offset == head.end() {
        return Ok(Some(Vec::new()));
    }
    let (mut texts, mut bytes) = (Vec::new(), 0);
    if offset < head.offset() {
        let Some(log) = LogFile::of(place, head)?.filter(|log| log.end == head.offset()) else {
            return Ok(None);
        };
        let mut entries = log.entries(offset);
        while let Some((text, _)) = entries.next()? {
            bytes += text.len();
            texts.push(text);
            if bytes >= bytes_max {
                return Ok((!entries.has_holes).then_some(texts));
            }
        }
        if entries.has_holes || entries.offset() != log.end {
            return Ok(None);
        }
    } else if offset > head.offset() {
        return Ok(None);
    }
    texts.push(head.text().to_owned());
    Ok(Some(texts))
}

/// A log, opened for reading.
pub(super) struct LogFile {
    pub(super) file: Box<dyn VfsFile>,
    pub(super) path: PathBuf,
    pub(super) id: String,
    /// Where reading ends: at the end of the file, or before the entry that the catalog has too.
    pub(super) end: u64,
}

impl LogFile {
    /// Opens the log that the catalog names. A writer may be about to put it in place, or have replaced it since the head was read.
    fn of(place: &StorePlace, head: &Head) -> Result<Option<Self>> {
        let log = Self::of_head(place, head)?;
        Ok(log.map(|log| Self { end: log.end.min(head.offset()), ..log }))
    }

    /// As [`LogFile::of`], with the entry that the catalog has too.
    pub(super) fn of_head(place: &StorePlace, head: &Head) -> Result<Option<Self>> {
        let replaced = place.earlier_logs().join(format!("{}.log", head.id()));
        for path in [place.change_log(), place.new_change_log(), replaced] {
            let log = Self::open(place, &path)?.filter(|log| log.id == head.id());
            if log.is_some() {
                return Ok(log);
            }
        }
        Ok(None)
    }

    /// `None` without a file, or without a valid header.
    pub(super) fn open(place: &StorePlace, path: &Path) -> Result<Option<Self>> {
        let context = || format!("reading {}", path.display());
        let file = match place.vfs().open(path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.context(context)?,
        };
        Self::of_file(file, path)
    }

    /// `None` without a valid header.
    pub(super) fn of_file(file: Box<dyn VfsFile>, path: &Path) -> Result<Option<Self>> {
        let context = || format!("reading {}", path.display());
        let end = file.length().context(context)?;
        let mut header = vec![0; end.min(HEADER_LENGTH as u64) as usize];
        file.read_exact_at(&mut header, 0).context(context)?;
        let id = read_header(&header)?;
        Ok(id.map(|id| Self { file, path: path.to_owned(), id, end }))
    }

    /// Reads up to `length` bytes.
    pub(super) fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length.min(self.end.saturating_sub(offset)) as usize];
        self.file
            .read_exact_at(&mut bytes, offset)
            .context(|| format!("reading {} bytes at {offset} of {}", bytes.len(), self.path.display()))?;
        Ok(bytes)
    }

    /// Returns the number of the first valid entry.
    fn first(&self) -> Result<Option<u64>> {
        Ok(self.first_between(HEADER_LENGTH as u64, self.end)?.map(|(_, number)| number))
    }

    /// Returns offset and number of the first valid entry that begins between these offsets.
    fn first_between(&self, from: u64, below: u64) -> Result<Option<(u64, u64)>> {
        let mut entries = Entries { piece: PROBE, ..self.entries(from) };
        let Some((text, entry)) = entries.next()? else { return Ok(None) };
        let offset = entries.offset() - entry_length(&text);
        Ok(Some((offset, entry.change.number)).filter(|(offset, _)| *offset < below))
    }

    /// Reads all valid entries.
    pub(super) fn contents(&self) -> Result<ChangeLogContents> {
        let mut contents = ChangeLogContents { id: Some(self.id.clone()), ..ChangeLogContents::default() };
        let mut entries = self.entries(HEADER_LENGTH as u64);
        while let Some((_, entry)) = entries.next()? {
            contents.add(entry, std::mem::take(&mut entries.has_holes));
        }
        let rest = self.end.saturating_sub(entries.offset());
        contents.has_torn_end = rest > 0;
        contents.garbage = Some(rest).filter(|rest| *rest > SEARCH_MAX);
        Ok(contents)
    }

    /// Returns an offset at or before the entry `number` and close to it.
    fn place_of(&self, number: u64) -> Result<u64> {
        let (mut low, mut high) = (HEADER_LENGTH as u64, self.end);
        let (mut step, mut is_bounded) = (PROBE, false);
        while high.saturating_sub(low) > PROBE {
            let at = if is_bounded { low + (high - low) / 2 } else { high.saturating_sub(step).max(low) };
            match self.first_between(at, high)? {
                Some((offset, found)) if found <= number => (low, is_bounded) = (offset, true),
                _ if at == low => break,
                _ => high = at,
            }
            step = step.saturating_mul(4);
        }
        Ok(low)
    }

    /// Adds up to `count` entries with numbers above `after` and up to `last`. Returns whether the log is undamaged where it was
    /// read, and number and hash of the entry at which reading ended.
    fn read_after(
        &self,
        after: u64,
        last: u64,
        count: usize,
        found: &mut BTreeMap<u64, Entry>,
    ) -> Result<(bool, Option<(u64, String)>)> {
        let mut entries = self.entries(self.place_of(after.saturating_add(1))?);
        let (mut added, mut is_whole) = (0, true);
        let mut before: Option<(u64, String)> = None;
        while let Some((_, entry)) = entries.next()? {
            let number = entry.change.number;
            if number > last {
                break;
            }
            let is_next = before.is_none_or(|(before, hash)| before + 1 == number && hash == entry.before);
            let follows = !std::mem::take(&mut entries.has_holes) && is_next;
            // What is missing before it was perhaps not asked for.
            is_whole &= follows || number <= after.saturating_add(1);
            before = Some((number, entry.hash.clone()));
            if number > after {
                found.insert(number, entry);
                added += 1;
            }
            if added == count {
                break;
            }
        }
        Ok((is_whole, before))
    }

    /// Reads the valid entries from an offset on.
    pub(super) fn entries(&self, offset: u64) -> Entries<'_> {
        let bytes = Vec::new();
        Entries {
            log: self,
            piece: PIECE,
            base: offset,
            bytes,
            from: 0,
            end: offset,
            searched: 0,
            has_holes: false,
        }
    }
}

/// Reads the valid entries of a log from an offset on.
pub(super) struct Entries<'a> {
    log: &'a LogFile,
    /// Bytes of a read.
    piece: u64,
    /// A part of the log, and its offset there.
    bytes: Vec<u8>,
    base: u64,
    /// Where the search in `bytes` goes on.
    from: usize,
    /// The offset after the last entry.
    end: u64,
    /// Bytes that were read since then.
    searched: u64,
    /// Whether something else was between two entries.
    has_holes: bool,
}

impl Entries<'_> {
    /// The offset after the last entry.
    fn offset(&self) -> u64 {
        self.end
    }

    /// Returns the next valid entry and its text.
    pub(super) fn next(&mut self) -> Result<Option<(String, Entry)>> {
        loop {
            let read = self.base + self.bytes.len() as u64;
            match find_candidate(&self.bytes, self.base, &self.log.id, self.from) {
                Some((at, Candidate::Entry(FoundEntry { entry, length }))) => {
                    self.has_holes |= self.base + at as u64 != self.end;
                    self.from = at + length;
                    (self.end, self.searched) = (self.base + self.from as u64, 0);
                    let text = String::from_utf8_lossy(&self.bytes[at + ENTRY_HEAD..self.from]).into_owned();
                    debug_assert_eq!(entry_length(&text), length as u64, "a valid entry is UTF-8");
                    return Ok(Some((text, entry)));
                }
                _ if self.searched > SEARCH_MAX => return Ok(None),
                // An entry that is longer than the part, or damage.
                Some((at, Candidate::Cut(length))) => {
                    let start = self.base + at as u64;
                    match start + length as u64 <= self.log.end {
                        true => self.read(start, self.piece.max(length as u64))?,
                        false => self.from = at + 1,
                    }
                }
                None if read >= self.log.end => return Ok(None),
                None => {
                    // The head of an entry may begin in the last bytes.
                    let start = read.saturating_sub(ENTRY_HEAD as u64 - 1).max(self.base + self.from as u64);
                    self.read(start, self.piece)?;
                }
            }
        }
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<()> {
        self.bytes = self.log.read(offset, length)?;
        (self.base, self.from) = (offset, 0);
        self.searched += self.bytes.len() as u64;
        Ok(())
    }
}
