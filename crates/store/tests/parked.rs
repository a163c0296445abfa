//! Packs of unfinished uploads: kept for their owner, and no part of the store until then.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "accesses the store's files directly")]

use std::path::{Path, PathBuf};

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
use platter_image::{BlockId, Domain, FrameIndex, FrameStore, Kind};
use platter_store::{Resumed, Store, StorePlace};

fn frame(byte: u8) -> (BlockId, EncodedFrame) {
    let contents = [byte; 4096];
    let id = BlockId::of(Kind::Data, &contents);
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
    frame.push(id, &contents);
    (id, frame.encode(&mut Compressor::new(3).unwrap()).unwrap())
}

/// The path of the only file in the folders of packs.
fn the_only_pack(place: &StorePlace) -> PathBuf {
    let folders = std::fs::read_dir(place.dir().join("packs")).unwrap();
    let mut files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.next().unwrap().unwrap().path()
}

#[test]
fn a_parked_pack_is_not_in_the_store_until_its_owner_resumes_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let (id, frame) = frame(7);
    {
        let store = Store::open_writer(&place).unwrap();
        let session = store.session().unwrap();
        session.append(&frame).unwrap();
        session.park("token1", 5).unwrap();
    }
    // Another writer does not take it over.
    let store = Store::open_writer(&place).unwrap();
    assert_eq!(store.blocks(), 0);
    let parked = store.parked().unwrap();
    assert_eq!((parked.len(), &parked[0].owner[..], parked[0].since_unix_ms), (1, "token1", 5));
    assert_eq!(store.parked_ids(&parked[0]).unwrap(), [id]);
    let session = store.session().unwrap();
    assert!(session.locate(&id).unwrap().is_none());
    assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Taken(vec![id]));
    assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Gone);
    assert!(!store.discard_parked(&parked[0]).unwrap(), "it was resumed and cannot be discarded");
    assert!(session.lookup_and_pin(&id).unwrap().is_some());
    session.keep().unwrap();
    assert!(store.read_block(Kind::Data, &id).is_ok());
    assert_eq!(store.parked().unwrap(), []);
    drop(store);
    let report = Store::open_reader(&place).unwrap();
    assert!(report.read_block(Kind::Data, &id).is_ok(), "a reader finds the pack in the catalog");
}

#[test]
fn a_damaged_frame_of_a_parked_pack_is_not_relied_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let ((good, first), (bad, second)) = (frame(1), frame(2));
    session.append(&first).unwrap();
    session.append(&second).unwrap();
    let rotten = session.locate(&bad).unwrap().unwrap().frame;
    session.park("token1", 5).unwrap();
    let parked = store.parked().unwrap();
    let path = the_only_pack(&place);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[rotten.offset as usize + rotten.length as usize - BlockId::LEN - 1] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let session = store.session().unwrap();
    assert_eq!(session.resume(&parked[0]).unwrap(), Resumed::Taken(vec![good, bad]));
    assert!(session.lookup_and_pin(&good).unwrap().is_some());
    assert!(session.lookup_and_pin(&bad).unwrap().is_none(), "it must be sent again");
    session.append(&second).unwrap();
    assert!(session.lookup_and_pin(&bad).unwrap().is_some());
    session.keep().unwrap();
    assert!(store.read_block(Kind::Data, &bad).is_ok());
}

/// A new store in this directory, with one parked pack.
fn with_one_parked(dir: &Path) -> (StorePlace, Store) {
    let place = StorePlace::on_system(dir.join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    session.append(&frame(1).1).unwrap();
    session.park("a", 1).unwrap();
    (place, store)
}

#[test]
fn discarding_a_parked_pack_frees_its_space() {
    let folder = tempfile::tempdir().unwrap();
    let (_, store) = with_one_parked(folder.path());
    store.session().unwrap().park("a", 1).unwrap();
    let parked = store.parked().unwrap();
    assert_eq!(parked.len(), 1, "an empty session parks nothing");
    assert!(store.discard_parked(&parked[0]).unwrap());
    assert_eq!(store.parked().unwrap(), []);
    assert_eq!(store.parked_ids(&parked[0]).unwrap(), []);
}

#[test]
fn discarding_what_was_interrupted_removes_parked_packs() {
    let folder = tempfile::tempdir().unwrap();
    let (place, store) = with_one_parked(folder.path());
    let length = store.parked().unwrap()[0].length;
    drop(store);
    let discarded = Store::discard_interrupted(&place).unwrap();
    assert_eq!((discarded.packs, discarded.parked, discarded.bytes), (0, 1, length));
    assert_eq!(Store::open_writer(&place).unwrap().parked().unwrap(), []);
}
