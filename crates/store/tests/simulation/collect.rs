//! Collection on a simulated disk: it frees what nothing needs and nothing else, whatever call fails and wherever power fails.

use std::collections::BTreeSet;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::{BlockId, Domain, ErrorKind, FrameSource, FrameStore, Kind, Score};
use platter_records::{CollectReport, Follower};
use platter_store::{CollectRequest, Store, Verdict};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, Operation, SimulatedDisk};

use super::rebuild::packs;
use super::work::{Dice, Machine, Model, add_disk, block, draft, publish, verify, work};

/// A run that deletes at once and compacts whatever is not fully needed.
pub(crate) const AT_ONCE: CollectRequest = CollectRequest {
    now_unix_ms: 1_000_000,
    keep_trash_ms: 0,
    dry_run: false,
    is_confirmed: true,
    compact_percent: 100,
    recompress: None,
    end_leases: false,
};

/// The same without compaction.
const NO_COPIES: CollectRequest = CollectRequest { compact_percent: 0, ..AT_ONCE };

pub(crate) fn collect(store: &Store, request: CollectRequest) -> platter_image::Result<CollectReport> {
    store.collect(&request, &|| Ok(Vec::new()), &mut |_| {})
}

/// Bytes of pack files.
fn pack_bytes(machine: &Machine) -> u64 {
    let store = Store::open_reader(&machine.place).unwrap();
    collect_report(&store)
}

fn collect_report(store: &Store) -> u64 {
    let report = store.check(platter_store::CheckOptions::default(), &mut |_| {}).unwrap();
    report.pack_bytes
}

fn range(first: u64, last: u64) -> Vec<u64> {
    (first..last).collect()
}

/// A machine with a fresh store.
fn machine() -> Machine {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    machine
}

#[test]
fn what_was_forgotten_is_freed_and_the_rest_stays() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let kept = publish(&store, "a", &range(0, 40)).unwrap();
    publish(&store, "b", &range(20, 90)).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(report.deleted.packs > 0 && report.failed.is_empty() && report.trash.packs == 0, "{report:?}");
    // As small as a store that never had the other image.
    let fresh = self::machine();
    publish(&Store::open_writer(&fresh.place).unwrap(), "a", &range(0, 40)).unwrap();
    let (now, ideal) = (pack_bytes(&machine), pack_bytes(&fresh));
    assert!(now <= ideal + ideal / 20, "{now} bytes, a fresh store has {ideal}");
    let gone = BlockId::of(Kind::Data, &block(80));
    assert_eq!(store.read_block(Kind::Data, &gone).unwrap_err().kind(), ErrorKind::Missing);
    drop(store);
    let model = Model { published: vec![(kept, range(0, 40))], ..Model::default() };
    verify(&machine, &model, "after a collection");
}

/// A second run finds nothing more to do.
#[test]
fn a_collected_store_stays_as_it_is() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 60)).unwrap();
    publish(&store, "b", &range(30, 90)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    collect(&store, AT_ONCE).unwrap();
    let again = collect(&store, CollectRequest { compact_percent: 50, ..AT_ONCE }).unwrap();
    assert_eq!((again.given_up.packs, again.deleted.packs, again.copied_bytes), (0, 0, 0), "{again:?}");
}

