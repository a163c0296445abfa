//! Damages a catalog byte by byte and as a whole, and checks that no answer changes unnoticed. Also tests states of packs that
//! only collection sets.

use std::path::Path;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{BlockId, Domain, ErrorKind, FrameStore, Kind, Result, Score};
use platter_vfs::{OpenMode, OsVfs, Vfs};

use super::set_sums::SET_SUMS;
use super::table::{META, PACKS, text};
use super::{Catalog, Change, PackState};
use crate::place::StorePlace;
use crate::session::Session;
use crate::store::Store;
use platter_records::{Action, Actor, BootSetRecord, ImageName, PackChange, Version, VersionRecord};

fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

/// Adds the recipe of a disk of that many sectors, all of them free. Its score depends on the length.
fn free_disk(session: &Session, sectors: u64) -> Result<Score> {
    let cut_policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let disk_length = sectors * 512;
    let root = Root { disk_length, sector_size: 512, cut_policy, domain: Domain::SHARED, top: None };
    let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 10);
    frame.push(root.score().unwrap().0, &root.encode());
    session.append(&frame.encode(&mut Compressor::new(3)?)?)?;
    Ok(root.score().unwrap())
}

fn publish(store: &Store, name: &str, score: u8) -> platter_image::Result<Version> {
    let session = store.session()?;
    let mut draft = VersionRecord::draft(image(name), free_disk(&session, score.into())?, i64::from(score));
    // Long, so that some tables have more than one page.
    draft.notes = format!("{score} ").repeat(100);
    session.publish(draft)
}

fn new_store() -> (tempfile::TempDir, StorePlace, Store) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path());
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    (folder, place, store)
}

fn frame(contents: &[u8]) -> platter_image::frame::EncodedFrame {
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 10);
    frame.push(BlockId::of(Kind::Data, contents), contents);
    frame.encode(&mut Compressor::new(3).unwrap()).unwrap()
}

/// The answers to all queries that the catalog supports.
fn answers(place: &StorePlace) -> platter_image::Result<String> {
    let catalog = Catalog::open_reader(place)?;
    let mut said = format!(
        "{} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        catalog.store()?,
        catalog.packs()?,
        catalog.last_numbers()?,
        catalog.last_edit_lock()?,
        catalog.edit_locks()?,
        catalog.forgotten()?,
        catalog.protected()?,
        catalog.hoard_facts()?,
        catalog.hoard_members()?,
        catalog.hoard_revisions()?,
        catalog.hoard_followed()?,
    );
    for version in catalog.all_versions()? {
        let one = platter_records::NumberChoice::Number(version.name.number);
        said += &format!(
            "{:?} {:?} {:?} {:?}",
            catalog.version(&version.name.image, one)?,
            catalog.history(&version.name.image)?,
            catalog.oldest_of(version.record.score)?,
            catalog.edit_lock(&version.name.image)?,
        );
    }
    said += &format!("{:?}", catalog.newest_versions()?);
    Ok(said)
}

/// A store with rows in every table. Its catalog is closed and complete.
fn small_store() -> (tempfile::TempDir, StorePlace) {
    let (folder, place, store) = new_store();
    let session = store.session().unwrap();
    session.append(&frame(&[7; 512])).unwrap();
    session.keep().unwrap();
    for score in 1..9 {
        publish(&store, ["a", "lab/b"][usize::from(score % 2)], score).unwrap();
    }
    let edit_lock = store.take_edit_lock(&image("a"), "somebody@here", 1).unwrap();
    store.set_overlay(&edit_lock, "a.1.overlay").unwrap();
    store.hoard_follow(&image("a"), Some("{}")).unwrap();
    store.forget(&image("lab/b"), Some(1)).unwrap();
    store.protect(&image("lab/b"), Some(2), true).unwrap();
    let version = store.version(&image("a"), platter_records::NumberChoice::Latest).unwrap();
    let record = BootSetRecord {
        version: version.name.clone(),
        score: version.record.score,
        marker: "port:22".into(),
        command: String::new(),
        accelerator: "kvm".into(),
        time_unix_ms: 5,
        duration_ms: 6,
        requests: 7,
        bytes_read: 8,
        pages: 1,
        blocks: 2,
        bytes: 3,
        tool_version: String::new(),
        boots: 0,
        nodes: Vec::new(),
    };
    let mut catalog = store.0.writer().unwrap().catalog();
    catalog
        .change(&Actor::default(), |change| {
            let revision = change.next_hoard_revision(5)?;
            change.does(Action::RegisterBootSet { version: version.name.clone(), revision });
            change.add_member(&version.name, BlockId([3; 32]), &record, revision)
        })
        .unwrap();
    drop(catalog);
    drop(store);
    (folder, place)
}

