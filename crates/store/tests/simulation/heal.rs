//! Damage does not spread. Any byte of a pack is flipped, and capturing the same good disk again repairs all versions, also
//! across a rebuild and whoever found the damage. If nobody found it, a capture that reads back everything it relies on
//! repairs them too.
use std::path::{Path, PathBuf};

use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, ErrorKind, Extent, FrameIndex, FrameStore, Kind, Result};
use platter_records::Version;
use platter_store::{CheckOptions, KnownCheck, Severity, Store, Verdict, rebuild};
use platter_vfs::Vfs;
use platter_vfs::simulated::{Fault, FaultKind, Operation, SimulatedDisk};

use super::work::{Machine, add_disk, block, draft, publish};

const NUMBERS: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
/// A disk that shares blocks with the first one.
const OTHERS: [u64; 4] = [2, 3, 20, 21];

/// A store with `a@1` and `b@1` in one pack each. Returns the file of the first pack.
fn two_versions() -> (Machine, PathBuf) {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &NUMBERS).unwrap();
    let files = packs(&machine);
    publish(&Store::open_writer(&machine.place).unwrap(), "b", &OTHERS).unwrap();
    (machine, files[0].clone())
}

fn packs(machine: &Machine) -> Vec<PathBuf> {
    let disk = machine.disk();
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    list(&machine.place.dir().join("packs")).iter().flat_map(list).collect()
}

fn flip(disk: &SimulatedDisk, file: &Path, at: usize) {
    let mut bytes = disk.contents(file).unwrap();
    bytes[at] ^= 1 << (at % 8);
    disk.overwrite(file, &bytes);
}

/// Reads every block of a version through its recipe.
fn read_all(store: &Store, version: &Version, numbers: &[u64]) -> Result<()> {
    let recipe = Recipe::open(version.record.score, store)?;
    let mut blocks = Vec::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let State::Data { block, .. } = entry?.state else { continue };
        blocks.push(block);
    }
    let expected: Vec<Vec<u8>> = numbers.iter().map(|number| block(*number)).collect();
    assert_eq!(blocks.len(), expected.len());
    for (id, expected) in blocks.iter().zip(&expected) {
        assert!(store.read_block(Kind::Data, id)? == *expected, "wrong bytes");
    }
    Ok(())
}

/// Captures the first disk again with that check of known frames. Returns the names of the repaired versions.
fn capture_again(machine: &Machine, check: KnownCheck) -> (Version, Vec<String>) {
    let store = Store::open_writer(&machine.place).unwrap();
    let session = store.session().unwrap().with_known_check(check);
    let disk = add_disk(&session, &NUMBERS).unwrap();
    let published = session.publish_after(draft("a", disk).unwrap(), None).unwrap();
    let repaired = store.repaired_by(&published.repaired, &published.version.name).unwrap();
    assert!(repaired.damaged.is_empty(), "{repaired:?}");
    (published.version, repaired.whole.iter().map(ToString::to_string).collect())
}

/// Checks that every version is complete and nothing is quarantined; the record `but` may be damaged.
fn all_is_well(machine: &Machine, but: Option<BlockId>, context: &str) {
    let store = Store::open_reader(&machine.place).unwrap();
    for version in store.versions().unwrap() {
        let numbers = if version.name.image.as_str() == "a" { &NUMBERS[..] } else { &OTHERS };
        read_all(&store, &version, numbers)
            .unwrap_or_else(|error| panic!("{context}: {}: {error:?}", version.name));
        if Some(version.record_id) != but {
            match store.read_block(Kind::Version, &version.record_id) {
                // A publication without new blocks has its record in the catalog and its log only.
                Err(error) if error.kind() != ErrorKind::Missing => {
                    panic!("{context}: record of {}: {error:?}", version.name)
                }
                _ => {}
            }
        }
    }
    let quarantined: Vec<BlockId> = store.quarantined();
    assert!(quarantined.iter().all(|id| Some(*id) == but), "{context}: {quarantined:?}");
}

/// How the damage is noticed before the disk is captured again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noticed {
    Check,
    Reading,
    Nobody,
}

fn notice(machine: &Machine, how: Noticed) {
    if how == Noticed::Nobody {
        return;
    }
    let store = Store::open_reader(&machine.place).unwrap();
    if how == Noticed::Check {
        store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
        return;
    }
    for version in store.versions().unwrap() {
        let numbers = if version.name.image.as_str() == "a" { &NUMBERS[..] } else { &OTHERS };
        // Errors do not matter here: the damage found on the way is recorded.
        let _ = read_all(&store, &version, numbers);
        let _ = store.read_block(Kind::Version, &version.record_id);
    }
}

fn heals(stride: usize, how: Noticed, with_rebuild: bool) {
    let (machine, file) = two_versions();
    let good = machine.disk();
    let length = good.contents(&file).unwrap().len();
    // Nothing relies on a version record, so a capture does not read it.
    let record =
        Store::open_reader(&machine.place).unwrap().resolve("a@1").unwrap().version.unwrap().record_id;
    let but = (how == Noticed::Nobody).then_some(record);
    let mut repaired_ever = 0;
    for at in (0..length).step_by(stride) {
        let context = format!("byte {at} of {length}, noticed {how:?}, rebuild {with_rebuild}");
        let disk = good.fork();
        machine.insert(&disk);
        flip(&disk, &file, at);
        notice(&machine, how);
        if with_rebuild {
            let lost = rebuild(&machine.place).unwrap().lost;
            assert!(lost.is_empty(), "{context}: {lost:?}");
        }
        let check = if how == Noticed::Nobody { KnownCheck::All } else { KnownCheck::Sample };
        let (_, repaired) = capture_again(&machine, check);
        repaired_ever += repaired.len();
        all_is_well(&machine, but, &context);
        rebuild(&machine.place).unwrap();
        all_is_well(&machine, but, &context);
    }
    assert!(repaired_ever > 0);
}

