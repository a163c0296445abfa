//! Every byte of every file of a store is changed in turn: packs, index, catalog, change logs, health, keys and the small files.
//! The store is small, but has everything that a store can hold, once plain and once encrypted.
//!
//! For each change, a fresh reader opens the store. Each version, name and fact that it gives is exactly as before, or an error.
//! Then `check` reads the data. It finds damage, or the byte has no effect for a reason that `harmless` names: by the role of the
//! file or the structure of the database, never by a list of offsets. Some of the changes that were found are healed from a copy.
//!
//! The ignored test changes every byte and prints a table; the others do so for a sample of each file.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "changes files of the store directly")]

mod facts;
mod harmless;
mod store;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use platter_store::{
    CheckOptions, CheckReport, HealSource, Store, StorePlace, Verdict, WantedBlock, rebuild,
};

use facts::Facts;
use harmless::{Reasons, kind_of};
use store::{Sample, place_of};

/// More bytes are changed of files that are shorter than this.
const SMALL: usize = 2000;

/// The contents of all files, by their paths in the store.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files_of(dir: &Path) -> Files {
    let (mut files, mut folders) = (Files::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(dir.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(dir.join(&path)).unwrap());
            }
        }
    }
    files
}

/// Makes the files of a directory these. Only what differs is written.
fn restore(dir: &Path, good: &Files) {
    let (present, mut is_new) = (files_of(dir), false);
    for path in present.keys().filter(|path| !good.contains_key(*path)) {
        fs::remove_file(dir.join(path)).unwrap();
    }
    for (path, bytes) in good.iter().filter(|(path, bytes)| present.get(*path) != Some(*bytes)) {
        let file = dir.join(path);
        is_new |= !present.contains_key(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
    if is_new {
        place_of(dir).close_to_others().unwrap();
    }
}

/// What was done to one kind of file.
#[derive(Clone, Debug, Default)]
struct Tally {
    bytes: usize,
    flips: usize,
    /// Found when the store was opened or read.
    by_readers: usize,
    /// Found by a check.
    by_check: usize,
    harmless: BTreeMap<&'static str, usize>,
    healed: usize,
    /// Of those healed: without a rebuild, and with nothing left that a check mentions.
    by_heal_alone: usize,
    clean: usize,
    /// Neither found nor harmless.
    missed: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.flips += other.flips;
        self.by_readers += other.by_readers;
        self.by_check += other.by_check;
        self.healed += other.healed;
        self.by_heal_alone += other.by_heal_alone;
        self.clean += other.clean;
        self.missed.extend_from_slice(&other.missed);
        for (reason, count) in &other.harmless {
            *self.harmless.entry(reason).or_default() += count;
        }
    }
}

type Tallies = BTreeMap<&'static str, Tally>;

/// How much is tried.
#[derive(Clone, Copy)]
struct Extent {
    /// Every so many bytes of a file, or fewer where no byte means anything.
    step: usize,
    /// Every so many found changes are healed.
    heal: usize,
    /// After every so many harmless changes, the store is also opened for writing.
    write: usize,
    threads: usize,
}

/// Another store that has everything.
struct Copy(Store);

impl HealSource for Copy {
    fn name(&self) -> String {
        "a copy".into()
    }

    fn find(&mut self, wanted: &WantedBlock) -> platter_image::Result<Option<Vec<u8>>> {
        Ok(self.0.read_block(wanted.kind, &wanted.id).ok())
    }
}

/// One thread's copy of the store.
struct Work<'a> {
    sample: &'a Sample,
    dir: tempfile::TempDir,
    place: StorePlace,
    reasons: Reasons,
    extent: Extent,
    found: usize,
    unnoticed: usize,
}

impl<'a> Work<'a> {
    fn new(sample: &'a Sample, extent: Extent) -> Self {
        let dir = tempfile::tempdir().unwrap();
        restore(dir.path(), &sample.files);
        let (place, reasons) = (place_of(dir.path()), Reasons::of(&sample.files));
        Self { sample, dir, place, reasons, extent, found: 0, unnoticed: 0 }
    }

    fn restore(&self) {
        restore(self.dir.path(), &self.sample.files);
    }

    /// As `platter check --read-data`.
    fn check(&self) -> platter_image::Result<CheckReport> {
        let options = CheckOptions { read_data: true, ..CheckOptions::default() };
        Store::open_reader(&self.place)?.check(options, &mut |_| {})
    }

    /// Changes a byte, and undoes everything afterwards.
    fn flip(&mut self, path: &Path, at: usize, mask: u8, tally: &mut Tally) {
        let context =
            format!("{}: byte {at} of {}, {mask:#04x}", path.display(), self.sample.files[path].len());
        let mut bad = self.sample.files[path].clone();
        bad[at] ^= mask;
        fs::write(self.dir.path().join(path), &bad).unwrap();
        tally.flips += 1;
        let read = Facts::read(&self.place, self.sample);
        let by_reader = read.compare(&self.sample.facts, &context);
        let checked = self.check();
        let is_found = checked.as_ref().map_or(true, |report| report.verdict == Verdict::Damaged);
        if is_found {
            *(if by_reader { &mut tally.by_readers } else { &mut tally.by_check }) += 1;
            self.found += 1;
            if self.found.is_multiple_of(self.extent.heal) {
                self.heal(path, &context, tally);
            }
        } else {
            let report = checked.unwrap();
            match self.reasons.of_byte(path, at, &report) {
                Some(reason) if !by_reader => *tally.harmless.entry(reason).or_default() += 1,
                reason => {
                    tally
                        .missed
                        .push(format!("{context}: {reason:?}, reader fails: {by_reader}: {report:?}"));
                }
            }
            self.unnoticed += 1;
            if self.unnoticed.is_multiple_of(self.extent.write) {
                self.write(&context);
            }
        }
        self.restore();
    }

