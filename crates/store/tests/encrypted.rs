//! Encrypted stores, and what protects plain ones in the same way: every byte of every pack is changed in turn. Nothing wrong is
//! served, and a check that reads the data reports each change.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "changes files of the store directly")]

use std::fs;
use std::path::{Path, PathBuf};

use platter_encryption::{Cost, KeyFile, MasterKey, Secret, SecretKind};
use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, Recipe, RecipeBuilder};
use platter_image::{BlockId, ErrorKind, Extent, FrameStore, Kind, Score};
use platter_records::VersionRecord;
use platter_store::{CheckOptions, Store, StorePlace, Verdict, rebuild};
use zeroize::Zeroizing;

const BLOCKS: u64 = 2;
const LENGTH: u64 = 512;
const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

fn contents(number: u64) -> Vec<u8> {
    (0..LENGTH).map(|at| b"marker of a block"[(at * (number + 1) % 17) as usize]).collect()
}

/// An encrypted store, or a plain one.
fn store(dir: &Path, is_encrypted: bool) -> StorePlace {
    let place = StorePlace::on_system(dir);
    if is_encrypted {
        let master = MasterKey::random().unwrap();
        let mut keys = KeyFile::new(&master);
        let secret = Secret::new(SecretKind::Passphrase, Zeroizing::new(b"secret".to_vec())).unwrap();
        keys.add(&master, "", &secret, CHEAP).unwrap();
        Store::init_encrypted(&place, &keys).unwrap();
        keys.unlock(&secret).unwrap().0.use_in_process().unwrap();
    } else {
        Store::init(&place).unwrap();
    }
    place
}

/// Publishes a disk of a few blocks, and returns its score.
fn publish(place: &StorePlace) -> Score {
    let store = Store::open_writer(place).unwrap();
    let (session, domain) = (store.session().unwrap(), store.domain());
    let mut compressor = Compressor::new(3).unwrap();
    let mut frame = FrameBuilder::new(Kind::Data, domain, 1 << 17);
    let mut recipe = RecipeBuilder::new(
        BLOCKS * LENGTH,
        512,
        CutPolicy::FILE_ALIGNED_64K_GRID_32K,
        domain,
        Vec::<(BlockId, Vec<u8>)>::new(),
    );
    for number in 0..BLOCKS {
        let block = domain.id_of(Kind::Data, &contents(number)).unwrap();
        frame.push(block, &contents(number));
        let extent = Extent::new(number * LENGTH, LENGTH);
        recipe.push(Entry { extent, state: State::Data { block, offset: 0 } }).unwrap();
    }
    session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
    let (score, pages) = recipe.finish().unwrap();
    let mut frame = FrameBuilder::new(Kind::Page, domain, 1 << 17);
    pages.iter().for_each(|(id, page)| frame.push(*id, page));
    session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
    let draft = VersionRecord {
        cut_policy: 1,
        disk_length: BLOCKS * LENGTH,
        sector_size: 512,
        ..VersionRecord::draft("lab/disk".parse().unwrap(), score, 5)
    };
    session.publish(draft).unwrap();
    score
}

/// Reads the whole disk. Panics if wrong bytes are served; returns whether all were.
fn reads_well(place: &StorePlace, score: Score) -> bool {
    let Ok(store) = Store::open_reader(place) else { return false };
    let Ok(recipe) = Recipe::open(score, &store) else { return false };
    let mut read = 0;
    for entry in recipe.entries(Extent::new(0, BLOCKS * LENGTH)) {
        let Ok(Entry { extent, state: State::Data { block, .. } }) = entry else { return false };
        let Ok(found) = store.read_block(Kind::Data, &block) else { return false };
        assert!(found == contents(extent.offset / LENGTH), "wrong bytes are served");
        read += 1;
    }
    read == BLOCKS
}

fn packs(dir: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(dir.join("packs")).unwrap();
    folders
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|pack| pack.unwrap().path())
        .collect()
}

fn is_clean(place: &StorePlace) -> bool {
    let options = CheckOptions { read_data: true, ..CheckOptions::default() };
    let checked = Store::open_reader(place).and_then(|store| store.check(options, &mut |_| {}));
    checked.is_ok_and(|report| report.verdict < Verdict::Leaks)
}

fn every_changed_byte_of_a_pack_is_found(is_encrypted: bool) {
    let dir = tempfile::tempdir().unwrap();
    let place = store(dir.path(), is_encrypted);
    let score = publish(&place);
    assert!(reads_well(&place, score) && is_clean(&place));
    let packs = packs(dir.path());
    assert!(!packs.is_empty());
    for pack in packs {
        let good = fs::read(&pack).unwrap();
        let has_marker = good.windows(6).any(|window| window == b"marker");
        assert_eq!(has_marker, !is_encrypted, "the marker is found in a plain store only");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&pack, &bad).unwrap();
            // Readers quarantine what they find, so each change begins with a store without observations.
            let _ = reads_well(&place, score);
            drop(fs::remove_dir_all(dir.path().join("health")));
            drop(fs::remove_dir_all(dir.path().join("index")));
            assert!(!is_clean(&place), "byte {at}: not found");
            drop(fs::remove_dir_all(dir.path().join("health")));
            drop(fs::remove_dir_all(dir.path().join("index")));
        }
        fs::write(&pack, &good).unwrap();
    }
    assert!(reads_well(&place, score) && is_clean(&place), "as before");
}

