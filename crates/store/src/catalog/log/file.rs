//! The file of the change log: creating, opening, appending, replacing and reading it.

use std::path::{Path, PathBuf};

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_vfs::{OpenMode, Vfs, VfsFile};
use serde::{Deserialize, Serialize};

use super::format::{HEADER_LENGTH, encode_header, entry_length, hash, read_header};
use super::reader::LogFile;
use super::{ChangeLogContents, Entry, State, encode};
use crate::place::StorePlace;
use platter_records::{Action, Actor, ChangeRecord, ReplicaPosition};

/// How to repair a damaged log.
const REMEDY: &str = "`platter rebuild` writes catalog and log again";

/// What the catalog records about its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The log's random id, in hexadecimal.
    id: String,
    /// Number of the last entry, from 1.
    number: u64,
    /// Offset and text of that entry.
    offset: u64,
    text: String,
    /// Length of the log in bytes when it was created.
    made: u64,
}

impl Head {
    /// Number of the last entry.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the hash of the last entry's text, which the next entry contains.
    pub(crate) fn hash(&self) -> String {
        hash(&self.text)
    }

    /// The id of the log that has this entry last.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Offset and text of the last entry.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// See [`Head::offset`].
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The offset after the last entry.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(entry_length(&self.text))
    }

    /// Returns the head after one more entry.
    pub(in crate::catalog) fn next(&self, text: String) -> Self {
        Self { id: self.id.clone(), number: self.number + 1, offset: self.end(), text, made: self.made }
    }

    /// Returns the position after the last entry.
    pub(crate) fn position(&self) -> ChangePosition {
        ChangePosition { log: self.id.clone(), number: self.number, offset: self.end() }
    }

    /// Returns the last entry.
    pub(in crate::catalog) fn entry(&self) -> Result<Entry> {
        Entry::from_text(&self.text)
    }

    /// Returns whether this head belongs to that log.
    pub(crate) fn is_of(&self, contents: &ChangeLogContents) -> bool {
        contents.id.as_ref() == Some(&self.id)
    }

    /// Returns whether the log has at least `long` bytes, and has grown so much that a copy of all rows is shorter.
    pub(in crate::catalog) fn is_long(&self, long: u64) -> bool {
        self.end() > long.max(self.made.saturating_mul(2))
    }

    pub(in crate::catalog) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::bug("cannot serialize a log's head").with_source(error))
    }

    pub(in crate::catalog) fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            Error::corrupt("the catalog has no valid reference to its change log").with_source(error)
        })
    }

    fn bytes(&self) -> Vec<u8> {
        encode(&self.id, self.offset, self.number, &self.text)
    }
}

/// A position between two changes of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangePosition {
    /// The log's random id, in hexadecimal.
    log: String,
    /// Number of the change before it.
    number: u64,
    /// Offset in the log's file.
    offset: u64,
}

impl ChangePosition {
    /// The place of a follower's position, which another process wrote.
    pub(crate) fn of(position: &ReplicaPosition) -> Self {
        Self { log: position.log.clone(), number: position.number, offset: position.offset }
    }