/// Dead packs are kept as asked, and whoever planned their frames can read them until then.
#[test]
fn the_trash_can_be_read_until_it_is_emptied() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 30)).unwrap();
    let reader = Store::open_reader(&machine.place).unwrap();
    let id = BlockId::of(Kind::Data, &block(7));
    let lease = reader.lease(&id).unwrap().unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let kept = CollectRequest { keep_trash_ms: 10_000, ..AT_ONCE };
    let report = collect(&store, kept).unwrap();
    assert!(report.given_up.packs > 0 && report.deleted.packs == 0, "{report:?}");
    assert_eq!(report.trash, report.given_up);
    let mut stored = Vec::new();
    reader.read_leased(&lease, &mut stored).unwrap();
    // Nothing new refers to it, in this process or in another.
    assert!(store.session().unwrap().lookup_and_pin(&id).unwrap().is_none());
    drop(store);
    let store = Store::open_writer(&machine.place).unwrap();
    assert!(store.session().unwrap().lookup_and_pin(&id).unwrap().is_none());
    assert_eq!(store.read_block(Kind::Data, &id).unwrap(), block(7));
    let early = CollectRequest { now_unix_ms: kept.now_unix_ms + 9_999, ..kept };
    assert_eq!(collect(&store, early).unwrap().deleted.packs, 0);
    let later = CollectRequest { now_unix_ms: kept.now_unix_ms + 10_000, ..kept };
    assert_eq!(collect(&store, later).unwrap().deleted.packs, report.trash.packs);
    assert_eq!(store.read_block(Kind::Data, &id).unwrap_err().kind(), ErrorKind::Missing);
    drop(reader);
    assert_eq!(store.check(Default::default(), &mut |_| {}).unwrap().verdict, Verdict::Clean);
}

/// A reader in another process that has read nothing since before a compaction still gets what versions need, under the
/// addresses that it planned.
#[test]
fn a_reader_finds_frames_that_compaction_moved() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 40)).unwrap();
    publish(&store, "b", &range(0, 30)).unwrap();
    let reader = Store::open_reader(&machine.place).unwrap();
    let leases: Vec<_> =
        (0..30).map(|n| reader.lease(&BlockId::of(Kind::Data, &block(n))).unwrap().unwrap()).collect();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(report.copied_bytes > 0 && report.deleted.packs > 0, "{report:?}");
    let mut stored = Vec::new();
    leases.iter().for_each(|lease| reader.read_leased(lease, &mut stored).unwrap());
    for n in 0..30 {
        assert_eq!(reader.read_block(Kind::Data, &BlockId::of(Kind::Data, &block(n))).unwrap(), block(n));
    }
    assert!(reader.quarantined().is_empty(), "a collected pack is not damage");
}

/// A session that found blocks keeps their packs, although nothing else needs them (F3).
#[test]
fn a_session_keeps_what_it_found() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 40)).unwrap();
    let session = store.session().unwrap();
    let disk = add_disk(&session, &range(0, 40)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let report = collect(&store, AT_ONCE).unwrap();
    assert_eq!(report.given_up.packs, 0, "{report:?}");
    let version = session.publish(draft("b", disk).unwrap()).unwrap();
    collect(&store, AT_ONCE).unwrap();
    drop(store);
    verify(&machine, &Model { published: vec![(version, range(0, 40))], ..Model::default() }, "pinned");
}

/// A clone whose version is forgotten and collected before it is published is refused, or whole (F1).
#[test]
fn a_clone_of_something_collected_is_refused() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let version = publish(&store, "a", &range(0, 40)).unwrap();
    let clone = |name: &str| {
        let disk = (version.record.score, version.record.disk_length);
        store.session()?.publish(draft(name, disk)?)
    };
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let kept = CollectRequest { keep_trash_ms: 10_000, ..AT_ONCE };
    collect(&store, kept).unwrap();
    // From the trash, it is copied back.
    let back = clone("b").unwrap();
    collect(&store, AT_ONCE).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    let again = clone("c").unwrap();
    assert_eq!(again.record.score, back.record.score);
    store.forget(&"c".parse().unwrap(), None).unwrap();
    collect(&store, AT_ONCE).unwrap();
    assert_eq!(clone("d").unwrap_err().kind(), ErrorKind::Missing);
    assert!(store.takes_writes());
}

/// A forgotten version is restored from the trash, with its record, and stays when the trash is emptied.
#[test]
fn a_version_is_restored_from_the_trash() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let version = publish(&store, "a", &range(0, 40)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let kept = CollectRequest { keep_trash_ms: 10_000, ..AT_ONCE };
    assert!(collect(&store, kept).unwrap().trash.packs > 0);
    assert_eq!(store.resurrect(&[]).unwrap(), std::slice::from_ref(&version.name));
    collect(&store, AT_ONCE).unwrap();
    drop(store);
    let model = Model { published: vec![(version, range(0, 40))], ..Model::default() };
    verify(&machine, &model, "restored from the trash");
}

