//! Why a changed byte may have no effect. Each reason is a rule about a file's role or about the structure of an SQLite database;
//! whether it is true is tested by the caller for every such byte: nothing that the store says differs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use platter_store::{CheckReport, Verdict};

use super::Files;

/// The kind of a file, for the table.
pub(crate) fn kind_of(path: &Path) -> &'static str {
    let text = path.to_str().unwrap();
    match text.split('/').next().unwrap() {
        "packs" => "pack",
        "index" => "index",
        "health" => "health",
        "changes" => "earlier log",
        "catalog.sqlite" => "catalog",
        "catalog.sqlite-journal" => "journal",
        "changes.log" => "change log",
        "keys.json" => "keys.json",
        "store.json" => "store.json",
        "standing.json" => "standing.json",
        "followers.json" => "followers.json",
        "leases.json" => "leases.json",
        "home.json" => "home.json",
        "reserve" | "lock" => "reserve, lock",
        _ => panic!("{text}: a new kind of file needs a rule"),
    }
}

/// Files that only take space or hold a lock.
fn is_never_read(path: &Path) -> bool {
    ["reserve", "lock", "index/room"].iter().any(|name| path == Path::new(name))
}

/// The reasons for the files of one store.
pub(crate) struct Reasons {
    /// Ranges of the catalog's file that SQLite does not use.
    unused: Vec<(Range<usize>, &'static str)>,
    dead: Vec<PathBuf>,
    /// The highest number of a key slot, in `keys.json`.
    last_slot: Range<usize>,
    /// Where the last record of the change log begins.
    last_change: usize,
}

impl Reasons {
    pub(crate) fn of(files: &Files) -> Self {
        let catalog = &files[Path::new("catalog.sqlite")];
        let journal = files.get(Path::new("catalog.sqlite-journal"));
        assert!(
            journal.is_none_or(|journal| journal.iter().take(28).all(|byte| *byte == 0)),
            "it is not in use"
        );
        let log = &files[Path::new("changes.log")];
        let last_change = log.windows(4).rposition(|bytes| bytes == b"\0PLc").unwrap();
        let keys = files.get(Path::new("keys.json")).map(|keys| std::str::from_utf8(keys).unwrap());
        let last_slot = keys.map_or(0..0, |keys| {
            let (before, number) = keys.split_once("\"last_number\": ").unwrap();
            keys.len() - number.len()..before.len() + "\"last_number\": ".len() + number.find(',').unwrap()
        });
        Self { unused: unused(catalog), dead: dead_packs(files, catalog), last_slot, last_change }
    }

    /// Every so many bytes of this part of a file are changed at most: a sample suffices where no byte means anything.
    pub(crate) fn stride(&self, path: &Path, at: usize) -> usize {
        let is_idle = match kind_of(path) {
            _ if is_never_read(path) => return 1009,
            "catalog" => self.unused_at(at).is_some(),
            "journal" | "index" => true,
            "pack" => self.is_dead(path),
            _ => false,
        };
        if is_idle { 8 } else { 1 }
    }

    fn unused_at(&self, at: usize) -> Option<&'static str> {
        self.unused.iter().find(|(range, _)| range.contains(&at)).map(|(_, reason)| *reason)
    }

    fn is_dead(&self, path: &Path) -> bool {
        self.dead.iter().any(|dead| dead == path)
    }