#[test]
fn any_damaged_byte_heals_after_a_check() {
    heals(37, Noticed::Check, false);
}

#[test]
fn any_damaged_byte_heals_after_a_read() {
    heals(61, Noticed::Reading, false);
}

#[test]
fn any_damaged_byte_heals_unnoticed_if_everything_is_read_back() {
    heals(61, Noticed::Nobody, false);
}

#[test]
fn any_damaged_byte_heals_across_a_rebuild() {
    heals(97, Noticed::Check, true);
}

/// Offset in a frame that holds only data of the first disk.
const IN_FIRST_FRAME: usize = 64 + 300;

/// A process that only reads finds a flipped byte. A writer that had opened the store before learns of
/// it.
#[test]
fn a_writer_learns_what_a_reader_found() {
    let (machine, file) = two_versions();
    let writer = Store::open_writer(&machine.place).unwrap();
    flip(&machine.disk(), &file, IN_FIRST_FRAME);
    let first = BlockId::of(Kind::Data, &block(1));
    assert!(writer.session().unwrap().locate(&first).unwrap().is_some());
    let reader = Store::open_reader(&machine.place).unwrap();
    assert_eq!(reader.read_block(Kind::Data, &first).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(reader.quarantined().contains(&first));
    let session = writer.session().unwrap();
    assert!(session.lookup_and_pin(&first).unwrap().is_none());
    assert!(session.pin_stored(&first).unwrap().is_some(), "data taken over from a version may refer to it");
    assert_eq!(writer.read_block(Kind::Data, &first).unwrap_err().kind(), ErrorKind::Corrupt, "not missing");
}

/// A repeated I/O error quarantines a frame, a transient one is not even noticed: the frame is read by the pack's directory. A check that reads the frame lifts the quarantine.
#[test]
fn repeated_io_errors_quarantine() {
    let (machine, _) = two_versions();
    let first = BlockId::of(Kind::Data, &block(1));
    for (persistent, quarantined) in [(false, false), (true, true)] {
        let store = Store::open_reader(&machine.place).unwrap();
        let place = store.locate(&first).unwrap().unwrap();
        // The pack's footer is in memory from now on.
        store.read_frame(place.frame, &mut Vec::new()).unwrap();
        let only = Some(Operation::Read);
        machine.disk().set_fault(Some(Fault { call: 1, kind: FaultKind::Io, persistent, only }));
        let read = store.read_frame(place.frame, &mut Vec::new());
        assert_eq!(read.map_err(|error| error.kind()), if persistent { Err(ErrorKind::Io) } else { Ok(()) });
        machine.disk().set_fault(None);
        drop(store);
        let store = Store::open_writer(&machine.place).unwrap();
        assert_eq!(store.quarantined().contains(&first), quarantined);
        assert_eq!(store.session().unwrap().lookup_and_pin(&first).unwrap().is_none(), quarantined);
        assert!(store.read_block(Kind::Data, &first).unwrap() == block(1), "reads still try the frame");
    }
    let store = Store::open_reader(&machine.place).unwrap();
    let quick = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(quick.verdict, Verdict::Damaged, "a quick check does not read the contents");
    let full = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_eq!((full.verdict, full.health.never_read_back.packs), (Verdict::Clean, 0));
    assert_eq!(Store::open_reader(&machine.place).unwrap().quarantined(), []);
}

/// If all blocks of a bad frame are stored elsewhere, nothing is lost and the check says so. The frame stays bad.
#[test]
fn a_healed_store_is_not_damaged() {
    let (machine, file) = two_versions();
    let check = || {
        let store = Store::open_reader(&machine.place).unwrap();
        store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap()
    };
    let before = Store::open_reader(&machine.place).unwrap();
    let before = before.check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!((before.health.never_read_back.packs, before.health.oldest_read_back_unix_ms), (2, None));
    assert_eq!(check().verdict, Verdict::Clean);
    flip(&machine.disk(), &file, IN_FIRST_FRAME);
    let damaged = check();
    assert_eq!(damaged.verdict, Verdict::Damaged);
    let (_, repaired) = capture_again(&machine, KnownCheck::Sample);
    assert!(repaired.contains(&"a@1".to_owned()), "{repaired:?}");
    let healed = check();
    assert_eq!(healed.verdict, Verdict::Leaks, "{:?}", healed.findings);
    let leak = healed.findings.iter().find(|finding| finding.offset.is_some()).unwrap();
    assert!(leak.severity == Severity::Leak && leak.what.contains("stored again"), "{leak:?}");
    assert_eq!(
        (healed.health.never_read_back.packs, healed.health.oldest_read_back_unix_ms.is_some()),
        (0, true)
    );
}

/// Many observations of many processes are merged into a few files, and none is lost.
#[test]
fn observations_are_merged() {
    let (machine, file) = two_versions();
    let health = machine.place.dir().join("health");
    for _ in 0..40 {
        Store::open_reader(&machine.place)
            .unwrap()
            .check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {})
            .unwrap();
    }
    flip(&machine.disk(), &file, IN_FIRST_FRAME);
    notice(&machine, Noticed::Check);
    assert!(machine.disk().list(&health).unwrap().len() > 40);
    drop(Store::open_writer(&machine.place).unwrap());
    assert_eq!(machine.disk().list(&health).unwrap().len(), 1);
    let first = BlockId::of(Kind::Data, &block(1));
    assert!(Store::open_reader(&machine.place).unwrap().quarantined().contains(&first));
}