/// A registered reader keeps its recipe as long as it lives.
#[test]
fn a_registered_reader_keeps_what_it_reads() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let version = publish(&store, "a", &range(0, 40)).unwrap();
    let reader = Store::open_reader(&machine.place).unwrap();
    assert!(reader.hold(version.record.score).unwrap());
    store.forget(&"a".parse().unwrap(), None).unwrap();
    assert_eq!(collect(&store, NO_COPIES).unwrap().given_up.packs, 0);
    // Compaction drops the record, which no version needs, and moves the rest.
    collect(&store, AT_ONCE).unwrap();
    let id = BlockId::of(Kind::Data, &block(7));
    assert_eq!(reader.read_block(Kind::Data, &id).unwrap(), block(7));
    drop(reader);
    assert!(collect(&store, AT_ONCE).unwrap().deleted.packs > 0);
}

/// The time this many days after the usual one.
fn on(day: i64) -> i64 {
    NO_COPIES.now_unix_ms + day * 24 * 3_600_000
}

/// Renews the lease of an owner that may read everything.
fn renew(store: &Store, owner: &str, score: Score, day: i64) -> bool {
    !store.renew_leases(owner, &BTreeSet::from([score]), &|_| true, on(day)).unwrap().is_empty()
}

fn has_lease(store: &Store, owner: &str, score: Score, day: i64) -> bool {
    store.leases_of(owner, on(day)).unwrap().contains(&score)
}

/// Who reads a disk through an origin has a lease. It outlives the writer, is no use for a disk that was collected before, and ends.
#[test]
fn a_lease_keeps_a_forgotten_disk_until_it_ends() {
    let machine = machine();
    let a = "a".parse().unwrap();
    let score = {
        let store = Store::open_writer(&machine.place).unwrap();
        let score = publish(&store, "a", &range(0, 40)).unwrap().record.score;
        let reader = Store::open_reader(&machine.place).unwrap();
        assert!(renew(&reader, "token", score, 0));
        assert!(!has_lease(&reader, "other", score, 0));
        store.forget(&a, None).unwrap();
        assert!(!renew(&reader, "other", score, 0), "it was forgotten already");
        score
    };
    let store = Store::open_writer(&machine.place).unwrap();
    let at = |day: i64| CollectRequest { now_unix_ms: on(day), ..NO_COPIES };
    assert_eq!(collect(&store, at(7)).unwrap().given_up.packs, 0);
    // Used again and again, but not for ever.
    for day in [7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 90] {
        assert!(renew(&store, "token", score, day));
        assert_eq!(collect(&store, at(day)).unwrap().given_up.packs, 0, "day {day}");
    }
    assert!(collect(&store, at(91)).unwrap().given_up.packs > 0);
    assert!(!renew(&store, "token", score, 91));
    // Before that, by a clock that was set back: a lease of a disk that is gone keeps nothing, and nothing from being collected.
    publish(&store, "b", &range(100, 140)).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    assert!(has_lease(&store, "token", score, 90));
    assert!(collect(&store, at(90)).unwrap().given_up.packs > 0);
    machine.place.end_leases("token").unwrap();
    assert!(!has_lease(&store, "token", score, 90));
}

