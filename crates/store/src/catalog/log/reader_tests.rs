//! Reads parts of long logs, undamaged and damaged, and counts the bytes.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_records::{Action, Actor, ChangeRecord};
use platter_vfs::Vfs;
use platter_vfs::simulated::SimulatedDisk;

use super::file::ChangeLog;
use super::file::Head;
use super::format::EXAMINED;
use super::reader::{PIECE, PROBE, SEARCH_MAX};
use super::{Beginning, Entry, State, create, create_new, encode, read, read_after, read_texts, settle};
use crate::place::StorePlace;

/// A log that grows without a catalog.
struct Growing {
    disk: SimulatedDisk,
    place: StorePlace,
    head: Head,
}

fn beginning(last: (u64, String), action: Action) -> Beginning {
    Beginning { last, by: Actor::new("me", "here"), time_unix_ms: 7, action }
}

impl Growing {
    fn new() -> Self {
        let disk = SimulatedDisk::new(1);
        let place = StorePlace::new(Arc::new(disk.clone()), "/store");
        disk.create_dir(place.dir()).unwrap();
        let first = beginning((0, String::new()), Action::Init {});
        let head = create(&disk, &place.change_log(), &State::default(), &first).unwrap();
        Self { disk, place, head }
    }

    /// Adds changes until the last one has this number. Each 500th is longer than [`PIECE`] if `some_are_long`.
    fn grow(&mut self, last: u64, some_are_long: bool) {
        let path = self.place.change_log();
        let mut bytes = self.disk.contents(&path).unwrap();
        while self.head.number() < last {
            let number = self.head.number() + 1;
            let is_long = some_are_long && number.is_multiple_of(500);
            let length = if is_long { 3 * PIECE } else { 100 + number % 300 };
            let by = Actor::new("me", "here");
            let change = ChangeRecord { number, time_unix_ms: 7, by, action: Action::Snapshot {} };
            let before = self.head.hash();
            let entry = Entry {
                hash: String::new(),
                before,
                change,
                rows: Vec::new(),
                after: "-".repeat(length as usize),
            };
            self.head = self.head.next(entry.to_text().unwrap());
            bytes.extend(encode(self.head.id(), self.head.offset(), number, self.head.text()));
        }
        self.disk.overwrite(&path, &bytes);
    }

    /// Begins a new log.
    fn replace(&mut self) {
        let last = (self.head.number(), self.head.hash());
        self.head =
            create_new(&self.place, &State::default(), &beginning(last, Action::Snapshot {})).unwrap();
        settle(&self.place, &self.head).unwrap();
    }

    /// Returns the numbers that were read, whether the logs are whole there, and how many bytes were read.
    fn read(&self, after: u64, count: usize) -> (Vec<u64>, bool, u64) {
        let before = self.disk.bytes_read();
        let (entries, is_whole) = read_after(&self.place, &self.head, after, count).unwrap();
        let numbers = entries.iter().map(|entry| entry.change.number).collect();
        (numbers, is_whole, self.disk.bytes_read() - before)
    }

    fn damage(&self, path: &Path, at: usize) {
        let mut bytes = self.disk.contents(path).unwrap();
        bytes[at] ^= 1;
        self.disk.overwrite(path, &bytes);
    }

    /// The log that was replaced.
    fn earlier(&self) -> PathBuf {
        let folder = self.place.earlier_logs();
        folder.join(&self.disk.list(&folder).unwrap()[0].name)
    }
}

/// Three logs: changes 1 to 3,000, to 6,000 and to 8,000.
fn three_logs(some_are_long: bool) -> Growing {
    let mut logs = Growing::new();
    logs.grow(3000, some_are_long);
    logs.replace();
    logs.grow(6000, some_are_long);
    logs.replace();
    logs.grow(8000, some_are_long);
    logs
}

#[test]
fn a_reader_gets_what_follows_a_number_and_reads_little_else() {
    for some_are_long in [false, true] {
        let logs = three_logs(some_are_long);
        let (numbers, is_whole, all) = logs.read(0, usize::MAX);
        assert_eq!((numbers, is_whole), ((1..=8000).collect(), true));
        assert!(all > 3 << 20, "{all} bytes");
        // The catalog has the last change.
        assert_eq!(logs.read(8000, 10), (Vec::new(), true, 0));
        assert_eq!(logs.read(7999, 10), (vec![8000], true, 0));
        for after in [0, 1, 499, 2999, 3000, 5999, 6777, 7998] {
            for count in [1, 200, 5000] {
                let (numbers, is_whole, bytes) = logs.read(after, count);
                let expected: Vec<u64> = (after + 1..=8000).take(count).collect();
                assert_eq!((&numbers, is_whole), (&expected, true), "{count} after {after}");
                let limit = numbers.len() as u64 * 700 + 24 * PROBE + 2 * PIECE;
                assert!(some_are_long || bytes <= limit, "{count} after {after}: {bytes} of {limit} bytes");
            }
        }
        let few = logs.read(7900, usize::MAX).2;
        assert!(few < 10 * PROBE, "{few} bytes");
    }
}