#[test]
fn every_changed_byte_of_a_plain_pack_is_found() {
    every_changed_byte_of_a_pack_is_found(false);
}

#[test]
fn every_changed_byte_of_an_encrypted_pack_is_found() {
    every_changed_byte_of_a_pack_is_found(true);
}

#[test]
fn a_locked_store_is_not_written_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(dir.path());
    let master = MasterKey::random().unwrap();
    let mut keys = KeyFile::new(&master);
    let secret = Secret::new(SecretKind::Passphrase, Zeroizing::new(b"secret".to_vec())).unwrap();
    keys.add(&master, "", &secret, CHEAP).unwrap();
    Store::init_encrypted(&place, &keys).unwrap();
    let error = Store::open_writer(&place).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("the store is encrypted"), "{error}");
    let store = Store::open_reader(&place).unwrap();
    let report =
        store.check(CheckOptions { read_data: true, ..CheckOptions::default() }, &mut |_| {}).unwrap();
    assert_eq!(
        (report.verdict, report.locked),
        (Verdict::Locked, true),
        "names can be read, and that is all"
    );
    assert_eq!(rebuild(&place).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(Store::discard_interrupted(&place).unwrap_err().kind(), ErrorKind::Refused);
}

/// Exchanged files never make an encrypted store a plain one, nor give it a second key, nor the other way round.
#[test]
fn exchanged_files_are_refused() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let places = [store(dirs[0].path(), true), store(dirs[1].path(), true), store(dirs[2].path(), false)];
    for (place, dir) in places.iter().zip(&dirs) {
        let score = publish(place);
        let file = |name: &str| dir.path().join(name);
        let id = |dir: &Path| {
            let format = fs::read_to_string(dir.join("store.json")).unwrap();
            format.split('"').nth(5).unwrap().to_owned()
        };
        let format = fs::read_to_string(file("store.json")).unwrap();
        let keys = fs::read(file("keys.json")).ok();
        for other in dirs.iter().filter(|other| other.path() != dir.path()) {
            let foreign = fs::read_to_string(other.path().join("store.json")).unwrap();
            let foreign = foreign.replace(&id(other.path()), &id(dir.path()));
            let foreign = format!("{}}}\n", foreign.split_once(",\"checksum\"").unwrap().0);
            fs::write(file("store.json"), &foreign).unwrap();
            match fs::copy(other.path().join("keys.json"), file("keys.json")) {
                Err(_) if keys.is_some() => {
                    assert_eq!(Store::open_reader(place).unwrap_err().kind(), ErrorKind::Corrupt);
                    fs::remove_file(file("keys.json")).unwrap();
                }
                _ => {}
            }
            let catalog = fs::read(file("catalog.sqlite")).unwrap();
            for opened in [Store::open_reader(place), Store::open_writer(place)] {
                let error = opened.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains("Put back the original"), "{error}");
            }
            assert_eq!(rebuild(place).unwrap_err().kind(), ErrorKind::Corrupt);
            fs::rename(file("catalog.sqlite"), file("kept")).unwrap();
            let error = rebuild(place).unwrap_err();
            assert!(error.to_string().contains("a pack says"), "{error}");
            fs::rename(file("kept"), file("catalog.sqlite")).unwrap();
            assert!(catalog == fs::read(file("catalog.sqlite")).unwrap(), "nothing was written");
            fs::write(file("store.json"), &format).unwrap();
            match &keys {
                Some(keys) => fs::write(file("keys.json"), keys).unwrap(),
                None => fs::remove_file(file("keys.json")).unwrap(),
            }
            assert!(reads_well(place, score) && is_clean(place), "with the original files");
        }
    }
}

/// No session stores data that is not encrypted with the store's key, whatever it gets.
#[test]
fn data_of_another_domain_is_refused() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let places = [store(dirs[0].path(), true), store(dirs[1].path(), false)];
    let domains = places.each_ref().map(|place| Store::open_reader(place).unwrap().domain());
    for (place, foreign) in places.iter().zip([domains[1], domains[0]]) {
        let store = Store::open_writer(place).unwrap();
        let mut frame = FrameBuilder::new(Kind::Data, foreign, 1 << 17);
        frame.push(foreign.id_of(Kind::Data, &contents(0)).unwrap(), &contents(0));
        let frame = frame.encode(&mut Compressor::new(3).unwrap()).unwrap();
        let error = store.session().unwrap().append(&frame).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}

#[test]
fn a_store_without_its_format_file_stays_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let place = store(dir.path(), true);
    let score = publish(&place);
    fs::remove_file(dir.path().join("store.json")).unwrap();
    fs::rename(dir.path().join("keys.json"), dir.path().join("kept")).unwrap();
    let error = rebuild(&place).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    fs::rename(dir.path().join("kept"), dir.path().join("keys.json")).unwrap();
    rebuild(&place).unwrap();
    assert!(Store::open_reader(&place).unwrap().domain().is_encrypted());
    assert!(reads_well(&place, score));
}