/// If it cannot be found out whether a leased disk, or one that a follower needs, is complete, nothing is given up.
#[test]
fn an_unreadable_leased_disk_is_no_garbage() {
    for is_leased in [true, false] {
        let machine = machine();
        {
            let store = Store::open_writer(&machine.place).unwrap();
            let score = publish(&store, "a", &range(0, 40)).unwrap().record.score;
            if is_leased {
                assert!(renew(&store, "token", score, 0));
            } else {
                let (id, name, address) = ("f".repeat(32), "follower".into(), String::new());
                let seen_unix_ms = NO_COPIES.now_unix_ms;
                store.register_follower(Follower { id, name, address, number: 0, seen_unix_ms }).unwrap();
            }
            store.forget(&"a".parse().unwrap(), None).unwrap();
        }
        let full = machine.disk();
        for call in 1.. {
            machine.insert(&full.fork());
            let store = Store::open_writer(&machine.place).unwrap();
            let fault = Fault { call, kind: FaultKind::Io, persistent: false, only: Some(Operation::Read) };
            machine.disk().set_fault(Some(fault));
            let done = collect(&store, NO_COPIES);
            let hits = machine.disk().fault_hits();
            machine.disk().set_fault(None);
            drop(store);
            let context = format!("read {call} fails: {done:?}");
            assert!(done.is_err() || done.unwrap().given_up.packs == 0, "{context}");
            let store = Store::open_writer(&machine.place).unwrap();
            assert_eq!(collect(&store, NO_COPIES).unwrap().given_up.packs, 0, "{context}");
            let id = BlockId::of(Kind::Data, &block(7));
            assert_eq!(store.read_block(Kind::Data, &id).unwrap(), block(7), "{context}");
            if hits == 0 {
                assert!(call > 5, "{call}");
                break;
            }
        }
    }
}

/// A follower that is behind needs what was forgotten since. What is in the trash already stays there, and does not keep the
/// collector from freeing other packs.
#[test]
fn a_follower_that_is_behind_does_not_need_what_was_collected() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 40)).unwrap();
    publish(&store, "b", &range(100, 140)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let kept = CollectRequest { keep_trash_ms: 10_000, ..NO_COPIES };
    assert!(collect(&store, kept).unwrap().trash.packs > 0);
    let follower = Follower {
        id: "1".repeat(32),
        name: "second".into(),
        address: String::new(),
        number: 0,
        seen_unix_ms: kept.now_unix_ms,
    };
    store.register_follower(follower).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    // The follower still needs `b`.
    assert_eq!(collect(&store, kept).unwrap().given_up.packs, 0);
    let silent = CollectRequest { now_unix_ms: kept.now_unix_ms + 25 * 3_600_000, ..kept };
    assert!(collect(&store, silent).unwrap().given_up.packs > 0);
}

/// Whatever cannot be read while marking, nothing is given up (F5).
#[test]
fn an_unreadable_root_frees_nothing() {
    let machine = machine();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        publish(&store, "a", &range(0, 40)).unwrap();
        publish(&store, "b", &range(20, 90)).unwrap();
        store.forget(&"b".parse().unwrap(), None).unwrap();
    }
    let full = machine.disk();
    let mut call = 0;
    loop {
        call += 1;
        machine.insert(&full.fork());
        let store = Store::open_writer(&machine.place).unwrap();
        let before = machine.disk().calls();
        let fault = Fault { call, kind: FaultKind::Io, persistent: true, only: Some(Operation::Read) };
        machine.disk().set_fault(Some(fault));
        let done = collect(&store, AT_ONCE);
        let (hits, calls) = (machine.disk().fault_hits(), machine.disk().calls() - before);
        machine.disk().set_fault(None);
        drop(store);
        if hits == 0 {
            assert!(done.is_ok() && call > 20, "{done:?} with {calls} calls");
            break;
        }
        let context = format!("reads fail from the {call}th on");
        assert!(done.is_err(), "{context}: {done:?}");
        let store = Store::open_writer(&machine.place).unwrap();
        for n in 0..40 {
            let id = BlockId::of(Kind::Data, &block(n));
            assert_eq!(store.read_block(Kind::Data, &id).unwrap(), block(n), "{context}");
        }
        // Unless it was past the proofs, everything forgotten is still there.
        let report = collect(&store, CollectRequest { dry_run: true, ..AT_ONCE }).unwrap();
        assert!(report.before.packs > 0, "{context}");
    }
}

/// Whatever else must stay is asked for, and a failure to tell ends the run.
#[test]
fn further_roots_stay_and_their_error_ends_the_run() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let version = publish(&store, "a", &range(0, 40)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let report = store.collect(&NO_COPIES, &|| Ok(vec![version.record.score]), &mut |_| {}).unwrap();
    assert_eq!(report.given_up.packs, 0);
    let error = store.collect(&AT_ONCE, &|| Err(platter_image::Error::corrupt("an overlay")), &mut |_| {});
    assert!(error.unwrap_err().to_string().contains("an overlay"));
    assert!(store.takes_writes());
    assert!(collect(&store, AT_ONCE).unwrap().deleted.packs > 0);
}

