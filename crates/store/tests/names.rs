//! Tests forgetting and renaming in a store on real files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "accesses the store's files directly")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{Domain, ErrorKind, FrameStore, Kind, Result, Score};
use platter_records::{ImageName, Imported, NumberChoice, Signature, Version, VersionName, VersionRecord};
use platter_store::{CollectRequest, Session, Store, StorePlace, Verdict, rebuild};

fn name(image: &str) -> ImageName {
    image.parse().unwrap()
}

fn new_store() -> (tempfile::TempDir, StorePlace, Store) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path());
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    (folder, place, store)
}

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

fn publish(store: &Store, image: &str, score: u8) -> Version {
    let session = store.session().unwrap();
    let score_of = free_disk(&session, score.into()).unwrap();
    let draft = VersionRecord::draft(name(image), score_of, i64::from(score));
    session.publish(VersionRecord { disk_length: u64::from(score) * 512, ..draft }).unwrap()
}

fn names(store: &Store) -> Vec<String> {
    store.versions().unwrap().iter().map(|version| version.name.to_string()).collect()
}

/// An old `store.json` has no checksum: packs and catalog overrule it.
#[test]
fn a_changed_store_id_costs_nothing() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1);
    let id = store.id();
    drop(store);
    let file = place.dir().join("store.json");
    let text = fs::read_to_string(&file).unwrap();
    let text = format!("{}}}\n", text.split_once(",\"checksum\"").unwrap().0);
    let digit = if id.to_string().starts_with('a') { 'b' } else { 'a' };
    fs::write(&file, text.replace(&id.to_string(), &format!("{digit}{}", &id.to_string()[1..]))).unwrap();
    assert_eq!(Store::open_reader(&place).unwrap_err().kind(), ErrorKind::Corrupt);
    let report = rebuild(&place).unwrap();
    assert!(report.packs == 1 && report.notes.iter().any(|note| note.contains("store.json")), "{report:?}");
    let store = Store::open_reader(&place).unwrap();
    assert_eq!((store.id(), names(&store)), (id, vec!["a@1".into()]));
}

/// SQLite reports a file that ends within a page as a failed read.
#[test]
fn a_catalog_cut_within_a_page_is_rebuilt() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1);
    drop(store);
    let file = place.dir().join("catalog.sqlite");
    let whole = fs::read(&file).unwrap();
    for cut in (1..whole.len()).step_by(1021) {
        fs::write(&file, &whole[..cut]).unwrap();
        rebuild(&place).unwrap();
        assert_eq!(names(&Store::open_reader(&place).unwrap()), ["a@1"], "{cut}");
    }
}

fn refusal<T>(result: platter_image::Result<T>) -> String {
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.to_string()
}

#[test]
fn a_number_is_never_reused() {
    let (_folder, place, store) = new_store();
    for score in 1..4 {
        publish(&store, "a", score);
    }
    let reader = Store::open_reader(&place).unwrap();
    let generation = reader.generation().unwrap();
    let forgotten = store.forget(&name("a"), Some(3)).unwrap();
    assert_eq!(forgotten[0].to_string(), "a@3");
    assert_ne!(reader.generation().unwrap(), generation);
    assert_eq!(names(&reader), ["a@1", "a@2"]);
    let next = publish(&store, "a", 4);
    assert_eq!((next.name.number, next.record.parent.unwrap().number), (4, 2));
    assert_eq!(store.forget(&name("a"), None).unwrap().len(), 3);
    assert_eq!(store.images().unwrap(), []);
    for missing in [store.forget(&name("a"), None), store.forget(&name("b"), Some(1))] {
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::Missing);
    }
    assert_eq!(store.take_edit_lock(&name("a"), "x", 1).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(publish(&store, "a", 5).name.number, 5);
}

/// A process that opened the store for reading takes the lock for the change.
#[test]
fn a_reader_can_forget_unless_the_image_is_edited() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1);
    publish(&store, "a/b", 2);
    drop(store);
    let reader = Store::open_reader(&place).unwrap();
    let edit_lock = reader.take_edit_lock(&name("a"), "somebody@here", 1).unwrap();
    assert!(refusal(reader.forget(&name("a"), None)).contains("somebody@here"));
    reader.release_edit_lock(&edit_lock).unwrap();
    reader.forget(&name("a"), None).unwrap();
    assert_eq!(names(&reader), ["a/b@1"], "a/b is another image");
}

