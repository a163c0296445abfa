//! Walks the directories of two filesystems side by side, in the order of names.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use platter_filesystem::{FileInode, FileKind, Listing};
use platter_image::{Error, ErrorKind, Extents, Result};
use platter_vdisk::is_store_damage;

use super::contents::Side;
use super::inodes::{Changes, compare};
use super::report::{DiffEvent, FileChange, PartitionDifference, PathDifference};

/// Directories deeper than this are not entered.
const DEPTH_MAX: usize = 4096;
/// Most remembered comparisons of pairs of inodes with several names.
const PAIRS_MAX: usize = 1 << 20;

/// The comparison of two filesystems.
pub(super) struct Walk<'a, 'e> {
    pub(super) a: Side<'a>,
    pub(super) b: Side<'a>,
    /// The ranges in which the disks differ.
    pub(super) changed: &'a Extents,
    /// Whether both are at the same place and have blocks and inodes of the same size.
    pub(super) is_unmoved: bool,
    pub(super) report: PartitionDifference,
    pub(super) on_event: &'e mut dyn FnMut(&DiffEvent),
    path: String,
    seen: [HashSet<u64>; 2],
    pairs: HashMap<(u64, u64), Changes>,
}

/// One of the two versions.
#[derive(Clone, Copy)]
enum Which {
    A,
    B,
}

/// A directory of one or both versions that is being walked.
struct Frame {
    path_length: usize,
    a: Option<Open>,
    b: Option<Open>,
}

/// One version's directory.
struct Open {
    listing: Listing,
    next: usize,
    is_encrypted: bool,
}

impl Open {
    fn name(&self) -> Option<&[u8]> {
        Some(self.listing.get(self.next)?.0)
    }

    fn take(&mut self) -> Option<u64> {
        let (_, inode) = self.listing.get(self.next)?;
        self.next += 1;
        Some(inode)
    }
}

impl Frame {
    /// Returns the next name in readable form, and the inodes to which it leads; `None` at the end.
    fn next(&mut self) -> Option<(String, Option<u64>, Option<u64>)> {
        let name_a = self.a.as_ref().and_then(Open::name);
        let name_b = self.b.as_ref().and_then(Open::name);
        let order = match (name_a, name_b) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.cmp(b),
        };
        let from = if order == Ordering::Greater { &self.b } else { &self.a };
        let from = from.as_ref()?;
        let name = displayed(from.name()?, from.is_encrypted);
        let inode_a = self.a.as_mut().filter(|_| order != Ordering::Greater).and_then(Open::take);
        let inode_b = self.b.as_mut().filter(|_| order != Ordering::Less).and_then(Open::take);
        Some((name, inode_a, inode_b))
    }
}