fn bytes_of(path: &Path) -> Vec<u8> {
    platter_vfs::read_whole(&OsVfs, path, 1 << 24).unwrap().unwrap()
}

fn flip_every(step: usize) {
    let (_folder, place) = small_store();
    let good = bytes_of(&place.catalog());
    let expected = answers(&place).unwrap();
    let file = OsVfs.open(&place.catalog(), OpenMode::Write).unwrap();
    let mut detected = 0;
    for at in (0..good.len()).step_by(step) {
        for flip in [1 << (at % 8), 0xff] {
            file.write_all_at(&[good[at] ^ flip], at as u64).unwrap();
            match answers(&place) {
                Err(_) => detected += 1,
                Ok(said) => assert!(said == expected, "byte {at} of {}: {flip:#x}", good.len()),
            }
        }
        file.write_all_at(&good[at..=at], at as u64).unwrap();
    }
    assert!(detected > 0);
    assert_eq!(answers(&place).unwrap(), expected);
}

#[test]
fn a_flipped_byte_causes_an_error_or_the_same_answers() {
    flip_every(211);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every byte of the file"]
fn every_flipped_byte_causes_an_error_or_the_same_answers() {
    flip_every(1);
}

/// Changing a row without its checksum, removing a row or adding one is detected at the next opening.
#[test]
fn rows_changed_by_other_programs_are_refused() {
    for sql in [
        "UPDATE images SET last_number = last_number - 1",
        "UPDATE edit_locks SET number = 2",
        "DELETE FROM versions WHERE number = 2",
        "DELETE FROM images",
        "DELETE FROM edit_locks",
        "DELETE FROM seals WHERE name = 'versions'",
        "UPDATE packs SET state = 'dead'",
        "DELETE FROM hoard",
        "DELETE FROM former",
        "DELETE FROM protected",
        "INSERT INTO versions SELECT image, number + 100, score, time_unix_ms, record_id, record, checksum FROM versions",
    ] {
        let (_folder, place) = small_store();
        let other = rusqlite::Connection::open(place.catalog()).unwrap();
        assert!(other.execute(sql, []).unwrap() > 0, "{sql}");
        drop(other);
        for opened in [Store::open_reader(&place), Store::open_writer(&place)] {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{sql}");
            assert!(error.with_causes().contains("platter rebuild"), "{sql}: {error}");
        }
    }
}

/// Rows with correct checksums that contradict each other.
#[test]
fn a_version_above_the_last_number_is_an_error() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1).unwrap();
    publish(&store, "a", 2).unwrap();
    let lower = |change: &mut Change<'_>| {
        change.does(Action::Rebuild {});
        change.put(&super::table::IMAGES, vec![text("a"), 1.into()])
    };
    store.0.writer().unwrap().catalog().change(&Actor::default(), lower).unwrap();
    let error = publish(&store, "a", 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("a@2"), "{error}");
    assert_eq!(store.session().unwrap_err().kind(), ErrorKind::Refused, "no more writes");
    let report = store.check(crate::check::CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.verdict, crate::check::Verdict::Damaged);
    drop(store);
    let error = Store::open_writer(&place).unwrap_err();
    assert!(error.with_causes().contains("a@2"), "{error}");
    crate::rebuild::rebuild(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    assert_eq!(publish(&store, "a", 3).unwrap().name.number, 3);
}