    /// A change that is not found disturbs no writer either.
    fn write(&self, context: &str) {
        let store = Store::open_writer(&self.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        drop(store);
        let fails = Facts::read(&self.place, self.sample).compare(&self.sample.facts, context);
        assert!(!fails, "{context}: after a writer");
        assert_ne!(self.check().unwrap().verdict, Verdict::Damaged, "{context}: after a writer");
    }

    fn is_damaged(&self) -> bool {
        self.check().map_or(true, |report| report.verdict == Verdict::Damaged)
    }

    /// Does what messages advise: `heal` from a copy, then `rebuild`. A file that nothing else can restore is copied.
    fn heal(&self, path: &Path, context: &str, tally: &mut Tally) {
        if let Ok(store) = Store::open_writer(&self.place) {
            let copy = Copy(Store::open_reader(&self.sample.place).unwrap());
            let report = store.heal(&mut [Box::new(copy)], &|| Ok(Vec::new()));
            let report = report.unwrap_or_else(|error| panic!("{context}: heal: {error:?}"));
            assert!(report.lost.is_empty(), "{context}: {report:?}");
        }
        let is_healed = !self.is_damaged();
        if !is_healed && let Err(error) = rebuild(&self.place) {
            let file = path.to_str().unwrap();
            assert!(["store.json", "keys.json"].contains(&file), "{context}: rebuild: {error:?}");
            fs::write(self.dir.path().join(path), &self.sample.files[path]).unwrap();
        }
        if path == Path::new("keys.json") && self.is_damaged() {
            // Only a person can do that.
            fs::write(self.dir.path().join(path), &self.sample.files[path]).unwrap();
        }
        let report = self.check().unwrap_or_else(|error| panic!("{context}: after healing: {error:?}"));
        assert_ne!(report.verdict, Verdict::Damaged, "{context}: after healing: {report:?}");
        let read = Facts::read(&self.place, self.sample);
        assert!(!read.compare_healed(&self.sample.facts, context), "{context}: after healing: {read:?}");
        tally.healed += 1;
        tally.by_heal_alone += usize::from(is_healed);
        tally.clean += usize::from(report.verdict == Verdict::Clean);
    }
}

/// Changes the bytes whose turn it is for this thread.
fn work(sample: &Sample, extent: Extent, turn: usize) -> Tallies {
    let (mut work, mut tallies, mut count) = (Work::new(sample, extent), Tallies::new(), 0);
    for (path, bytes) in &sample.files {
        let tally = tallies.entry(kind_of(path)).or_default();
        tally.bytes += if turn == 0 { bytes.len() } else { 0 };
        let step = if bytes.len() < SMALL { extent.step.div_ceil(16) } else { extent.step };
        for at in 0..bytes.len() {
            if at % step.max(work.reasons.stride(path, at)) != 0 {
                continue;
            }
            count += 1;
            if count % extent.threads == turn {
                work.flip(path, at, 1 << (at % 8), tally);
                // All bits, as a page of another file would change them.
                if at.is_multiple_of(16) {
                    work.flip(path, at, 0xff, tally);
                }
            }
        }
    }
    tallies
}

fn every_byte(name: &str, is_encrypted: bool, extent: Extent) {
    let sample = Sample::new(is_encrypted);
    let mut tallies = Tallies::new();
    thread::scope(|scope| {
        let sample = &sample;
        let threads: Vec<_> =
            (0..extent.threads).map(|turn| scope.spawn(move || work(sample, extent, turn))).collect();
        for thread in threads {
            for (kind, tally) in thread.join().unwrap() {
                tallies.entry(kind).or_default().add(&tally);
            }
        }
    });
    report(name, &tallies);
    let missed: Vec<&String> = tallies.values().flat_map(|tally| &tally.missed).collect();
    assert!(missed.is_empty(), "{} changes are missed: {:#?}", missed.len(), &missed[..missed.len().min(20)]);
    for kind in ["pack", "catalog", "change log"] {
        let tally = &tallies[kind];
        assert!(tally.by_readers + tally.by_check > 0 && tally.healed > 0, "{kind}: {tally:?}");
    }
}

fn report(name: &str, tallies: &Tallies) {
    println!(
        "{name}: files, bytes, flips, found by readers, found by check only, harmless, healed (alone, clean)"
    );
    let mut all = Tally::default();
    for (kind, tally) in tallies {
        all.add(tally);
        line(kind, tally);
    }
    line("all", &all);
    all.harmless.iter().for_each(|(reason, count)| println!("  harmless: {count:>7} {reason}"));
}

fn line(kind: &str, tally: &Tally) {
    let Tally { bytes, flips, by_readers, by_check, harmless, healed, by_heal_alone, clean, .. } = tally;
    let harmless: usize = harmless.values().sum();
    println!(
        "  {kind:<18} {bytes:>7} {flips:>7} {by_readers:>7} {by_check:>7} {harmless:>7} {healed:>6} ({by_heal_alone}, {clean})"
    );
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

#[test]
fn every_byte_is_found_in_a_plain_store() {
    every_byte("plain", false, Extent { step: 311, heal: 5, write: 29, threads: threads() });
}

#[test]
fn every_byte_is_found_in_an_encrypted_store() {
    every_byte("encrypted", true, Extent { step: 311, heal: 5, write: 29, threads: threads() });
}

/// Part of `make test-full`.
#[test]
#[ignore = "half an hour: every byte of every file"]
fn really_every_byte_is_found() {
    for (name, is_encrypted) in [("plain", false), ("encrypted", true)] {
        every_byte(name, is_encrypted, Extent { step: 1, heal: 41, write: 37, threads: threads() });
    }
}