    pub(crate) fn log_id(&self) -> String {
        self.log.clone()
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

/// The position before the first entry of the log.
pub(crate) fn first_position(head: &Head) -> ChangePosition {
    ChangePosition { log: head.id.clone(), number: 0, offset: HEADER_LENGTH as u64 }
}

/// The offset after an entry with this text at `offset`.
pub(crate) fn entry_end(offset: u64, text: &str) -> u64 {
    offset.saturating_add(entry_length(text))
}

/// The hash that names an entry with this text.
pub(crate) fn hash_of_change(text: &str) -> String {
    hash(text)
}

/// How a new log begins: with a copy of all rows, which continues the entries of earlier logs.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// Number and hash of the last entry of earlier logs; 0 and empty if there is none.
    pub(crate) last: (u64, String),
    /// Who creates it, when and why.
    pub(crate) by: Actor,
    pub(crate) time_unix_ms: i64,
    pub(crate) action: Action,
}

/// Creates a log that begins with a copy of `state`, and returns its head. The file must not exist. The caller syncs its name.
pub(crate) fn create(vfs: &dyn Vfs, path: &Path, state: &State, beginning: &Beginning) -> Result<Head> {
    let context = || format!("creating {}", path.display());
    let (header, id) = encode_header(vfs.random_id().context(context)?);
    let file = vfs.open(path, OpenMode::CreateNew).context(context)?;
    file.write_all_at(&header, 0).context(context)?;
    let (mut offset, mut last) = (HEADER_LENGTH as u64, None);
    let (mut number, mut before) = beginning.last.clone();
    let groups = state.copy();
    let count = groups.len();
    for (rows, index) in groups.into_iter().zip(1..) {
        number += 1;
        let Beginning { by, time_unix_ms, action, .. } = beginning.clone();
        let change = ChangeRecord { number, time_unix_ms, by, action };
        let after = if index == count { state.digest() } else { String::new() };
        let entry = Entry { hash: String::new(), before, change, rows, after };
        let head = Head { id: id.clone(), number, offset, text: entry.to_text()?, made: 0 };
        file.write_all_at(&head.bytes(), offset).context(context)?;
        (offset, before) = (head.end(), head.hash());
        last = Some(head);
    }
    file.sync().context(context)?;
    last.map(|head| Head { made: offset, ..head }).ok_or_else(|| Error::bug("a log without an entry"))
}

/// The change log, opened for appending.
#[derive(Debug)]
pub(in crate::catalog) struct ChangeLog(Box<dyn VfsFile>);

impl ChangeLog {
    /// Opens the log that the catalog names. If the catalog's last entry is missing, appends it. Before that, `write_again` makes
    /// sure that the catalog's last commit is on the disk: the log must not get ahead of the catalog.
    ///
    /// # Errors
    /// `Corrupt` when the log is missing, belongs to another catalog, or contradicts the catalog; `Io`.
    pub(in crate::catalog) fn open(
        place: &StorePlace,
        head: &Head,
        write_again: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        settle(place, head)?;
        let path = place.change_log();
        let context = || format!("opening {}", path.display());
        let corrupt = |what: &str| Error::corrupt(format!("{}: {what}: {REMEDY}", path.display()));
        let file = match place.vfs().open(&path, OpenMode::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // The file is a part of the store: its source would say that what the user named is missing.
                return Err(corrupt("it is missing"));
            }
            opened => opened.context(context)?,
        };
        // After a failed sync, the cache may hold data that is not on the disk.
        file.sync().and_then(|()| file.drop_cache()).context(context)?;
        let length = file.length().context(context)?;
        if id_of(&*file, length)?.as_ref() != Some(&head.id) {
            return Err(corrupt("it is not the log of this catalog, or its header is damaged"));
        }
        if length < head.offset {
            return Err(corrupt("it ends before the catalog's last change"));
        }
        let expected = head.bytes();
        let mut last = vec![0; expected.len().min((length - head.offset) as usize)];
        file.read_exact_at(&mut last, head.offset).context(context)?;
        let is_there = last == expected;
        if is_there && length == head.end() {
            return Ok(Self(file));
        }
        let log = LogFile { file, path: path.clone(), id: head.id.clone(), end: length };
        let mut entries = log.entries(head.offset);
        while let Some((_, entry)) = entries.next()? {
            if entry.change.number > head.number {
                return Err(corrupt("the catalog is older than this log"));
            }
            if !is_there {
                return Err(corrupt("the catalog has a different last change"));
            }
        }
        let log = Self(log.file);
        // The entry is incomplete after a crash, or was not written at all.
        write_again()?;
        log.append(head)?;
        Ok(log)
    }

    /// Reserves the space for that head's entry by writing zeros, so that appending it needs no more space.
    pub(in crate::catalog) fn reserve(&self, head: &Head) -> Result<()> {
        let context = || "reserving space in the change log".to_owned();
        self.0.set_length(head.offset).context(context)?;
        self.0.write_all_at(&vec![0; head.bytes().len()], head.offset).context(context)
    }

    /// Appends the entry of that head, durably, into the reserved space if there is some.
    pub(in crate::catalog) fn append(&self, head: &Head) -> Result<()> {
        let context = || "writing the change log".to_owned();
        let bytes = head.bytes();
        self.0.write_all_at(&bytes, head.offset).context(context)?;
        self.0.set_length(head.offset + bytes.len() as u64).context(context)?;
        self.0.sync().context(context)
    }
}

fn id_of(file: &dyn VfsFile, length: u64) -> Result<Option<String>> {
    let mut header = vec![0; length.min(HEADER_LENGTH as u64) as usize];
    file.read_exact_at(&mut header, 0).context(|| "reading the change log".into())?;
    read_header(&header)
}

/// As [`create`], beside the log in use and with a durable name. Once the catalog names it, [`settle`] puts it in place of the
/// other. A crash before that leaves a file that nothing needs.
pub(crate) fn create_new(place: &StorePlace, state: &State, beginning: &Beginning) -> Result<Head> {
    let new = place.new_change_log();
    place.remove_if_there(&new)?;
    let made = create(place.vfs(), &new, state, beginning);
    if made.is_err() {
        // An incomplete file would only take space.
        place.remove_if_there(&new)?;
    }
    let head = made?;
    place.sync_dir(place.dir())?;
    Ok(head)
}

/// Puts a new log in place if the catalog names it, and keeps the earlier one for the audit log. The caller holds the writer's
/// lock.
pub(crate) fn settle(place: &StorePlace, head: &Head) -> Result<()> {
    let (path, new) = (place.change_log(), place.new_change_log());
    let context = || format!("opening {}", new.display());
    let id = |path: &Path| match place.vfs().open(path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.context(context).and_then(|file| id_of(&*file, file.length().context(context)?)),
    };
    let present = id(&path)?;
    if present.as_ref() == Some(&head.id) || id(&new)?.as_ref() != Some(&head.id) {
        return Ok(());
    }
    if let Some(present) = present {
        let earlier = place.earlier_logs();
        place.create_dirs(&earlier)?;
        let kept = earlier.join(format!("{present}.log"));
        place.vfs().rename(&path, &kept).context(|| format!("renaming {}", path.display()))?;
        // Durable before the new log takes its name: the earlier entries must not get lost.
        place.sync_dir(&earlier)?;
        place.sync_dir(place.dir())?;
    }
    place.vfs().rename(&new, &path).context(|| format!("renaming {}", new.display()))?;
    place.sync_dir(place.dir())
}

