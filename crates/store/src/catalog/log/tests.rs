//! Damages a small change log at every byte, with and without the catalog.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test code that accesses the files directly"
)]

use std::fs;
use std::path::PathBuf;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry as RecipeEntry, State as EntryState};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, ErrorKind, Extent, FrameStore, Kind, Result};

use super::{ChangeLogContents, State, read_change_log};
use crate::check::{CheckOptions, Verdict};
use crate::place::StorePlace;
use crate::rebuild::rebuild;
use crate::store::Store;
use platter_collection::CollectRequest;
use platter_records::{Actor, Version, VersionRecord};
use platter_vfs::{OpenMode, OsVfs, Vfs};

fn new_store() -> (tempfile::TempDir, StorePlace, Store) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store")).with_long_log(64 << 10);
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    (folder, place, store)
}

/// Reads a log with these bytes.
fn contents_of(log: &[u8]) -> Result<ChangeLogContents> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), log).unwrap();
    read_change_log(OsVfs.open(file.path(), OpenMode::Read).unwrap())
}

/// Publishes a disk of `sectors` zero sectors.
fn publish(store: &Store, name: &str, sectors: u64) -> Result<Version> {
    let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
    let mut recipe = RecipeBuilder::new(sectors * 512, 512, policy, Domain::SHARED, pages);
    recipe.push(RecipeEntry { extent: Extent::new(0, sectors * 512), state: EntryState::Zero })?;
    let (score, pages) = recipe.finish()?;
    let session = store.session()?;
    let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
    pages.iter().for_each(|(id, bytes)| frame.push(*id, bytes));
    session.append(&frame.encode(&mut Compressor::new(3)?)?)?;
    let mut draft = VersionRecord::draft(name.parse()?, score, 1_000);
    draft.disk_length = sectors * 512;
    session.publish(draft)
}

/// The rows of a catalog as text: names, numbers and edit locks.
fn answers(place: &StorePlace) -> Vec<String> {
    let store = Store::open_reader(place).unwrap();
    let catalog = store.catalog().unwrap();
    let mut answers = vec![format!("last edit lock {}", catalog.last_edit_lock().unwrap())];
    answers.extend(catalog.all_versions().unwrap().iter().map(|version| format!("{version:?}")));
    answers.extend(catalog.edit_locks().unwrap().iter().map(|edit_lock| format!("{edit_lock:?}")));
    answers.extend(catalog.last_numbers().unwrap().iter().map(|number| format!("{number:?}")));
    answers
}

/// A store with versions that were published, forgotten and renamed, and edit locks that are held, taken over and released.
fn eventful_store() -> (tempfile::TempDir, StorePlace) {
    let (folder, place, store) = new_store();
    for number in 1..=3 {
        publish(&store, "a", number).unwrap();
    }
    publish(&store, "b", 4).unwrap();
    let (a, b, c) = ("a".parse().unwrap(), "b".parse().unwrap(), "c/d".parse().unwrap());
    store.forget(&a, Some(2)).unwrap();
    store.forget(&a, Some(3)).unwrap();
    store.rename(&b, &c).unwrap();
    let edit_lock = store.take_edit_lock(&c, "root@node1", 5).unwrap();
    store.release_edit_lock(&edit_lock).unwrap();
    store.take_edit_lock(&a, "root@node2", 6).unwrap();
    store.steal_edit_lock(&a, "root@node3", 7).unwrap();
    drop(store);
    (folder, place)
}

/// Copies of a store's catalog and log, to restore them later.
struct SavedFiles {
    place: StorePlace,
    catalog: Vec<u8>,
    log: Vec<u8>,
}

impl SavedFiles {
    fn of(place: &StorePlace) -> Self {
        let read = |path: PathBuf| fs::read(path).unwrap();
        Self { place: place.clone(), catalog: read(place.catalog()), log: read(place.change_log()) }
    }