#[test]
fn much_is_given_up_only_when_it_is_confirmed() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 90)).unwrap();
    publish(&store, "b", &range(100, 110)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let asked = collect(&store, CollectRequest { is_confirmed: false, ..AT_ONCE }).unwrap();
    assert!(asked.needs_confirmation && asked.given_up.packs > 0 && asked.deleted.packs == 0, "{asked:?}");
    assert_eq!(store.read_block(Kind::Data, &BlockId::of(Kind::Data, &block(7))).unwrap(), block(7));
    assert!(!collect(&store, AT_ONCE).unwrap().needs_confirmation);
}

/// A file that cannot be deleted is reported, and the next run deletes it.
#[test]
fn a_failed_deletion_is_reported_and_tried_again() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 40)).unwrap();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let fault = Fault { call: 1, kind: FaultKind::Io, persistent: true, only: Some(Operation::Remove) };
    machine.disk().set_fault(Some(fault));
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(!report.failed.is_empty() && report.deleted.packs == 0, "{report:?}");
    machine.disk().set_fault(None);
    let again = collect(&store, AT_ONCE).unwrap();
    assert!(again.failed.is_empty() && again.deleted.packs == report.given_up.packs, "{again:?}");
}

/// On a disk without any free byte, versions are forgotten and collection makes room: there is a reserve.
#[test]
fn a_full_disk_can_be_collected() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let kept = publish(&store, "a", &range(0, 20)).unwrap();
    publish(&store, "b", &range(20, 90)).unwrap();
    drop(store);
    machine.disk().set_capacity(machine.disk().used());
    // Once by a reader, which takes the lock for the change only, as `platter forget` does.
    publish(&Store::open_writer(&machine.place).unwrap(), "c", &range(20, 21)).unwrap_err();
    Store::open_reader(&machine.place).unwrap().forget(&"b".parse().unwrap(), None).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(report.deleted.packs > 0, "{report:?}");
    drop(store);
    // Nothing of the run has failed: it chose what fits.
    let store = Store::open_writer(&machine.place).unwrap();
    assert!(collect(&store, AT_ONCE).unwrap().failed.is_empty());
    drop(store);
    machine.disk().set_capacity(u64::MAX);
    verify(&machine, &Model { published: vec![(kept, range(0, 20))], ..Model::default() }, "full disk");
}

/// Compaction chooses what fits on the disk, round by round, and reports the rest instead of failing.
#[test]
fn wasteful_packs_are_compacted_as_space_becomes_free() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let kept: Vec<u64> = range(0, 600).into_iter().filter(|n| n % 5 == 0).collect();
    publish(&store, "b", &range(0, 600)).unwrap();
    let version = publish(&store, "a", &kept).unwrap();
    let wasteful = pack_bytes(&machine);
    machine.disk().set_capacity(machine.disk().used());
    store.forget(&"b".parse().unwrap(), None).unwrap();
    // While the trash is kept, nothing becomes free.
    let report = collect(&store, CollectRequest { keep_trash_ms: 10_000, ..AT_ONCE }).unwrap();
    assert!(report.waiting.packs > 0 && report.failed.is_empty(), "nothing fits: {report:?}");
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(report.failed.is_empty() && report.deleted.packs > 0, "{report:?}");
    assert_eq!(report.waiting.packs, 0, "what the first rounds free suffices for the others: {report:?}");
    assert!(pack_bytes(&machine) < wasteful / 2);
    assert!(store.takes_writes(), "a full disk is foreseen, not met");
    machine.disk().set_capacity(u64::MAX);
    drop(store);
    verify(&machine, &Model { published: vec![(version, kept)], ..Model::default() }, "little space");
}