/// Reads a store's whole log. If a crash lost the last entry that a sound catalog records, adds it.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote it.
pub(crate) fn read(place: &StorePlace, head: Option<&Head>) -> Result<ChangeLogContents> {
    let mut contents = read_file(place, &place.change_log())?;
    if head.is_some_and(|head| !head.is_of(&contents)) {
        // A writer may be about to put a new log in place.
        let new = read_file(place, &place.new_change_log())?;
        if head.is_some_and(|head| head.is_of(&new)) {
            contents = new;
        }
    }
    if let Some(head) = head.filter(|head| head.is_of(&contents) && head.number == contents.last + 1) {
        let entry = head.entry()?;
        contents.has_holes |= entry.before != contents.last_hash;
        contents.entries.push(entry);
        (contents.last, contents.last_hash) = (head.number, head.hash());
        contents.has_torn_end = false;
    }
    Ok(contents)
}

/// Bytes that reach the disk together.
const SECTOR_LENGTH: usize = 512;

/// Returns whether the log's copy of the catalog's last entry is damaged. A crash before the entry was written leaves nothing or zeros
/// in its place, or in a sector the beginning of what belongs there: that is no damage.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote it.
pub(crate) fn is_end_damaged(place: &StorePlace, head: &Head) -> Result<bool> {
    let Some(log) = LogFile::of_head(place, head)? else { return Ok(false) };
    let expected = head.bytes();
    let mut present = log.read(head.offset, expected.len() as u64)?;
    present.resize(expected.len(), 0);
    let mut begin = 0;
    while begin < expected.len() {
        let rest_of_sector = SECTOR_LENGTH - (head.offset as usize + begin) % SECTOR_LENGTH;
        let end = expected.len().min(begin + rest_of_sector);
        let differs = (begin..end).find(|at| present[*at] != expected[*at]);
        if differs.is_some_and(|from| present[from..end].iter().any(|byte| *byte != 0)) {
            return Ok(true);
        }
        begin = end;
    }
    Ok(false)
}

/// Reads a whole log. Skips damaged parts and reports that in the result.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote it.
pub fn read_change_log(file: Box<dyn VfsFile>) -> Result<ChangeLogContents> {
    contents_of(LogFile::of_file(file, Path::new("the change log"))?)
}

/// Returns whether a file is a whole log that was made to replace a long one, not by a rebuild.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote it.
pub(crate) fn is_replacement(place: &StorePlace, path: &Path) -> Result<bool> {
    let contents = read_file(place, path)?;
    let first = contents.entries.first();
    Ok(contents.is_whole() && first.is_some_and(|entry| matches!(entry.change.action, Action::Snapshot {})))
}

fn read_file(place: &StorePlace, path: &Path) -> Result<ChangeLogContents> {
    contents_of(LogFile::open(place, path)?)
}

fn contents_of(log: Option<LogFile>) -> Result<ChangeLogContents> {
    let damaged = ChangeLogContents { has_holes: true, ..ChangeLogContents::default() };
    log.map_or(Ok(damaged), |log| log.contents())
}

/// Returns the earlier logs that are damaged or incomplete. Only the history needs them.
///
/// # Errors
/// `Io`.
pub(crate) fn damaged_earlier_logs(place: &StorePlace) -> Result<Vec<PathBuf>> {
    let earlier = place.earlier_logs();
    let context = || format!("reading {}", earlier.display());
    let mut damaged = Vec::new();
    if place.vfs().exists(&earlier).context(context)? {
        for entry in place.vfs().list(&earlier).context(context)? {
            let path = earlier.join(&entry.name);
            match read_file(place, &path) {
                Ok(contents) if contents.is_whole() && !contents.has_torn_end => {}
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                _ => damaged.push(path),
            }
        }
    }
    damaged.sort_unstable();
    Ok(damaged)
}

/// Returns the texts of all valid entries in the present log and in earlier ones.
///
/// # Errors
/// `Io`; `Refused` when a newer Platter wrote a log.
pub(crate) fn read_all_texts(place: &StorePlace, head: &Head) -> Result<Vec<String>> {
    let mut entries = read(place, Some(head))?.entries;
    let earlier = place.earlier_logs();
    let context = || format!("reading {}", earlier.display());
    if place.vfs().exists(&earlier).context(context)? {
        for entry in place.vfs().list(&earlier).context(context)? {
            entries.extend(read_file(place, &earlier.join(&entry.name))?.entries);
        }
    }
    let mut texts = Vec::with_capacity(entries.len());
    for entry in entries {
        let text = entry.to_text()?;
        // An entry that another Platter serialized differently has another hash.
        if hash(&text) == entry.hash {
            texts.push(text);
        }
    }
    Ok(texts)
}