    fn put(&self, catalog: Option<&[u8]>, log: Option<&[u8]>) {
        for (path, bytes) in [(self.place.catalog(), catalog), (self.place.change_log(), log)] {
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => self.place.remove_if_there(&path).unwrap(),
            }
        }
    }
}

fn names(place: &StorePlace) -> Vec<String> {
    let versions = Store::open_reader(place).unwrap().versions().unwrap();
    versions.iter().map(|version| version.name.to_string()).collect()
}

fn forgotten(place: &StorePlace) -> Vec<String> {
    let forgotten = Store::open_reader(place).unwrap().forgotten().unwrap();
    forgotten.iter().map(|version| version.name.to_string()).collect()
}

#[test]
fn a_rebuild_changes_no_name_number_or_edit_lock() {
    let (_folder, place) = eventful_store();
    let expected = answers(&place);
    assert_eq!(names(&place), ["a@1", "c/d@1"]);
    let kept = SavedFiles::of(&place);
    let (catalog, log) = (&kept.catalog[..], &kept.log[..]);
    for (catalog, log) in [(Some(catalog), Some(log)), (None, Some(log)), (Some(catalog), None)] {
        kept.put(catalog, log);
        for round in 1..=2 {
            let report = rebuild(&place).unwrap();
            // A catalog that is not there cannot confirm where the log ends.
            let is_unconfirmed = round == 1 && catalog.is_none();
            assert_eq!(report.notes.len(), usize::from(is_unconfirmed), "{:?}", report.notes);
            assert_eq!(report.edit_locks_lost, Some(Vec::new()));
            assert_eq!((report.lost.len(), report.reappeared.unwrap_or_default().len()), (0, 0));
            assert_eq!(answers(&place), expected, "round {round}");
            assert_eq!(forgotten(&place), ["a@2", "a@3"], "round {round}");
        }
        let store = Store::open_writer(&place).unwrap();
        let report = store.check(crate::check::CheckOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(report.findings, []);
    }
    // Without both, every version with a record in a pack reappears, and the report says so.
    kept.put(None, None);
    let report = rebuild(&place).unwrap();
    assert_eq!(names(&place), ["a@1", "a@2", "a@3", "b@1"]);
    assert!(report.notes[0].contains("may have reappeared"), "{:?}", report.notes);
    assert_eq!(report.edit_locks_lost, None);
}

#[test]
fn forgotten_versions_are_restored_on_request() {
    let (_folder, place) = eventful_store();
    let store = Store::open_writer(&place).unwrap();
    let refused = |text: &str| {
        let wanted = store.forgotten().unwrap().into_iter().find(|version| version.name.to_string() == text);
        let name = wanted.map_or_else(|| publish(&store, "n", 9).unwrap().name, |version| version.name);
        store.resurrect(&[name]).unwrap_err().kind()
    };
    assert_eq!(refused("a@3"), ErrorKind::Refused, "the image is being edited");
    assert_eq!(refused("a@9"), ErrorKind::Missing, "an existing version was not forgotten");
    let a = "a".parse().unwrap();
    store.release_edit_lock(&store.edit_lock(&a).unwrap().unwrap()).unwrap();
    let wanted = store.forgotten().unwrap()[1].name.clone();
    assert_eq!(store.resurrect(std::slice::from_ref(&wanted)).unwrap(), [wanted]);
    drop(store);
    assert_eq!(names(&place), ["a@1", "a@3", "c/d@1", "n@1"]);
    assert_eq!(forgotten(&place), ["a@2"]);
    rebuild(&place).unwrap();
    assert_eq!(names(&place), ["a@1", "a@3", "c/d@1", "n@1"]);
    let store = Store::open_writer(&place).unwrap();
    assert_eq!(publish(&store, "a", 5).unwrap().name.number, 4, "numbers continue");
    assert_eq!(store.resurrect(&[]).unwrap().len(), 1, "the remaining one");
    assert_eq!(forgotten(&place), Vec::<String>::new());
}

/// A crash truncates the last entry at any byte: the catalog has it, and the next writer appends it again.
#[test]
fn an_incomplete_last_entry_is_written_again() {
    let (_folder, place) = eventful_store();
    let expected = answers(&place);
    let kept = SavedFiles::of(&place);
    let last = last_entry(&kept.log);
    for length in last..=kept.log.len() {
        kept.put(Some(&kept.catalog), Some(&kept.log[..length]));
        if length % 2 == 0 {
            drop(Store::open_writer(&place).unwrap());
            assert_eq!(fs::read(place.change_log()).unwrap(), kept.log, "{length}");
        }
        rebuild(&place).unwrap();
        assert_eq!(answers(&place), expected, "{length}");
    }
    // Garbage after it is not an entry, and the next entry overwrites it.
    kept.put(Some(&kept.catalog), Some(&[&kept.log[..], &kept.log[last..last + 30]].concat()));
    let store = Store::open_writer(&place).unwrap();
    publish(&store, "z", 7).unwrap();
    let contents = contents_of(&fs::read(place.change_log()).unwrap()).unwrap();
    assert!(contents.is_whole() && !contents.has_torn_end);
}

/// The offset of the last entry of a log.
fn last_entry(log: &[u8]) -> usize {
    log.windows(4).rposition(|window| window == *b"\0PLc").unwrap()
}

/// The log is truncated anywhere and the catalog is missing: a rebuild finds the state after one of the changes, plus versions
/// that lack only their commit.
#[test]
fn a_truncated_log_gives_no_wrong_name() {
    let (_folder, place) = eventful_store();
    let kept = SavedFiles::of(&place);
    for length in (0..kept.log.len()).step_by(17) {
        let contents = contents_of(&kept.log[..length]).unwrap();
        assert!(!contents.has_holes || contents.id.is_none(), "{length}");
        kept.put(None, Some(&kept.log[..length]));
        let report = rebuild(&place).unwrap();
        let known = ["a@1", "a@2", "a@3", "b@1", "c/d@1"];
        assert!(names(&place).iter().all(|name| known.contains(&&name[..])), "{length}");
        let is_told = !report.notes.is_empty();
        let ends_between_entries = contents.id.is_some() && !contents.has_torn_end && contents.entries() > 0;
        assert!(is_told || ends_between_entries, "{length}");
    }
}

/// Damages the log at every `step`th byte. With the catalog nothing is lost, and `check` reports the damage. Without it, the
/// rebuild reports what may be wrong.
fn flip_every(step: usize) {
    let (_folder, place) = eventful_store();
    let expected = answers(&place);
    let kept = SavedFiles::of(&place);
    let last = last_entry(&kept.log);
    for at in (0..kept.log.len()).step_by(step) {
        let mut bad = kept.log.clone();
        bad[at] ^= 1 << (at % 8);
        // Never refused as a newer format: the header's checksum is verified before its version.
        let contents = contents_of(&bad).unwrap();
        assert!(!contents.is_whole() || contents.has_torn_end, "{at}");
        assert!(!contents.has_torn_end || at >= last, "{at}: a hole is not an incomplete end");
        kept.put(Some(&kept.catalog), Some(&bad));
        let store = Store::open_reader(&place).unwrap();
        let found = store.check(crate::check::CheckOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(found.findings.len(), 1, "{at}: {:?}", found.findings);
        drop(store);
        rebuild(&place).unwrap();
        assert_eq!(answers(&place), expected, "{at}");
        kept.put(None, Some(&bad));
        let report = rebuild(&place).unwrap();
        // Packs have the record of that byte, or the rebuild reports what may be wrong.
        let is_exact = answers(&place) == expected;
        assert!(is_exact || !report.notes.is_empty(), "{at}");
        let known = ["a@1", "a@2", "a@3", "b@1", "c/d@1"];
        assert!(names(&place).iter().all(|name| known.contains(&&name[..])), "{at}");
        let edit_locks = Store::open_reader(&place).unwrap().edit_locks().unwrap();
        assert!(is_exact || at >= last || edit_locks.is_empty(), "{at}: it is unknown who holds one");
    }
}

#[test]
fn a_flipped_byte_is_reported_and_the_catalog_makes_up_for_it() {
    flip_every(29);
}

/// Part of `make test-full`.
#[test]
#[ignore = "a minute: every byte of a log"]
fn every_flipped_byte_is_reported_and_the_catalog_makes_up_for_it() {
    flip_every(1);
}

/// The catalog is lost and the log is damaged, but packs have the entries before the last session.
#[test]
fn packs_fill_the_holes_of_a_damaged_log() {
    let (_folder, place) = eventful_store();
    publish(&Store::open_writer(&place).unwrap(), "z", 9).unwrap();
    let expected = answers(&place);
    let kept = SavedFiles::of(&place);
    let last = last_entry(&kept.log);
    for at in (40..last).step_by(last / 9) {
        let mut bad = kept.log.clone();
        bad[at] ^= 1;
        kept.put(None, Some(&bad));
        let notes = rebuild(&place).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("nothing confirms"), "{at}: {notes:?}");
        assert_eq!(
            (answers(&place), forgotten(&place)),
            (expected.clone(), vec!["a@2".into(), "a@3".into()])
        );
    }
    // Without the log, names are the same, but edit locks are unknown.
    kept.put(None, None);
    let report = rebuild(&place).unwrap();
    assert!(report.notes[0].contains("names are as of change 12 "), "{:?}", report.notes);
    assert_eq!(names(&place), ["a@1", "c/d@1", "z@1"]);
    assert_eq!(forgotten(&place), ["a@2", "a@3"]);
    assert_eq!(Store::open_reader(&place).unwrap().edit_locks().unwrap(), []);
}

/// Catalog and log are lost: the rebuild names what only they had.
#[test]
fn what_only_catalog_and_log_had_is_named_as_lost() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1).unwrap();
    let lose_both = || {
        for path in [place.catalog(), place.change_log()] {
            fs::remove_file(path).unwrap();
        }
        let report = rebuild(&place).unwrap();
        let note = report.notes.into_iter().find(|note| note.contains("quotas")).unwrap();
        assert!(
            ["clones", "protections", "edit locks", "signatures"].iter().all(|what| note.contains(what)),
            "{note}"
        );
        note
    };
    let protect_and_limit = |store: &Store, image: &str| {
        store.protect(&image.parse().unwrap(), None, true).unwrap();
        store.set_quota(&image.parse().unwrap(), Some(1 << 30)).unwrap();
    };
    protect_and_limit(&store, "a");
    drop(store);
    let note = lose_both();
    assert!(note.contains("(known protections: 0, quotas: 0;"), "{note}");
    // What the next session with a pack found is in that pack.
    let store = Store::open_writer(&place).unwrap();
    protect_and_limit(&store, "a");
    publish(&store, "b", 2).unwrap();
    protect_and_limit(&store, "b");
    drop(store);
    let note = lose_both();
    assert!(note.contains("(known protections: 1, quotas: 1;"), "{note}");
}