impl<'a, 'e> Walk<'a, 'e> {
    pub(super) fn new(
        (a, b): (Side<'a>, Side<'a>),
        (changed, is_unmoved): (&'a Extents, bool),
        report: PartitionDifference,
        on_event: &'e mut dyn FnMut(&DiffEvent),
    ) -> Self {
        let (path, seen, pairs) = (String::new(), <[HashSet<u64>; 2]>::default(), HashMap::new());
        Self { a, b, changed, is_unmoved, report, on_event, path, seen, pairs }
    }

    /// Compares two files, and everything below if these are directories. `path` is theirs in readable form, empty for the roots.
    /// Returns the report with the counts.
    ///
    /// # Errors
    /// The errors of reading the disks. Errors of single files are reported as events.
    pub(super) fn run(mut self, ([a, b], path): ([u64; 2], String)) -> Result<PartitionDifference> {
        let mut stack = Vec::new();
        self.path = path;
        self.visit(Some(a), Some(b), &mut stack)?;
        while let Some(frame) = stack.last_mut() {
            self.path.truncate(frame.path_length);
            let Some((name, inode_a, inode_b)) = frame.next() else {
                stack.pop();
                continue;
            };
            self.path.push('/');
            self.path.push_str(&name);
            self.visit(inode_a, inode_b, &mut stack)?;
        }
        let counts = &self.report;
        self.report.differs |= counts.added + counts.removed + counts.modified + counts.unreadable > 0;
        Ok(self.report)
    }

    /// Compares the inodes of one name; a directory is put on the stack.
    fn visit(&mut self, a: Option<u64>, b: Option<u64>, stack: &mut Vec<Frame>) -> Result<()> {
        let inode_a = a.map(|number| self.a.files.inode(number)).transpose();
        let inode_b = b.map(|number| self.b.files.inode(number)).transpose();
        let compared = match (told(inode_a)?, told(inode_b)?) {
            (Ok(inode_a), Ok(inode_b)) => self.compare(inode_a, inode_b, stack),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        match told(compared)? {
            Ok(()) => Ok(()),
            Err(error) => {
                self.tell(FileChange::Unreadable, Changes::default(), Some(&error));
                Ok(())
            }
        }
    }

    fn compare(&mut self, a: Option<FileInode>, b: Option<FileInode>, stack: &mut Vec<Frame>) -> Result<()> {
        match (&a, &b) {
            (Some(a), Some(b)) => {
                // If a directory's attributes are damaged, its contents are compared anyway.
                match told(self.changes(a, b))? {
                    Ok(changes) if changes.what.is_empty() => {}
                    Ok(changes) => self.tell(FileChange::Modified, changes, None),
                    Err(error) => self.tell(FileChange::Unreadable, Changes::default(), Some(&error)),
                }
            }
            (Some(_), None) => self.tell(FileChange::Removed, Changes::default(), None),
            (None, _) => self.tell(FileChange::Added, Changes::default(), None),
        }
        let is_directory = |inode: &FileInode| inode.metadata().kind == FileKind::Directory;
        let (a, b) = (a.filter(is_directory), b.filter(is_directory));
        if a.is_none() && b.is_none() {
            return Ok(());
        }
        if stack.len() >= DEPTH_MAX {
            return Err(Error::corrupt(format!("directories deeper than {DEPTH_MAX} are not entered")));
        }
        let a = a.map(|inode| self.open(Which::A, &inode)).transpose()?;
        let b = b.map(|inode| self.open(Which::B, &inode)).transpose()?;
        stack.push(Frame { path_length: self.path.len(), a, b });
        Ok(())
    }

    fn changes(&mut self, a: &FileInode, b: &FileInode) -> Result<Changes> {
        let has_names =
            |inode: &FileInode| inode.metadata().links > 1 && inode.metadata().kind != FileKind::Directory;
        let pair = (has_names(a) || has_names(b)).then(|| (a.number(), b.number()));
        if let Some(known) = pair.and_then(|pair| self.pairs.get(&pair)) {
            return Ok(known.clone());
        }
        let changes = compare((&mut self.a, a), (&mut self.b, b), self.changed, self.is_unmoved)?;
        if let Some(pair) = pair.filter(|_| self.pairs.len() < PAIRS_MAX) {
            self.pairs.insert(pair, changes.clone());
        }
        Ok(changes)
    }

    /// Reads a directory. Each is entered only once, which ends loops of names.
    fn open(&mut self, which: Which, inode: &FileInode) -> Result<Open> {
        let (side, seen) = match which {
            Which::A => (&mut self.a, &mut self.seen[0]),
            Which::B => (&mut self.b, &mut self.seen[1]),
        };
        if !seen.insert(inode.number()) {
            return Err(Error::corrupt(format!("directory {} has more than one name", inode.number())));
        }
        Ok(Open { listing: side.files.list(inode)?.complete()?, next: 0, is_encrypted: inode.is_encrypted() })
    }

    fn tell(&mut self, change: FileChange, changes: Changes, reason: Option<&Error>) {
        let count = match change {
            FileChange::Added => &mut self.report.added,
            FileChange::Removed => &mut self.report.removed,
            FileChange::Modified => &mut self.report.modified,
            FileChange::Unreadable => &mut self.report.unreadable,
        };
        *count += 1;
        let path = if self.path.is_empty() { "/".to_owned() } else { self.path.clone() };
        (self.on_event)(&DiffEvent::Path(PathDifference {
            change,
            partition: self.report.partition,
            path,
            what: changes.what,
            changed_bytes: changes.bytes,
            reason: reason.map(Error::with_causes),
        }));
    }
}

/// Separates errors of a single file, which are reported, from others, which end the walk.
pub(super) fn told<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if !is_of_one_file(&error) => Err(error),
        result => Ok(result),
    }
}

fn is_of_one_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused) || is_store_damage(error)
}

/// Returns a name as one line of text.
pub(crate) fn displayed(name: &[u8], is_encrypted: bool) -> String {
    let mut text = String::with_capacity(name.len());
    if is_encrypted {
        text.push_str("[encrypted:");
        text.extend(name.iter().map(|byte| format!("{byte:02x}")));
        text.push(']');
        return text;
    }
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if character.is_control() => {
                    let mut bytes = [0; 4];
                    text.extend(escaped(character.encode_utf8(&mut bytes).as_bytes()));
                }
                character => text.push(character),
            }
        }
        text.extend(escaped(chunk.invalid()));
    }
    text
}

fn escaped(bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    bytes.iter().map(|byte| format!("\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line() {
        assert_eq!(displayed("a ü\n\\".as_bytes(), false), "a ü\\x0a\\\\");
        assert_eq!(displayed(b"\xff\x01", false), "\\xff\\x01");
        assert_eq!(displayed(b"\xff\x01", true), "[encrypted:ff01]");
    }
}
