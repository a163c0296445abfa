//! Tests edit locks in a store on real files: one holder at a time, numbers that are never reused, and fenced publishing in any
//! order of events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "damages the store's files directly")]

use std::collections::BTreeSet;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{BlockId, Domain, ErrorKind, FrameStore, Kind, Result, Score};
use platter_records::{EditLock, ImageName, NumberChoice, Version, VersionRecord};
use platter_store::{CheckOptions, Session, Store, StorePlace, rebuild};

const TIME: i64 = 1_700_000_000_000;

/// The recipe's root of a disk of that many sectors, all of them free. Its score depends on the length.
fn free_disk_root(sectors: u64) -> Root {
    let cut_policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let disk_length = sectors * 512;
    Root { disk_length, sector_size: 512, cut_policy, domain: Domain::SHARED, top: None }
}

/// Adds that recipe to the session.
fn free_disk(session: &Session, sectors: u64) -> Result<Score> {
    let root = free_disk_root(sectors);
    let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 10);
    frame.push(root.score().unwrap().0, &root.encode());
    session.append(&frame.encode(&mut Compressor::new(3)?)?)?;
    Ok(root.score().unwrap())
}

/// A draft for the disk of that many sectors, whose recipe is added to the session.
fn draft(session: &Session, disk: u8, edit_lock: Option<u64>) -> VersionRecord {
    let score = free_disk(session, disk.into()).unwrap();
    VersionRecord { edit_lock, ..VersionRecord::draft(image(), score, TIME) }
}

fn image() -> ImageName {
    "lab/debian12".parse().unwrap()
}

fn publish(store: &Store, disk: u8, edit_lock: Option<u64>) -> Result<Version> {
    let session = store.session()?;
    let contents = [disk; 512];
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 10);
    frame.push(BlockId::of(Kind::Data, &contents), &contents);
    session.append(&frame.encode(&mut Compressor::new(3)?)?)?;
    let draft = draft(&session, disk, edit_lock);
    session.publish(draft)
}

/// A store with version 1 of the image.
fn new_store() -> (tempfile::TempDir, StorePlace) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path());
    Store::init(&place).unwrap();
    publish(&Store::open_writer(&place).unwrap(), 1, None).unwrap();
    (folder, place)
}

fn refused<T: std::fmt::Debug>(result: Result<T>, word: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

#[test]
fn only_one_holder_at_a_time_and_numbers_increase() {
    let (_folder, place) = new_store();
    let image = image();
    let open = || Store::open_reader(&place).unwrap();
    assert_eq!(open().edit_lock(&image).unwrap(), None);
    let first = open().take_edit_lock(&image, "root@a", TIME).unwrap();
    assert_eq!((first.number, first.holder.as_str(), first.time_unix_ms), (TIME as u64, "root@a", TIME));
    for holder in ["root@a", "root@b"] {
        refused(open().take_edit_lock(&image, holder, TIME), "held by root@a since 2023-11-14 22:13:20 UTC");
    }
    let first = open().set_overlay(&first, "lab-debian12.1.overlay").unwrap();
    assert_eq!(
        open().edit_locks().unwrap(),
        std::slice::from_ref(&first),
        "still there after reopening, with the overlay"
    );
    let second = open().steal_edit_lock(&image, "root@b", TIME + 1).unwrap();
    assert_eq!((second.number, second.overlay.as_str()), (first.number + 1, ""));
    refused(open().release_edit_lock(&first), "held by root@b");
    refused(open().set_overlay(&first, "x"), "held by root@b");
    open().release_edit_lock(&second).unwrap();
    refused(open().release_edit_lock(&second), "released");
    assert_eq!(open().edit_locks().unwrap(), []);
    let third = open().take_edit_lock(&image, "root@a", TIME).unwrap();
    assert_eq!(third.number, second.number + 1, "no number is reused");
    let missing = open().take_edit_lock(&"lab/none".parse().unwrap(), "root@a", TIME).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing);
    for holder in ["", "two\nlines", &"x".repeat(256)] {
        refused(open().steal_edit_lock(&image, holder, TIME), "holder");
    }
    let report = open().check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(!report.findings.iter().any(|finding| finding.what.starts_with("catalog")), "{report:?}");
}