/// The catalog is lost and the log was cut at the end of an entry, so it looks complete. Packs have later entries.
#[test]
fn packs_show_that_a_log_was_cut() {
    let (_folder, place) = eventful_store();
    publish(&Store::open_writer(&place).unwrap(), "z", 9).unwrap();
    let kept = SavedFiles::of(&place);
    let contents = contents_of(&kept.log).unwrap();
    let mut cut = kept.log.clone();
    // Up to a copy of all rows, such as the one with which the log begins.
    for _ in 1..contents.entries() {
        cut.truncate(last_entry(&cut));
        kept.put(None, Some(&cut));
        let report = rebuild(&place).unwrap();
        assert_eq!(forgotten(&place), ["a@2", "a@3"], "{} bytes: nothing forgotten reappears", cut.len());
        assert!(!report.notes.is_empty(), "{} bytes", cut.len());
        assert_eq!(names(&place), ["a@1", "c/d@1", "z@1"], "{} bytes", cut.len());
    }
}

/// Text that a user writes into a record is not an entry. Neither is an entry of another log, or one at another offset.
#[test]
fn bytes_from_elsewhere_are_not_entries() {
    let (_folder, place) = eventful_store();
    let log = fs::read(place.change_log()).unwrap();
    let whole = contents_of(&log).unwrap();
    let mut of_another = log.clone();
    of_another[8] ^= 1;
    let sum = twox_hash::XxHash3_64::oneshot(&of_another[..24]).to_le_bytes();
    of_another[24..32].copy_from_slice(&sum);
    assert_eq!(contents_of(&of_another).unwrap().entries(), 0);
    let moved = [&log[..32], &[7; 5], &log[32..]].concat();
    assert_eq!(contents_of(&moved).unwrap().entries(), 0);
    let again = [&log[..], &log[last_entry(&log)..]].concat();
    let contents = contents_of(&again).unwrap();
    assert_eq!((contents.entries(), contents.has_torn_end), (whole.entries(), true));
    let mut newer = log;
    newer[4] = 3;
    let sum = twox_hash::XxHash3_64::oneshot(&newer[..24]).to_le_bytes();
    newer[24..32].copy_from_slice(&sum);
    assert_eq!(contents_of(&newer).unwrap_err().kind(), ErrorKind::Refused);
}