/// A store with garbage in whole packs and in parts of packs.
fn garbage(seed: u64) -> (Machine, Model) {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(seed));
    let mut model = Model::default();
    work(&machine, seed, &mut model).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let name = "garbage".parse().unwrap();
    publish(&store, "garbage", &range(10, 50)).unwrap();
    let version = publish(&store, "kept", &range(0, 25)).unwrap();
    store.forget(&name, None).unwrap();
    model.published.push((version, range(0, 25)));
    (machine, model)
}

/// While a collection runs, a second one is refused, and nothing is deleted twice.
#[test]
fn a_second_collection_at_once_is_refused() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let kept = publish(&store, "a", &range(0, 20)).unwrap();
    publish(&store, "b", &range(20, 60)).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    let refused = std::cell::Cell::new(0);
    let roots = || {
        let error = collect(&store, AT_ONCE).unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("is under way"), "{error}");
        refused.set(refused.get() + 1);
        Ok(Vec::new())
    };
    let report = store.collect(&AT_ONCE, &roots, &mut |_| {}).unwrap();
    assert!(refused.get() > 1 && report.failed.is_empty(), "{report:?}");
    assert_eq!(report.deleted.packs, report.given_up.packs, "{report:?}");
    assert_eq!(collect(&store, AT_ONCE).unwrap().deleted.packs, 0);
    drop(store);
    verify(&machine, &Model { published: vec![(kept, range(0, 20))], ..Model::default() }, "collected once");
}

/// Blocks that are several times in one pack and in many packs are collected and compacted like others.
#[test]
fn repeated_blocks_survive() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    let repeat = |numbers: &[u64]| {
        let session = store.session().unwrap();
        for number in numbers.iter().chain(numbers) {
            let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
            frame.push(BlockId::of(Kind::Data, &block(*number)), &block(*number));
            session.append(&frame.encode(&mut Compressor::new(1).unwrap()).unwrap()).unwrap();
        }
        session.keep().unwrap();
    };
    repeat(&range(0, 6));
    publish(&store, "b", &range(0, 40)).unwrap();
    repeat(&range(3, 9));
    repeat(&range(0, 12));
    let before = pack_bytes(&machine);
    // Some blocks are only in packs that are hardly needed.
    let numbers = [range(2, 11), range(30, 32)].concat();
    let kept = publish(&store, "a", &numbers).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    let report = collect(&store, AT_ONCE).unwrap();
    assert!(report.failed.is_empty() && report.deleted.packs > 0 && report.copied_bytes > 0, "{report:?}");
    let after = pack_bytes(&machine);
    assert!(after < before / 2, "{before} and {after} bytes");
    for request in [NO_COPIES, AT_ONCE] {
        assert!(collect(&store, request).unwrap().failed.is_empty());
    }
    drop(store);
    verify(&machine, &Model { published: vec![(kept, numbers)], ..Model::default() }, "repeated");
}

/// A rebuilt store is collected and compacted like the one that it was.
#[test]
fn a_rebuilt_store_is_compacted() {
    for lost in [&["catalog.sqlite", "catalog.sqlite-journal"][..], &["changes.log"], &[]] {
        let (machine, model) = garbage(8);
        for file in lost {
            // SQLite does not always leave a journal.
            let _ = machine.disk().remove(&machine.place.dir().join(file));
        }
        platter_store::rebuild(&machine.place).unwrap();
        {
            let store = Store::open_writer(&machine.place).unwrap();
            let report = collect(&store, AT_ONCE).unwrap();
            assert!(report.failed.is_empty() && report.copied_bytes > 0, "{lost:?}: {report:?}");
            let again = collect(&store, CollectRequest { compact_percent: 50, ..AT_ONCE }).unwrap();
            assert_eq!((again.given_up.packs, again.deleted.packs), (0, 0), "{lost:?}: {again:?}");
        }
        verify(&machine, &model, &format!("compacted after a rebuild, {lost:?} lost"));
    }
}