/// A condemned pack can be read, but new data must not refer to it. A dead pack can do neither.
#[test]
fn a_condemned_pack_is_found_and_a_dead_one_only_read() {
    let (_folder, place, store) = new_store();
    let contents = [7; 512];
    let block = BlockId::of(Kind::Data, &contents);
    let session = store.session().unwrap();
    session.append(&frame(&contents)).unwrap();
    session.keep().unwrap();
    drop(store);
    // What finds a block in a condemned pack returns the pack to live; what is dead stays so.
    for (state, is_found) in [(PackState::Condemned, true), (PackState::Dead, false)] {
        let store = Store::open_writer(&place).unwrap();
        let condemn = |change: &mut Change<'_>| {
            let packs = change.state()?.packs();
            assert_eq!(packs.len(), 1);
            change.set_pack_states(&[PackChange { pack: packs[0].id, state, epoch: 7 }])
        };
        store.0.writer().unwrap().catalog().change(&Actor::default(), condemn).unwrap();
        drop(store);
        // A rebuild keeps the state.
        OsVfs.remove(&place.catalog()).unwrap();
        crate::rebuild::rebuild(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        assert!(store.read_block(Kind::Data, &block).is_ok());
        assert_eq!(store.session().unwrap().lookup_and_pin(&block).unwrap().is_some(), is_found);
        let packs = store.catalog().unwrap().packs().unwrap();
        let states: Vec<_> = packs.iter().map(|row| (row.state, row.epoch)).collect();
        assert_eq!(states, [(state, 7)]);
    }
}

/// A rebuild does not replace a catalog that a newer Platter wrote: it may know more than the log.
#[test]
fn rebuild_refuses_the_catalog_of_a_newer_platter() {
    for (version, kind) in [(5, Some(ErrorKind::Refused)), (2, None)] {
        let (_folder, place) = small_store();
        OsVfs.remove(&place.change_log()).unwrap();
        let other = rusqlite::Connection::open(place.catalog()).unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let before = bytes_of(&place.catalog());
        let rebuilt = crate::rebuild::rebuild(&place);
        assert_eq!(rebuilt.as_ref().err().map(platter_image::Error::kind), kind);
        if let Err(error) = rebuilt {
            let told = error.with_causes();
            assert!(told.contains("has format 5") && told.contains("move the catalog away"), "{told}");
            assert_eq!(bytes_of(&place.catalog()), before);
            assert!(!place.unfinished().catalog().exists());
        }
    }
}