/// An older catalog, an older log and another store's log are detected before anything is written.
#[test]
fn a_catalog_and_log_that_do_not_match_are_refused_and_rebuilt() {
    let (_folder, place) = eventful_store();
    let before = SavedFiles::of(&place);
    let store = Store::open_writer(&place).unwrap();
    let edit_lock = store.edit_lock(&"a".parse().unwrap()).unwrap().unwrap();
    store.release_edit_lock(&edit_lock).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    drop(store);
    let (after, expected) = (SavedFiles::of(&place), answers(&place));
    let (_other_folder, other) = eventful_store();
    let foreign = fs::read(other.change_log()).unwrap();
    for (what, catalog, log) in [
        ("the catalog is older than this log", &before.catalog, &after.log),
        ("ends before", &after.catalog, &before.log),
        ("not the log of this catalog", &after.catalog, &foreign),
    ] {
        before.put(Some(catalog), Some(log));
        let error = Store::open_writer(&place).unwrap_err().with_causes();
        assert!(error.contains(what) && error.contains("platter rebuild"), "{error}");
        assert_eq!(&fs::read(place.change_log()).unwrap(), log, "nothing was written");
        Store::open_reader(&place).unwrap();
        rebuild(&place).unwrap();
        assert_eq!(answers(&place), expected, "{what}");
    }
    before.put(Some(&after.catalog), None);
    let error = Store::open_writer(&place).unwrap_err().with_causes();
    assert!(error.contains("it is missing"), "{error}");
}