#[test]
fn renaming_moves_an_image_and_those_below_it() {
    let (_folder, _place, store) = new_store();
    for (image, score) in [("lab", 1), ("lab/a", 2), ("lab/a", 3), ("lab.x", 4), ("lab0", 5), ("lab-x", 6)] {
        publish(&store, image, score);
    }
    let before = store.version(&name("lab/a"), NumberChoice::Latest).unwrap().record;
    let renamed = store.rename(&name("lab"), &name("attic/of/lab")).unwrap();
    assert_eq!(renamed.len(), 3);
    assert_eq!(
        (renamed[2].from.to_string(), renamed[2].to.to_string()),
        ("lab/a@2".into(), "attic/of/lab/a@2".into())
    );
    assert_eq!(
        names(&store),
        ["attic/of/lab@1", "attic/of/lab/a@1", "attic/of/lab/a@2", "lab-x@1", "lab.x@1", "lab0@1"]
    );
    let after = store.version(&name("attic/of/lab/a"), NumberChoice::Latest).unwrap().record;
    let first = Some(renamed[2].from.clone());
    assert_eq!(after, VersionRecord { image: name("attic/of/lab/a"), renamed_from: first, ..before });
    assert_eq!(publish(&store, "lab/a", 7).name.number, 3, "numbers continue");
    assert_eq!(publish(&store, "attic/of/lab/a", 8).name.number, 3);
}

#[test]
fn a_refused_rename_changes_nothing() {
    let (_folder, _place, store) = new_store();
    for image in ["a", "b", "lab/x", "deep/1/2/3/4/5/6/7"] {
        publish(&store, image, 1);
    }
    store.take_edit_lock(&name("lab/x"), "somebody@here", 1).unwrap();
    let before = names(&store);
    for (from, to, why) in [
        ("a", "b", "already"),
        ("a", "a", "the same"),
        ("lab", "lab/y", "below"),
        ("lab", "c", "somebody@here"),
        ("deep", "deeper/than/that", "more than 8"),
    ] {
        let error = refusal(store.rename(&name(from), &name(to)));
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(store.rename(&name("la"), &name("c")).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(names(&store), before);
    store.rename(&name("a"), &name("c")).unwrap();
}

/// The log is newer than the catalog: what it says was forgotten or renamed is not lost.
#[test]
fn a_rebuild_with_an_older_catalog_calls_nothing_lost_that_was_forgotten_or_renamed() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1);
    publish(&store, "b", 2);
    drop(store);
    let catalog = place.dir().join("catalog.sqlite");
    let older = fs::read(&catalog).unwrap();
    let store = Store::open_writer(&place).unwrap();
    store.rename(&name("a"), &name("c")).unwrap();
    store.forget(&name("b"), None).unwrap();
    drop(store);
    fs::write(&catalog, older).unwrap();
    for end in ["wal", "shm"] {
        let _ = fs::remove_file(place.dir().join(format!("catalog.sqlite-{end}")));
    }
    let report = rebuild(&place).unwrap();
    let found: Vec<String> = report.versions.iter().map(ToString::to_string).collect();
    assert_eq!((found, &report.lost), (vec!["c@1".to_owned()], &Vec::new()), "{report:?}");
    assert_eq!(report.reappeared, Some(vec![VersionName { image: name("c"), number: 1 }]));
}