/// Runs collections until one succeeds; the first one is interrupted at `call` and a second one at `again`.
fn interrupted_twice(kind: FaultKind, persistent: bool, profile: CrashProfile, seed: u64, step: u64) {
    let (machine, model) = garbage(seed);
    let disk = machine.disk();
    let mut dice = Dice(seed);
    let mut call = 1;
    let request = CollectRequest { recompress: seed.is_multiple_of(2).then_some(19), ..AT_ONCE };
    loop {
        machine.insert(&disk.fork());
        let context = format!("seed {seed}, {kind:?} at call {call}, persistent {persistent}, {profile:?}");
        let mut hits = 0;
        for at in [call, 1 + dice.below(call + 20)] {
            let Ok(store) = Store::open_writer(&machine.place) else {
                panic!("{context}: it cannot be opened")
            };
            machine.disk().set_fault(Some(Fault { call: at, kind, persistent, only: None }));
            let _ = collect(&store, request);
            hits = machine.disk().fault_hits().max(hits);
            drop(store);
            machine.disk().crash(profile, seed ^ call);
            machine.restart();
        }
        {
            let store =
                Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let report = collect(&store, request).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            assert_eq!((report.failed.len(), report.trash.packs), (0, 0), "{context}: {report:?}");
            let again = collect(&store, CollectRequest { compact_percent: 50, ..AT_ONCE }).unwrap();
            assert_eq!(again.given_up.packs, 0, "{context}: everything reclaimable was reclaimed: {again:?}");
            let checked = store.check(platter_store::CheckOptions::default(), &mut |_| {}).unwrap();
            assert_eq!(checked.findings, [], "{context}: no leaks");
        }
        verify(&machine, &model, &context);
        if hits == 0 {
            break;
        }
        call += step;
    }
}

#[test]
fn a_collection_that_fails_twice_loses_nothing() {
    interrupted_twice(FaultKind::Io, false, CrashProfile::StrictPosix, 3, 5);
    interrupted_twice(FaultKind::Io, true, CrashProfile::Nothing, 4, 7);
    interrupted_twice(FaultKind::NoSpace, true, CrashProfile::StrictPosix, 5, 7);
}

#[test]
fn power_failures_during_a_collection_lose_nothing() {
    for (seed, profile) in (6..).zip(CrashProfile::EVERY) {
        interrupted_twice(FaultKind::Halt, true, profile, seed, 7);
    }
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every call of twelve collections"]
fn every_call_of_a_collection_can_fail_twice() {
    for seed in 20..24 {
        interrupted_twice(FaultKind::Io, seed % 2 == 0, CrashProfile::StrictPosix, seed, 1);
        interrupted_twice(FaultKind::NoSpace, true, CrashProfile::Nothing, seed, 1);
        interrupted_twice(FaultKind::Halt, true, CrashProfile::StrictPosix, seed, 1);
    }
}

/// A session that crashed has stored blocks again that another pack has, where one is damaged, and nobody has noticed it: a collection keeps
/// the sound copy.
#[test]
fn a_copy_is_kept_if_the_other_one_is_damaged() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 12)).unwrap();
    drop(store);
    let before = packs(&machine);
    let store = Store::open_writer(&machine.place).unwrap();
    let session = store.session().unwrap();
    for number in 0..12 {
        let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
        frame.push(BlockId::of(Kind::Data, &block(number)), &block(number));
        session.append(&frame.encode(&mut Compressor::new(1).unwrap()).unwrap()).unwrap();
    }
    drop(session);
    drop(store);
    let whole = machine.disk().fork();
    let copies: Vec<_> = packs(&machine).into_iter().filter(|pack| !before.contains(pack)).collect();
    assert!(!copies.is_empty(), "{before:?}");
    for is_damaged in [false, true] {
        machine.insert(&whole.fork());
        for pack in before.iter().filter(|_| is_damaged) {
            let mut bytes = machine.disk().contents(pack).unwrap();
            bytes[100] ^= 1;
            machine.disk().overwrite(pack, &bytes);
        }
        let _ = collect(&Store::open_writer(&machine.place).unwrap(), AT_ONCE);
        let left = copies.iter().filter(|pack| machine.disk().contents(pack).is_some()).count();
        assert_eq!(left > 0, is_damaged, "{left} of {} copies are left", copies.len());
    }
}