/// Nothing but the catalog shows that the last change is damaged. A change that a crash did not write completely is no damage.
#[test]
fn a_check_finds_damage_in_the_last_change() {
    let (_folder, place) = eventful_store();
    let (from, to) = ("c/d".parse().unwrap(), "e".parse().unwrap());
    Store::open_writer(&place).unwrap().rename(&from, &to).unwrap();
    let kept = SavedFiles::of(&place);
    let (log, last) = (&kept.log, last_entry(&kept.log));
    let found = |log: &[u8]| {
        kept.put(None, Some(log));
        kept.put(Some(&kept.catalog), Some(log));
        let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
        report
            .findings
            .into_iter()
            .map(|finding| finding.what)
            .filter(|what| what.contains("last change"))
            .count()
    };
    assert_eq!(found(log), 0);
    for at in (last..log.len()).step_by(29) {
        let mut damaged = log.clone();
        damaged[at] ^= 1;
        assert_eq!(found(&damaged), 1, "byte {at}");
        drop(Store::open_writer(&place).unwrap());
        assert_eq!(&fs::read(place.change_log()).unwrap(), log, "byte {at}: the next writer repairs it");
        assert_eq!(found(&log[..at]), 0, "cut at {at}");
        damaged[at..].fill(0);
        assert_eq!(found(&damaged), 0, "zeros from {at}");
    }
}