#[test]
fn a_damaged_change_is_missing_and_reported_only_where_it_was_read() {
    let logs = three_logs(true);
    let (earlier, present) = (logs.earlier(), logs.place.change_log());
    let first_third = logs.disk.contents(&earlier).unwrap().len() / 3;
    logs.damage(&earlier, first_third);
    let (numbers, is_whole, _) = logs.read(0, usize::MAX);
    assert_eq!((numbers.len(), is_whole), (7999, false));
    let lost = (1..=8000).find(|number| !numbers.contains(number)).unwrap();
    assert!(logs.read(lost, usize::MAX).1, "change {lost} was not asked for");
    for after in [lost - 1, lost - 2] {
        let (numbers, is_whole, _) = logs.read(after, 3);
        assert_eq!((numbers.contains(&lost), is_whole), (false, false), "after {after}, without {lost}");
    }
    // The header of the present log is damaged: only the change in the catalog is left of it.
    logs.damage(&present, 9);
    let (numbers, is_whole, _) = logs.read(6500, usize::MAX);
    assert_eq!((numbers, is_whole), (vec![8000], false));
    // The present log is cut.
    logs.damage(&present, 9);
    let mut cut = logs.disk.contents(&present).unwrap();
    cut.truncate(cut.len() / 2);
    logs.disk.overwrite(&present, &cut);
    let (numbers, is_whole, _) = logs.read(6000, usize::MAX);
    assert!(!is_whole && numbers.len() > 100 && numbers.last() == Some(&8000), "{}", numbers.len());
}

#[test]
fn texts_end_at_the_limit_and_continue_at_their_offset() {
    let mut logs = Growing::new();
    logs.grow(1200, false);
    let texts = read_texts(&logs.place, &logs.head, None, usize::MAX).unwrap().unwrap();
    assert_eq!(texts.len(), 1200);
    let before = logs.disk.bytes_read();
    let few = read_texts(&logs.place, &logs.head, None, 10_000).unwrap().unwrap();
    assert!(few.len() < 100 && texts.starts_with(&few));
    assert!(few.iter().map(String::len).sum::<usize>() >= 10_000);
    assert!(logs.disk.bytes_read() - before <= PIECE + 100, "it does not read the rest");
}

/// Garbage after the last change costs a bounded search, and the next writer cuts it off. Changes behind a damaged one are found.
#[test]
fn garbage_at_the_end_is_not_read() {
    let mut logs = Growing::new();
    logs.grow(1200, true);
    let path = logs.place.change_log();
    let good = logs.disk.contents(&path).unwrap();
    let garbage = [vec![0; 9 << 20], b"\0PLc\xff\xff\xff\x0f".repeat(1 << 20)];
    for garbage in garbage {
        logs.disk.overwrite(&path, &[&good[..], &garbage].concat());
        let before = logs.disk.bytes_read();
        let contents = read(&logs.place, Some(&logs.head)).unwrap();
        assert_eq!((contents.entries(), contents.has_holes), (1200, false));
        assert_eq!(contents.garbage, Some(garbage.len() as u64));
        let bytes = logs.disk.bytes_read() - before;
        assert!(bytes < 2 * good.len() as u64 + 2 * SEARCH_MAX, "{bytes} bytes");
        drop(ChangeLog::open(&logs.place, &logs.head, || Ok(())).unwrap());
        assert!(logs.disk.contents(&path).unwrap() == good, "the garbage is cut off");
    }
    logs.damage(&path, good.len() / 2);
    let contents = read(&logs.place, Some(&logs.head)).unwrap();
    assert_eq!((contents.entries(), contents.has_holes, contents.garbage), (1199, true, None));
}

/// Garbage in which every 24th byte begins a head, each of a text that ends where the garbage ends or later.
#[test]
fn heads_in_garbage_cost_few_bytes_each() {
    let mut logs = Growing::new();
    logs.grow(10, false);
    let path = logs.place.change_log();
    let good = logs.disk.contents(&path).unwrap();
    let length = 1 << 20;
    for text_length in [PIECE as u32 / 2, length as u32 / 2, 255 << 20] {
        let mut garbage = Vec::new();
        while garbage.len() < length {
            garbage.extend(b"\0PLc");
            garbage.extend(text_length.to_le_bytes());
            garbage.extend(b"0123456789abcdef");
        }
        logs.disk.overwrite(&path, &[&good[..], &garbage].concat());
        let before = EXAMINED.get();
        assert_eq!(read(&logs.place, Some(&logs.head)).unwrap().entries(), 10);
        let bytes = EXAMINED.get() - before;
        assert!(bytes < 2 * (good.len() + garbage.len()) as u64, "{bytes} bytes");
    }
}