    /// Returns why a byte that a check did not find has no effect.
    pub(crate) fn of_byte(&self, path: &Path, at: usize, report: &CheckReport) -> Option<&'static str> {
        match kind_of(path) {
            _ if is_never_read(path) => Some("file that only takes space or holds a lock"),
            "catalog" => self.unused_at(at),
            "change log" if at >= self.last_change => Some(
                "last record of the change log: the catalog has it, too, and the next writer writes it again",
            ),
            "journal" => Some("journal of SQLite whose header is zeros, between commits"),
            "index" => Some(
                "cache: a damaged part is noticed by its checksum, and footers of packs are read instead",
            ),
            "health" => Some("observations: this check makes them again"),
            "keys.json" if self.last_slot.contains(&at) => {
                Some("highest number of a key slot: only the number of the next one depends on it")
            }
            "standing.json" => Some("copy of the catalog's row: this check writes it again"),
            "followers.json" => Some("list of followers, which may be deleted"),
            "leases.json" => Some("leases of readers, which may be deleted"),
            "home.json" => Some("where the store is, which may be deleted"),
            "earlier log" if report.verdict == Verdict::Leaks => {
                Some("earlier log: the check says that history is missing")
            }
            "pack" if self.is_dead(path) => Some("pack in the trash: nothing needs it"),
            _ => None,
        }
    }
}

/// The packs whose files wait for their deletion.
fn dead_packs(files: &Files, catalog: &[u8]) -> Vec<PathBuf> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), catalog).unwrap();
    let catalog = rusqlite::Connection::open(file.path()).unwrap();
    let mut statement = catalog.prepare("SELECT id FROM packs WHERE state = 'dead'").unwrap();
    let ids: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(|id| id.unwrap()).collect();
    let dead: Vec<PathBuf> = files
        .keys()
        .filter(|path| ids.iter().any(|id| path.to_str().unwrap().contains(id)))
        .cloned()
        .collect();
    assert!(!dead.is_empty() && dead.len() == ids.len());
    dead
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The bytes of a database that mean nothing, from its header and the header of each page (sqlite.org/fileformat2.html).
fn unused(bytes: &[u8]) -> Vec<(Range<usize>, &'static str)> {
    let page_size = number(bytes, 16, 2);
    let mut unused = vec![
        (24..28, "database header: change counter, which only tells other open connections to read again"),
        (40..44, "database header: schema cookie, which only tells other open connections to read again"),
        (48..52, "database header: suggested cache size"),
        (92..100, "database header: version of SQLite that wrote the file"),
    ];
    let mut free = Vec::new();
    let mut trunk = number(bytes, 32, 4);
    while trunk > 0 {
        let start = (trunk - 1) * page_size;
        let leaves = number(bytes, start + 4, 4);
        free.push((start + 8 + 4 * leaves)..start + page_size);
        for leaf in 0..leaves {
            let leaf = (number(bytes, start + 8 + 4 * leaf, 4) - 1) * page_size;
            free.push(leaf..leaf + page_size);
        }
        trunk = number(bytes, start, 4);
    }
    unused.extend(free.iter().map(|range| (range.clone(), "page on the free list")));
    for start in (0..bytes.len()).step_by(page_size) {
        if !free.iter().any(|range| range.contains(&(start + page_size - 1))) {
            unused.extend(unused_in_page(bytes, start, page_size));
        }
    }
    unused
}

/// The bytes of one page of a tree that belong to no cell: between pointers and cells, and in free blocks and fragments.
fn unused_in_page(bytes: &[u8], start: usize, page_size: usize) -> Vec<(Range<usize>, &'static str)> {
    let header = if start == 0 { 100 } else { start };
    let kind = bytes[header];
    assert!([2, 5, 10, 13].contains(&kind), "the page at {start} is of kind {kind}: a rule is missing");
    let header_length = if kind < 8 { 12 } else { 8 };
    let pointers_end = header + header_length + 2 * number(bytes, header + 3, 2);
    let cells = start + number(bytes, header + 5, 2);
    let mut unused = vec![(pointers_end..cells, "database page: between cell pointers and cells")];
    let mut block = number(bytes, header + 1, 2);
    while block > 0 {
        let at = start + block;
        unused.push((at + 4..at + number(bytes, at + 2, 2), "database page: free block"));
        block = number(bytes, at, 2);
    }
    assert!(unused.iter().all(|(range, _)| range.end <= start + page_size));
    unused
}
