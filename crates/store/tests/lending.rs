//! Sessions under way at the same time share blocks, whatever becomes of the one that added them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
use platter_image::{BlockId, Domain, FrameIndex, FrameStore, Kind};
use platter_store::{CheckOptions, Store, StorePlace, Verdict};

fn frame(byte: u8) -> (BlockId, EncodedFrame) {
    let contents = [byte; 4096];
    let id = BlockId::of(Kind::Data, &contents);
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
    frame.push(id, &contents);
    (id, frame.encode(&mut Compressor::new(3).unwrap()).unwrap())
}

fn store() -> (tempfile::TempDir, StorePlace) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    (folder, place)
}

/// What a process that opens the store afterwards reads.
fn is_kept(place: &StorePlace, id: &BlockId) -> bool {
    Store::open_reader(place).unwrap().read_block(Kind::Data, id).is_ok()
}

#[test]
fn a_borrower_commits_before_its_lender() {
    let (_folder, place) = store();
    let store = Store::open_writer(&place).unwrap();
    let (lender, borrower) = (store.session().unwrap(), store.session().unwrap());
    let ((shared, first), (own, second), (late, third)) = (frame(1), frame(2), frame(3));
    lender.append(&first).unwrap();
    borrower.append(&second).unwrap();
    assert!(borrower.lookup_and_pin(&shared).unwrap().is_some(), "the other session has it");
    assert!(borrower.locate(&shared).unwrap().is_none());
    borrower.take_borrowed().unwrap();
    assert!(borrower.locate(&shared).unwrap().is_some());
    borrower.keep().unwrap();
    assert!(is_kept(&place, &shared) && is_kept(&place, &own));
    // The lender goes on, in another pack.
    assert!(lender.lookup_and_pin(&shared).unwrap().is_some());
    lender.append(&third).unwrap();
    lender.keep().unwrap();
    drop(store);
    assert!([shared, own, late].iter().all(|id| is_kept(&place, id)));
    let reader = Store::open_reader(&place).unwrap();
    let report =
        reader.check(CheckOptions { read_data: true, ..CheckOptions::default() }, &mut |_| ()).unwrap();
    assert_eq!(report.verdict, Verdict::Clean, "{:?}", report.findings);
}

#[test]
fn a_lender_that_is_parked_leaves_what_it_has_lent() {
    let (_folder, place) = store();
    let store = Store::open_writer(&place).unwrap();
    let (lender, borrower) = (store.session().unwrap(), store.session().unwrap());
    let (shared, first) = frame(1);
    lender.append(&first).unwrap();
    assert!(borrower.lookup_and_pin(&shared).unwrap().is_some());
    assert_eq!(lender.park("owner", 1).unwrap(), 0, "nothing is parked");
    assert_eq!(store.parked().unwrap(), []);
    borrower.append(&frame(2).1).unwrap();
    borrower.keep().unwrap();
    assert!(is_kept(&place, &shared));
}

#[test]
fn a_lender_that_commits_first_leaves_nothing_to_take() {
    let (_folder, place) = store();
    let store = Store::open_writer(&place).unwrap();
    let (lender, borrower) = (store.session().unwrap(), store.session().unwrap());
    let (shared, first) = frame(1);
    lender.append(&first).unwrap();
    assert!(borrower.lookup_and_pin(&shared).unwrap().is_some());
    lender.keep().unwrap();
    borrower.append(&frame(2).1).unwrap();
    borrower.keep().unwrap();
    assert!(is_kept(&place, &shared));
}

/// Without a commit, nothing of either session is in the store; the next writer takes the packs over as interrupted ones.
#[test]
fn packs_that_were_handed_over_survive_a_crash_before_the_commit() {
    let (folder, place) = store();
    let (shared, first) = frame(1);
    let store = Store::open_writer(&place).unwrap();
    let (lender, borrower) = (store.session().unwrap(), store.session().unwrap());
    lender.append(&first).unwrap();
    assert!(borrower.lookup_and_pin(&shared).unwrap().is_some());
    borrower.take_borrowed().unwrap();
    // What a process would find that starts after a crash.
    let crashed = folder.path().join("crashed");
    let copied = std::process::Command::new("cp").arg("-r").args([place.dir(), &crashed]).status();
    assert!(copied.unwrap().success());
    let place = StorePlace::on_system(crashed);
    assert!(!is_kept(&place, &shared));
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    assert!(session.lookup_and_pin(&shared).unwrap().is_some());
    session.append(&frame(2).1).unwrap();
    session.keep().unwrap();
    assert!(is_kept(&place, &shared));
}