/// An image can return to its first name, and no number is ever used for two disks.
#[test]
fn names_can_be_reused_but_numbers_cannot() {
    let (_folder, place, store) = new_store();
    let first = publish(&store, "a", 1);
    publish(&store, "a", 2);
    publish(&store, "b", 3);
    store.rename(&name("a"), &name("c")).unwrap();
    store.rename(&name("c"), &name("d")).unwrap();
    assert!(
        refusal(store.rename(&name("b"), &name("a")))
            .contains("the number of a@1 was used by another version")
    );
    store.rename(&name("d"), &name("a")).unwrap();
    assert_eq!(store.version(&name("a"), NumberChoice::Number(1)).unwrap(), first);
    store.rename(&name("a"), &name("c")).unwrap();
    store.forget(&name("c"), Some(2)).unwrap();
    store.rename(&name("c"), &name("e")).unwrap();
    assert_eq!(publish(&store, "e", 4).name.number, 3, "2 was used and forgotten under another name");
    drop(store);
    let report = rebuild(&place).unwrap();
    assert_eq!((report.lost.len(), report.notes.len()), (0, 0), "{report:?}");
    assert_eq!(report.reappeared, Some(Vec::new()));
    // If only packs are left, names are as of the last session.
    for file in ["catalog.sqlite", "changes.log"] {
        fs::remove_file(place.dir().join(file)).unwrap();
    }
    let found = rebuild(&place).unwrap();
    assert_eq!((found.lost.len(), found.notes.len()), (0, 1), "{found:?}");
    let back: Vec<String> = found.versions.iter().map(ToString::to_string).collect();
    assert_eq!(back, ["b@1", "e@1", "e@3"]);
    let store = Store::open_writer(&place).unwrap();
    let newest = store.version(&name("e"), NumberChoice::Latest).unwrap();
    assert_eq!(newest.record.score, free_disk_root(4).score().unwrap());
}

/// The new catalog knows all numbers that the old one knew.
/// A signature is added under the new name. The version keeps it, may have its old name back, and its record stays in the pack.
#[test]
fn a_renamed_and_signed_version_returns_to_its_name() {
    let (_folder, place, store) = new_store();
    let first = publish(&store, "a", 1);
    store.rename(&name("a"), &name("b")).unwrap();
    let signature = Signature { store: store.id(), text: "signed".into() };
    let renamed = VersionName { image: name("b"), number: 1 };
    let signed = store.sign(&renamed, &signature).unwrap();
    assert_eq!((signed.record_id, &signed.record.signatures[..]), (first.record_id, &[signature][..]));
    store.rename(&name("b"), &name("a")).unwrap();
    assert_eq!(names(&store), ["a@1"]);
    let report = store.collect(&collect_all(), &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    assert!(report.failed.is_empty());
    let record = store.read_block(Kind::Version, &first.record_id).unwrap();
    assert_eq!(VersionRecord::decode(&record).unwrap(), first.record);
    let checked = store.check(Default::default(), &mut |_| {}).unwrap();
    assert_eq!(checked.verdict, Verdict::Clean, "{:?}", checked.findings);
    // A version that was forgotten with a signature comes back from another store without it.
    store.forget(&name("a"), Some(1)).unwrap();
    drop(store);
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    free_disk(&session, 1).unwrap();
    assert_eq!(session.import(&first.record, true).unwrap(), Imported::Added);
    assert_eq!((names(&store), store.forgotten().unwrap()), (vec!["a@1".into()], vec![]));
    // Sums of sizes from other stores must not overflow.
    let session = store.session().unwrap();
    free_disk(&session, 1).unwrap();
    let impossible = VersionRecord { image: name("b"), new_stored_bytes: u64::MAX, ..first.record };
    assert!(refusal(session.import(&impossible, false)).contains("size"));
}

fn collect_all() -> CollectRequest {
    CollectRequest {
        now_unix_ms: 1_000_000,
        keep_trash_ms: 0,
        dry_run: false,
        is_confirmed: true,
        compact_percent: 100,
        recompress: None,
        end_leases: false,
    }
}

#[test]
fn numbers_continue_after_a_rebuild() {
    let (_folder, place, store) = new_store();
    let packs = || -> BTreeSet<PathBuf> {
        let folders = fs::read_dir(place.dir().join("packs")).unwrap();
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    };
    publish(&store, "a", 1);
    publish(&store, "a", 2);
    let before = packs();
    publish(&store, "a", 3);
    let third: Vec<PathBuf> = packs().difference(&before).cloned().collect();
    store.forget(&name("a"), Some(3)).unwrap();
    drop(store);
    // Simulates that the record was collected.
    assert_eq!(third.len(), 1);
    fs::remove_file(&third[0]).unwrap();
    rebuild(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    assert_eq!(names(&store), ["a@1", "a@2"]);
    assert_eq!(publish(&store, "a", 4).name.number, 4);
}