/// When both are older copies, only a pack shows that a version is missing.
#[test]
fn a_check_names_a_version_that_older_copies_lack() {
    let (_folder, place) = eventful_store();
    let before = SavedFiles::of(&place);
    publish(&Store::open_writer(&place).unwrap(), "z", 9).unwrap();
    before.put(None, None);
    before.put(Some(&before.catalog), Some(&before.log));
    let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    let is_named = |what: &str| what.contains("z@1") && what.contains("platter rebuild");
    assert!(report.findings.iter().any(|finding| is_named(&finding.what)), "{:?}", report.findings);
    rebuild(&place).unwrap();
    assert_eq!(names(&place), ["a@1", "c/d@1", "z@1"]);
}

/// Each pack has the changes before it. So a pack with a later change than the catalog's last one proves that catalog and log are older
/// copies. Nothing is written or removed then, and a rebuild restores what was changed since.
#[test]
fn older_copies_of_both_are_refused_and_rebuilt_from_packs() {
    let (_folder, place) = eventful_store();
    let (a, z, y) = ("a".parse().unwrap(), "z".parse().unwrap(), "y".parse().unwrap());
    let before = SavedFiles::of(&place);
    let last_lock = {
        let store = Store::open_writer(&place).unwrap();
        publish(&store, "z", 9).unwrap();
        store.rename(&z, &y).unwrap();
        store.release_edit_lock(&store.edit_lock(&a).unwrap().unwrap()).unwrap();
        store.forget(&a, None).unwrap();
        let last = store.take_edit_lock(&y, "root@node4", 8).unwrap();
        store.release_edit_lock(&last).unwrap();
        publish(&store, "x", 10).unwrap();
        last.number
    };
    assert_eq!(names(&place), ["c/d@1", "x@1", "y@1"]);
    before.put(None, None);
    before.put(Some(&before.catalog), Some(&before.log));
    let packs = place.list_packs().unwrap();
    let refusals = [Store::open_writer(&place).map(drop), Store::discard_interrupted(&place).map(drop)];
    for error in refusals.map(|refused| refused.unwrap_err().with_causes()) {
        assert!(error.contains("older than the packs") && error.contains("platter rebuild"), "{error}");
    }
    assert_eq!(place.list_packs().unwrap(), packs, "nothing was removed");
    assert_eq!(fs::read(place.change_log()).unwrap(), before.log, "nothing was written");
    let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    let is_named = |what: &str| what.contains("older than the packs") && what.contains("platter rebuild");
    assert!(report.findings.iter().any(|finding| is_named(&finding.what)), "{:?}", report.findings);
    assert_eq!(report.verdict, Verdict::Damaged);
    rebuild(&place).unwrap();
    assert_eq!(names(&place), ["c/d@1", "x@1", "y@1"]);
    let store = Store::open_writer(&place).unwrap();
    assert!(store.take_edit_lock(&y, "root@node5", 9).unwrap().number > last_lock);
    let report = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{:?}", report.findings);
}