/// A collector with a bug: what it does to the catalog.
type Bug = fn(&mut Change<'_>) -> Result<()>;

/// Loses the row of a pack.
fn lose_a_pack(change: &mut Change<'_>) -> Result<()> {
    let pack = change.state()?.packs()[0];
    change.does(Action::PackStates { packs: Vec::new() });
    change.remove(&PACKS, &[text(pack.id)])
}

/// Lists a pack that nobody added.
fn list_another_pack(change: &mut Change<'_>) -> Result<()> {
    change.does(Action::PackStates { packs: Vec::new() });
    let values = [text("0123456789abcdef0123456789abcdef"), text("live")].into_iter();
    change.put(&PACKS, values.chain([0, 9000, 1, 1].map(Into::into)).collect())
}

/// Lists a pack with another length.
fn change_a_length(change: &mut Change<'_>) -> Result<()> {
    let pack = change.state()?.packs()[0];
    change.does(Action::PackStates { packs: Vec::new() });
    let values = [text(pack.id), text(pack.state.as_str())].into_iter();
    change.put(&PACKS, values.chain([0, 9000, 1, 1].map(Into::into)).collect())
}

/// What would lose packs, or list others, is not committed.
#[test]
fn a_change_that_loses_or_invents_a_pack_is_not_committed() {
    let (_folder, _place, store) = new_store();
    publish(&store, "a", 1).unwrap();
    let before = store.catalog().unwrap().packs().unwrap();
    for bug in [lose_a_pack as Bug, list_another_pack, change_a_length] {
        let mut catalog = store.0.writer().unwrap().catalog();
        let changed = catalog.change(&Actor::default(), bug);
        assert_eq!(changed.unwrap_err().kind(), ErrorKind::Bug);
        assert_eq!(catalog.packs().unwrap(), before);
    }
    publish(&store, "a", 2).unwrap();
}

/// Commits what a bug does, without the audit at the commit.
fn commit_bug(store: &Store, bug: Bug) {
    let mut catalog = store.0.writer().unwrap().catalog();
    let changed = catalog.change(&Actor::default(), |change| {
        bug(change)?;
        change.set_sums = None;
        Ok(())
    });
    changed.unwrap();
}

/// A collection that gives up all it can, and keeps no trash.
fn collect_all() -> crate::CollectRequest {
    let (dry_run, is_confirmed) = (false, true);
    crate::CollectRequest {
        now_unix_ms: 1,
        keep_trash_ms: 0,
        dry_run,
        is_confirmed,
        compact_percent: 50,
        recompress: None,
        end_leases: false,
    }
}

fn damages(store: &Store) -> Vec<String> {
    let report = store.check(crate::CheckOptions::default(), &mut |_| {}).unwrap();
    let damages = report.findings.into_iter().filter(|finding| finding.severity == crate::Severity::Damage);
    damages.map(|finding| finding.what).filter(|what| what.contains("set sums")).collect()
}

/// A check finds a lost or invented pack, a collection deletes nothing then, and a rebuild lists all packs again.
#[test]
fn a_lost_or_invented_pack_is_found_before_anything_is_collected() {
    let request = collect_all();
    for bug in [lose_a_pack as Bug, list_another_pack, change_a_length] {
        let (_folder, place, store) = new_store();
        let kept = publish(&store, "a", 1).unwrap().record.score;
        let session = store.session().unwrap();
        session.append(&frame(&[3; 512])).unwrap();
        session.keep().unwrap();
        assert_eq!(damages(&store), [""; 0]);
        commit_bug(&store, bug);
        assert_eq!(damages(&store).len(), 1, "{:?}", damages(&store));
        let files = place.list_packs().unwrap();
        let collected = store.collect(&request, &|| Ok(Vec::new()), &mut |_| {});
        assert!(collected.is_err());
        assert_eq!(place.list_packs().unwrap(), files);
        drop(store);
        crate::rebuild::rebuild(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        assert_eq!(damages(&store), [""; 0]);
        assert_eq!(store.catalog().unwrap().packs().unwrap().len(), files.len());
        assert!(store.read_block(Kind::Page, &kept.0).is_ok());
        store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
        assert_eq!(damages(&store), [""; 0]);
    }
}

/// A catalog without sums gets them with its first change of packs. Collections and rebuilds keep them right.
#[test]
fn set_sums_follow_every_change_of_packs() {
    let (_folder, place, store) = new_store();
    publish(&store, "a", 1).unwrap();
    let sums = |store: &Store| super::query::meta(&store.catalog().unwrap().connection, SET_SUMS).unwrap();
    let without = |change: &mut Change<'_>| {
        change.does(Action::PackStates { packs: Vec::new() });
        change.remove(&META, &[text(SET_SUMS)])
    };
    store.0.writer().unwrap().catalog().change(&Actor::default(), without).unwrap();
    assert_eq!((sums(&store), damages(&store)), (None, Vec::new()));
    let request = collect_all();
    for number in 2..5 {
        publish(&store, "a", number).unwrap();
        let session = store.session().unwrap();
        session.append(&frame(&[number; 512])).unwrap();
        session.keep().unwrap();
        let report = store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
        assert!(report.given_up.packs > 0, "{report:?}");
        assert_eq!(damages(&store), [""; 0]);
    }
    let before = sums(&store).unwrap();
    assert_ne!(before[..64], before[65..129], "something was collected");
    drop(store);
    OsVfs.remove(&place.catalog()).unwrap();
    crate::rebuild::rebuild(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    assert_eq!((sums(&store), damages(&store)), (Some(before), Vec::new()));
}