#[test]
fn publishing_needs_the_token_that_is_held() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let edit_lock = store.take_edit_lock(&image(), "root@a", TIME).unwrap();
    refused(publish(&store, 2, None), &format!("being edited (lock {}, held by root@a", edit_lock.number));
    refused(store.check_edit_lock(&image(), None), "being edited");
    let version = publish(&store, 2, Some(edit_lock.number)).unwrap();
    assert_eq!((version.name.number, version.record.edit_lock), (2, Some(edit_lock.number)));
    let session = store.session().unwrap();
    let other = VersionRecord { image: "other".parse().unwrap(), ..draft(&session, 3, None) };
    session.publish(other).unwrap();
    store.release_edit_lock(&edit_lock).unwrap();
    refused(publish(&store, 4, Some(edit_lock.number)), "released");
    assert_eq!(publish(&store, 5, None).unwrap().record.edit_lock, None);
}

/// A refusal is not a failed write: the frames are kept, and the store stays usable.
#[test]
fn a_refused_publish_keeps_its_frames() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let edit_lock = store.take_edit_lock(&image(), "root@a", TIME).unwrap();
    let (session, bytes) = (store.session().unwrap(), vec![5; 512]);
    let block = BlockId::of(Kind::Data, &bytes);
    append(&session, block, &bytes);
    let draft = draft(&session, 2, None);
    refused(session.publish(draft), "being edited");
    assert_eq!(store.read_block(Kind::Data, &block).unwrap(), bytes);
    drop(store);
    let store = Store::open_writer(&place).unwrap();
    assert_eq!(store.salvaged().unwrap().packs, 0, "they were committed");
    assert_eq!(store.read_block(Kind::Data, &block).unwrap(), bytes);
    assert_eq!(store.history(&image()).unwrap().len(), 1);
    publish(&store, 3, Some(edit_lock.number)).unwrap();
}

fn append(session: &Session, block: BlockId, bytes: &[u8]) {
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 10);
    frame.push(block, bytes);
    session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
}

/// A and B act as two processes: both read the store, and each opens it for writing only to publish. A seed mixes their
/// steps, as if A were suspended at any moment and resumed later.
#[test]
fn a_suspended_holder_cannot_publish() {
    let mut overtaken = 0;
    for seed in 0..20_u64 {
        let (_folder, place) = new_store();
        let readers = [Store::open_reader(&place).unwrap(), Store::open_reader(&place).unwrap()];
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut edit_locks: [Vec<EditLock>; 2] = [vec![], vec![]];
        let (mut holds, mut disk, mut numbers) = (None, 1, BTreeSet::new());
        for _ in 0..12 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let who = (dice >> 40) as usize % 2;
            match (dice >> 33) % 3 {
                0 => {
                    let holder = ["a", "b"][who];
                    let taken = readers[who].take_edit_lock(&image(), holder, TIME);
                    assert_eq!(taken.is_ok(), holds.is_none(), "seed {seed}: {taken:?}");
                    let edit_lock = taken.unwrap_or_else(|error| {
                        assert_eq!(error.kind(), ErrorKind::Refused, "seed {seed}: {error:?}");
                        readers[who].steal_edit_lock(&image(), holder, TIME).unwrap()
                    });
                    assert!(numbers.iter().all(|number| *number < edit_lock.number), "seed {seed}");
                    numbers.insert(edit_lock.number);
                    holds = Some(edit_lock.number);
                    edit_locks[who].push(edit_lock);
                }
                step => {
                    // All edit locks that this process ever held: only the last may be valid.
                    for edit_lock in edit_locks[who].clone() {
                        let is_good = holds == Some(edit_lock.number);
                        if step == 1 {
                            let writer = Store::open_writer(&place).unwrap();
                            disk += 1;
                            let published = publish(&writer, disk, Some(edit_lock.number));
                            assert_eq!(published.is_ok(), is_good, "seed {seed}: {published:?}");
                            let newest = writer.version(&image(), NumberChoice::Latest).unwrap();
                            let is_newest =
                                newest.record.score == free_disk_root(disk.into()).score().unwrap();
                            assert_eq!(is_newest, is_good, "seed {seed}");
                            overtaken += u32::from(!is_good);
                        } else {
                            assert_eq!(
                                readers[who].release_edit_lock(&edit_lock).is_ok(),
                                is_good,
                                "seed {seed}"
                            );
                            holds = holds.filter(|_| !is_good);
                        }
                    }
                }
            }
        }
    }
    assert!(overtaken > 20, "only {overtaken} late attempts to publish");
}

/// The session was open, its frames written, and the edit lock checked before. Only the check at the commit counts.
#[test]
fn a_token_stolen_in_the_middle_of_a_session_fences_it() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let edit_lock = store.take_edit_lock(&image(), "a", TIME).unwrap();
    let session = store.session().unwrap();
    append(&session, BlockId::of(Kind::Data, &[5; 512]), &[5; 512]);
    store.check_edit_lock(&image(), Some(edit_lock.number)).unwrap();
    let stolen = store.steal_edit_lock(&image(), "b", TIME).unwrap();
    let theirs = publish(&store, 2, Some(stolen.number)).unwrap();
    let draft = draft(&session, 3, Some(edit_lock.number));
    let word = format!("under another lock than {} (lock {}, held by b", edit_lock.number, stolen.number);
    refused(session.publish(draft), &word);
    assert_eq!(store.version(&image(), NumberChoice::Latest).unwrap(), theirs);
}