/// What a compaction wrote looks like an interrupted session to an older catalog, but has the only copy.
#[test]
fn what_a_compaction_wrote_is_not_discarded_with_older_copies() {
    let (_folder, place) = eventful_store();
    let before = {
        let store = Store::open_writer(&place).unwrap();
        let version = publish(&store, "m", 11).unwrap();
        let mut clone = VersionRecord::draft("n".parse().unwrap(), version.record.score, 1_000);
        clone.disk_length = version.record.disk_length;
        store.session().unwrap().publish(clone).unwrap();
        store.forget(&"m".parse().unwrap(), None).unwrap();
        drop(store);
        let before = SavedFiles::of(&place);
        let request = CollectRequest {
            now_unix_ms: 1_000_000,
            keep_trash_ms: 0,
            dry_run: false,
            is_confirmed: true,
            compact_percent: 100,
            recompress: None,
            end_leases: false,
        };
        let store = Store::open_writer(&place).unwrap();
        let report = store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
        assert!(report.compacted.packs > 0 && report.deleted.packs > 0, "{report:?}");
        before
    };
    let expected = names(&place);
    before.put(None, None);
    before.put(Some(&before.catalog), Some(&before.log));
    let packs = place.list_packs().unwrap();
    let error = Store::discard_interrupted(&place).unwrap_err().with_causes();
    assert!(error.contains("platter rebuild"), "{error}");
    assert_eq!(place.list_packs().unwrap(), packs);
    rebuild(&place).unwrap();
    assert_eq!(names(&place), expected);
    let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{:?}", report.findings);
    assert!(Store::discard_interrupted(&place).is_ok());
    let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{:?}", report.findings);
}

/// A long log is replaced by a short one with the same contents. A crash leaves either of them.
#[test]
fn a_long_log_is_replaced() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1).unwrap();
    publish(&store, "a", 2).unwrap();
    store.forget(&"a".parse().unwrap(), Some(1)).unwrap();
    let holder = "h".repeat(200);
    let length = || fs::metadata(place.change_log()).unwrap().len();
    let overlay = "o".repeat(4000);
    let mut edit_lock = store.take_edit_lock(&"a".parse().unwrap(), &holder, 1).unwrap();
    while length() < 80 << 10 {
        for change in [&overlay, "x"] {
            edit_lock = store.set_overlay(&edit_lock, change).unwrap();
        }
    }
    drop(store);
    let kept = SavedFiles::of(&place);
    let expected = answers(&place);
    drop(Store::open_writer(&place).unwrap());
    assert!(length() < 20 << 10);
    assert_eq!((answers(&place), forgotten(&place)), (expected.clone(), vec!["a@1".into()]));
    // The new log exists, but the catalog does not name it yet.
    let new = fs::read(place.change_log()).unwrap();
    kept.put(Some(&kept.catalog), Some(&kept.log));
    fs::write(place.new_change_log(), &new[..new.len() / 2]).unwrap();
    drop(Store::open_writer(&place).unwrap());
    assert_eq!((answers(&place), length() < 20 << 10), (expected.clone(), true));
    // The catalog names it, but it is not in place yet.
    let named = SavedFiles::of(&place);
    named.put(Some(&named.catalog), Some(&kept.log));
    fs::write(place.new_change_log(), &named.log).unwrap();
    drop(Store::open_writer(&place).unwrap());
    assert_eq!((answers(&place), fs::read(place.change_log()).unwrap()), (expected, named.log));
}

/// After each change the log describes the catalog's rows.
#[test]
fn log_and_catalog_agree() {
    let (_folder, place) = eventful_store();
    let contents = contents_of(&fs::read(place.change_log()).unwrap()).unwrap();
    let replayed = State::replay(&contents);
    let store = Store::open_writer(&place).unwrap();
    let catalog =
        store.0.writer().unwrap().catalog().change(&Actor::default(), |change| change.state()).unwrap();
    assert_eq!(replayed.differences(&catalog), Vec::<String>::new());
    assert_eq!(replayed.digest(), contents.entries.last().unwrap().after);
    assert_eq!(replayed.names().len(), 5);
}