/// Checking the edit lock and publishing are one step: whatever others do in between, no version follows one that was published
/// under a later edit lock.
#[test]
fn no_version_follows_one_of_a_later_edit_lock() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let published: usize = std::thread::scope(|scope| {
        let editors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let edit_locks =
                        (0..15).map(|_| store.steal_edit_lock(&image(), "somebody", TIME).unwrap());
                    edit_locks.filter(|edit_lock| publish(&store, 2, Some(edit_lock.number)).is_ok()).count()
                })
            })
            .collect();
        editors.into_iter().map(|editor| editor.join().unwrap()).sum()
    });
    let history = store.history(&image()).unwrap();
    assert_eq!(history.len(), 1 + published);
    let edit_locks: Vec<Option<u64>> = history.iter().rev().map(|version| version.record.edit_lock).collect();
    assert!(edit_locks.is_sorted(), "{edit_locks:?}");
}

#[test]
fn only_one_of_many_concurrent_takers_gets_a_edit_lock() {
    let (_folder, place) = new_store();
    let taken: Vec<EditLock> = std::thread::scope(|scope| {
        let place = &place;
        let takers: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn(move || {
                    let store = Store::open_reader(place).unwrap();
                    store.take_edit_lock(&image(), &format!("taker {n}"), TIME)
                })
            })
            .collect();
        takers.into_iter().filter_map(|taker| taker.join().unwrap().ok()).collect()
    });
    assert_eq!(taken.len(), 1);
    assert_eq!(Store::open_reader(&place).unwrap().edit_locks().unwrap(), taken);
}

/// Taking an edit lock waits for a writer, which is usually done soon. A writer that opens the store waits for a change of an edit lock.
#[test]
fn a_token_waits_for_the_writer() {
    let (_folder, place) = new_store();
    let reader = Store::open_reader(&place).unwrap();
    let writer = Store::open_writer(&place).unwrap();
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| reader.take_edit_lock(&image(), "a", TIME));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(writer.edit_locks().unwrap(), []);
        drop(writer);
        assert_eq!(taking.join().unwrap().unwrap().holder, "a");
    });
}

/// A rebuild keeps edit locks as long as either the catalog or its change log is complete. If both are lost, it reports
/// that, and numbers continue well past those in records.
#[test]
fn rebuild_keeps_tokens_and_never_reuses_a_number() {
    for damage in ["none", "gone", "garbage", "all gone", "all garbage"] {
        let (_folder, place) = new_store();
        let published = {
            let store = Store::open_writer(&place).unwrap();
            let edit_lock = store.steal_edit_lock(&image(), "a", TIME).unwrap();
            publish(&store, 2, Some(edit_lock.number)).unwrap().record.edit_lock.unwrap()
        };
        let last = Store::open_reader(&place).unwrap().steal_edit_lock(&image(), "b", TIME).unwrap();
        assert!(last.number > published);
        let is_all = damage.starts_with("all");
        for file in ["catalog.sqlite", "changes.log"].into_iter().take(1 + usize::from(is_all)) {
            let file = place.dir().join(file);
            match damage.trim_start_matches("all ") {
                "gone" => std::fs::remove_file(&file).unwrap(),
                "garbage" => std::fs::write(&file, [0x55; 9000]).unwrap(),
                _ => {}
            }
        }
        let report = rebuild(&place).unwrap();
        assert_eq!(report.edit_locks_lost, (!is_all).then(Vec::new), "{damage}");
        let store = Store::open_writer(&place).unwrap();
        if is_all {
            assert_eq!(store.edit_locks().unwrap(), [], "{damage}");
            refused(publish(&store, 3, Some(last.number)), "lost in a rebuild");
        } else {
            assert_eq!(store.edit_locks().unwrap(), std::slice::from_ref(&last), "{damage}");
            publish(&store, 3, Some(last.number)).unwrap();
        }
        let next = store.steal_edit_lock(&image(), "c", TIME).unwrap();
        assert!(next.number > last.number, "{damage}: {} after {}", next.number, last.number);
        refused(publish(&store, 3, Some(last.number)), "held by c");
        publish(&store, 3, Some(next.number)).unwrap();
    }
}
