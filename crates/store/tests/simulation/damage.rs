//! Damage as a matrix: every byte of a pack is flipped, and a pack is truncated to every length. `check` reports it. Reading
//! returns the right bytes or an error, and never panics. `rebuild` restores what is complete.

use std::path::PathBuf;

use platter_image::{BlockId, ErrorKind, FrameIndex, Kind};
use platter_records::PackId;
use platter_store::{CheckOptions, CollectRequest, Severity, Store, Verdict, rebuild};
use platter_vfs::simulated::{Fault, FaultKind, Operation, SimulatedDisk};
use platter_vfs::{OpenMode, Vfs};
use twox_hash::XxHash3_64;

use super::work::{Machine, block, publish};

const NUMBERS: [u64; 3] = [1, 2, 3];

/// A machine whose store has one version in one small pack. Returns the pack's file and the disk as well.
fn small_store() -> (Machine, PathBuf, SimulatedDisk) {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &NUMBERS).unwrap();
    let disk = machine.disk();
    let file = only_pack(&machine, &disk);
    (machine, file, disk)
}

fn only_pack(machine: &Machine, disk: &SimulatedDisk) -> PathBuf {
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    let packs: Vec<PathBuf> = list(&machine.place.dir().join("packs")).iter().flat_map(list).collect();
    assert_eq!(packs.len(), 1);
    packs[0].clone()
}

/// Reads every block of the damaged store and runs a check.
fn examine(machine: &Machine, pack: PackId, context: &str) {
    let store = Store::open_reader(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    for number in NUMBERS {
        let contents = block(number);
        match store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents)) {
            Ok(read) => assert!(read == contents, "{context}: wrong bytes"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Missing),
                    "{context}: {error:?}"
                );
            }
        }
    }
    let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_eq!(report.verdict, Verdict::Damaged, "{context}");
    let named = report
        .findings
        .iter()
        .any(|finding| finding.pack == Some(pack) && finding.severity == Severity::Damage);
    assert!(named, "{context}: {:?}", report.findings);
}

fn pack_id(file: &std::path::Path) -> PackId {
    PackId::from_hex(file.file_stem().unwrap().to_str().unwrap()).unwrap()
}

#[test]
fn every_byte_of_a_pack_is_flipped() {
    let (machine, file, disk) = small_store();
    let good = disk.contents(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        machine.insert(&disk.fork());
        machine.disk().overwrite(&file, &bad);
        examine(&machine, pack_id(&file), &format!("byte {at} of {} flipped", good.len()));
    }
    // With the bytes restored, a check that reads them lifts the quarantine.
    machine.disk().overwrite(&file, &good);
    let store = Store::open_reader(&machine.place).unwrap();
    assert_eq!(
        store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap().verdict,
        Verdict::Clean
    );
}

#[test]
fn a_pack_is_truncated_to_every_length() {
    let (machine, file, disk) = small_store();
    let good = disk.contents(&file).unwrap();
    for length in 0..good.len() {
        disk.overwrite(&file, &good[..length]);
        examine(&machine, pack_id(&file), &format!("truncated to {length} of {}", good.len()));
    }
}

/// A quick check reads only headers, and still detects a frame that differs from its row in the footer.
#[test]
fn a_quick_check_compares_headers() {
    let (machine, file, disk) = small_store();
    let mut bytes = disk.contents(&file).unwrap();
    bytes[64 + 20] ^= 1;
    disk.overwrite(&file, &bytes);
    let store = Store::open_reader(&machine.place).unwrap();
    let report = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.verdict, Verdict::Damaged);
    let hit = report.findings.iter().find(|finding| !finding.versions.is_empty()).unwrap();
    assert_eq!(hit.versions[0].to_string(), "a@1");
}

/// A footer with a valid checksum lists a block that its frame does not have. The checksum of the frame's header covers the ids,
/// so even a quick check detects it, and no block is returned under a wrong id.
#[test]
fn wrong_ids_in_a_footer_are_damage() {
    let (machine, file, disk) = small_store();
    let good = disk.contents(&file).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let trailer = good.len() - 64;
    let (footer, frames) = (number(&good, trailer + 8), number(&good, trailer + 24) as u32 as usize);
    let ids = footer + 16 + 24 * frames..trailer;
    assert_eq!(ids.len() % 32, 0);
    for at in ids.step_by(32) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let sum = XxHash3_64::oneshot(&bad[footer..trailer]);
        bad[trailer + 32..trailer + 40].copy_from_slice(&sum.to_le_bytes());
        let sum = XxHash3_64::oneshot(&bad[trailer..trailer + 56]);
        bad[trailer + 56..].copy_from_slice(&sum.to_le_bytes());
        disk.overwrite(&file, &bad);
        examine(&machine, pack_id(&file), &format!("the id at {at}"));
        let store = Store::open_reader(&machine.place).unwrap();
        assert!(store.damage().is_empty(), "the footer's checksum is right");
        let report = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
        let named = report.findings.iter().find(|finding| finding.pack == Some(pack_id(&file))).unwrap();
        assert!(named.offset.is_some() && named.what.contains("checksum"), "{named:?}");
    }
}

/// A missing pack is one finding, with the blocks and versions that need it, as far as the index knows.
#[test]
fn a_missing_pack_is_reported() {
    for has_index in [true, false] {
        let (machine, file, disk) = small_store();
        disk.remove(&file).unwrap();
        if !has_index {
            let index = machine.place.dir().join("index");
            disk.list(&index).unwrap().iter().for_each(|it| disk.remove(&index.join(&it.name)).unwrap());
        }
        let store = Store::open_reader(&machine.place).unwrap();
        let report = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
        let of_pack: Vec<_> =
            report.findings.iter().filter(|finding| finding.pack == Some(pack_id(&file))).collect();
        let [lost] = of_pack[..] else { panic!("{of_pack:?}") };
        let place = if has_index { lost } else { report.findings.iter().find(|it| it.blocks > 0).unwrap() };
        // Its root cannot be read, so nothing is known of what the recipe names.
        assert_eq!((place.blocks, place.versions.len()), (1, 1), "{:?}", report.findings);
        assert!(report.findings.len() <= 4, "{:?}", report.findings);
    }
}

/// Two versions, of which the second one needs only some of the blocks of the first. Returns the offsets of the frames with the first
/// version's data, in its pack.
fn two_versions(numbers: &[u64]) -> (Machine, PathBuf, Vec<usize>) {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", numbers).unwrap();
    let disk = machine.disk();
    let mut places = Vec::new();
    for number in numbers {
        let place = store.locate(&BlockId::of(Kind::Data, &block(*number))).unwrap().unwrap();
        places.push((store.pack_id(place.frame).unwrap(), place.frame.offset as usize));
    }
    publish(&store, "b", &[numbers[0], 1000]).unwrap();
    drop(store);
    let pack = places[0].0;
    places.retain(|place| place.0 == pack);
    places.dedup();
    let folder = machine.place.dir().join("packs");
    let folders = disk.list(&folder).unwrap().into_iter().map(|it| folder.join(it.name));
    let mut files =
        folders.flat_map(|it| disk.list(&it).unwrap().into_iter().map(move |file| it.join(file.name)));
    let file = files.find(|file| pack_id(file) == pack).unwrap();
    (machine, file, places.into_iter().map(|(_, offset)| offset).collect())
}

fn damage_frames(machine: &Machine, file: &std::path::Path, offsets: &[usize]) {
    let mut bytes = machine.disk().contents(file).unwrap();
    offsets.iter().for_each(|offset| bytes[offset + 300] ^= 1);
    machine.disk().overwrite(file, &bytes);
}

fn check_contents(machine: &Machine) -> platter_store::CheckReport {
    let store = Store::open_reader(&machine.place).unwrap();
    store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap()
}

/// However many frames of a pack are damaged, it is one finding, with all blocks and versions.
#[test]
fn a_damaged_pack_is_one_finding() {
    let (machine, file, offsets) = two_versions(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(offsets.len() > 1, "{offsets:?}");
    damage_frames(&machine, &file, &offsets);
    let report = check_contents(&machine);
    let [lost] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((lost.severity, lost.frames), (Severity::Damage, offsets.len() as u64));
    assert!(lost.blocks >= lost.frames && lost.bytes >= 512 * lost.blocks, "{lost:?}");
    let names: Vec<String> = lost.versions.iter().map(ToString::to_string).collect();
    assert_eq!((names, lost.pack), (vec!["a@1".to_owned(), "b@1".to_owned()], Some(pack_id(&file))));
}

/// What only forgotten versions needed is no damage of the store, and goes with the next collection.
#[test]
fn what_no_version_needs_is_no_damage() {
    let (machine, file, offsets) = two_versions(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    // The first frame has a block that `b` needs.
    damage_frames(&machine, &file, &offsets[1..]);
    assert_eq!(check_contents(&machine).verdict, Verdict::Damaged);
    Store::open_writer(&machine.place).unwrap().forget(&"a".parse().unwrap(), None).unwrap();
    let report = check_contents(&machine);
    let [lost] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((report.verdict, lost.severity), (Verdict::Leaks, Severity::Leak));
    assert!(lost.what.contains("no version needs") && lost.versions.is_empty(), "{lost:?}");
    let store = Store::open_writer(&machine.place).unwrap();
    let request = CollectRequest {
        now_unix_ms: 1_000,
        keep_trash_ms: 0,
        dry_run: false,
        is_confirmed: true,
        compact_percent: 100,
        recompress: None,
        end_leases: false,
    };
    store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    drop(store);
    assert_eq!(check_contents(&machine).verdict, Verdict::Clean, "it was collected");
    // What `b` needs is damage as before.
    let (machine, file, offsets) = two_versions(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    damage_frames(&machine, &file, &offsets);
    Store::open_writer(&machine.place).unwrap().forget(&"a".parse().unwrap(), None).unwrap();
    let report = check_contents(&machine);
    assert_eq!((report.verdict, report.findings[0].blocks), (Verdict::Damaged, 1), "{:?}", report.findings);
}

/// A process without open files learns nothing about the store: whatever it asks fails, and nothing is quarantined.
#[test]
fn too_few_open_files_are_no_damage() {
    let (machine, _, disk) = small_store();
    let mut failed = 0;
    for call in (1..).step_by(3) {
        let only = Some(Operation::Open);
        disk.set_fault(Some(Fault { call, kind: FaultKind::NoFiles, persistent: true, only }));
        let options = CheckOptions { read_data: true, ..Default::default() };
        let checked = Store::open_reader(&machine.place).and_then(|store| store.check(options, &mut |_| {}));
        let is_over = disk.fault_hits() == 0;
        match checked {
            Err(error) => {
                failed += 1;
                assert_eq!(error.kind(), ErrorKind::Io, "call {call}: {error:?}");
            }
            Ok(report) => {
                assert_ne!(report.verdict, Verdict::Damaged, "call {call}: {:?}", report.findings);
            }
        }
        disk.set_fault(None);
        assert_eq!(Store::open_reader(&machine.place).unwrap().quarantined(), [], "call {call}");
        if is_over {
            break;
        }
        assert!(call < 10_000, "it never succeeds");
    }
    assert!(failed > 3, "{failed}");
}

/// While a data block is quarantined, publishing reads no more of the change log than otherwise.
#[test]
fn a_quarantined_block_makes_publishing_no_slower() {
    let (machine, file, offsets) = two_versions(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for number in 0..300 {
            store.protect(&"a".parse().unwrap(), None, number % 2 == 0).unwrap();
        }
    }
    let log = machine.disk().contents(&machine.place.dir().join("changes.log")).unwrap().len() as u64;
    let publish_two = |first: u64| {
        let store = Store::open_writer(&machine.place).unwrap();
        publish(&store, "c", &[first]).unwrap();
        let before = machine.disk().bytes_read();
        publish(&store, "c", &[first + 1]).unwrap();
        (machine.disk().bytes_read() - before, store.quarantined().len())
    };
    let (usual, quarantined) = publish_two(2000);
    assert_eq!(quarantined, 0);
    damage_frames(&machine, &file, &offsets[1..]);
    check_contents(&machine);
    let (read, quarantined) = publish_two(3000);
    assert!(quarantined > 0 && read < usual + log / 2, "{read} bytes instead of {usual}, the log has {log}");
}

/// The pack with a footer that says that all frames were proven.
fn good_mended(good: &[u8]) -> Vec<u8> {
    let mut mended = good.to_vec();
    let trailer = mended.len() - 64;
    mended[trailer + 6] = 1;
    let sum = XxHash3_64::oneshot(&mended[trailer..trailer + 56]);
    mended[trailer + 56..].copy_from_slice(&sum.to_le_bytes());
    mended
}

/// A pack that the catalog does not list has a version record. The publish is finished if no frame before the record is
/// damaged, and only then.
#[test]
fn a_publish_that_lacked_only_the_commit_is_finished() {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    let before = machine.disk().fork();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &NUMBERS).unwrap();
    let packs = machine.place.dir().join("packs");
    let folder = packs.join(&machine.disk().list(&packs).unwrap()[0].name);
    let file = folder.join(&machine.disk().list(&folder).unwrap()[0].name);
    let good = machine.disk().contents(&file).unwrap();
    for damaged_byte in [None, Some(64 + 100)] {
        let (disk, mut bytes) = (before.fork(), good.clone());
        // Skips the fork's next random id, which would be the id of this pack.
        disk.random_id().unwrap();
        disk.create_dir(&folder).unwrap();
        drop(disk.open(&file, OpenMode::CreateNew).unwrap());
        damaged_byte.into_iter().for_each(|at: usize| bytes[at] ^= 1);
        disk.overwrite(&file, &bytes);
        machine.insert(&disk);
        let store = Store::open_writer(&machine.place).unwrap();
        let finished: Vec<String> =
            store.salvaged().unwrap().versions.iter().map(ToString::to_string).collect();
        let expected: &[&str] = if damaged_byte.is_none() { &["a@1"] } else { &[] };
        assert_eq!(finished, expected);
        // Its frames stay in place. If the first frame is damaged, the chain is empty and the pack is removed.
        assert_eq!(disk.contents(&file), damaged_byte.is_none().then_some(good_mended(&good)));
        assert_eq!(
            store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap().verdict,
            Verdict::Clean
        );
    }
}

/// The disk returns a wrong bit in any one read: the result is the right bytes or an error.
#[test]
fn a_wrong_bit_in_any_read() {
    let (machine, _, disk) = small_store();
    for call in 1..80 {
        let fault =
            Fault { call, kind: FaultKind::FlippedBit, persistent: false, only: Some(Operation::Read) };
        disk.set_fault(Some(fault));
        if let Ok(store) = Store::open_reader(&machine.place) {
            for number in NUMBERS {
                let contents = block(number);
                let read = store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents));
                assert!(read.is_err() || read.is_ok_and(|read| read == contents), "call {call}");
            }
        }
    }
}

/// A damaged or missing footer loses nothing: frames can be verified by themselves, their contents determine the ids, and a
/// rebuild writes the footer again. Readers find all blocks even before that.
#[test]
fn rebuild_restores_a_lost_footer() {
    for lost in ["a byte", "the trailer", "all"] {
        let (machine, file, disk) = small_store();
        let bytes = disk.contents(&file).unwrap();
        let trailer = bytes.len() - 64;
        let footer = u64::from_le_bytes(bytes[trailer + 8..trailer + 16].try_into().unwrap()) as usize;
        let left = match lost {
            "a byte" => bytes.len() - 1,
            "the trailer" => trailer,
            _ => footer,
        };
        disk.overwrite(&file, &bytes[..left]);
        let read_all = || {
            let store = Store::open_reader(&machine.place).unwrap();
            let read = |contents: &[u8]| store.read_block(Kind::Data, &BlockId::of(Kind::Data, contents));
            NUMBERS.iter().for_each(|number| assert!(read(&block(*number)).unwrap() == block(*number)));
            store
        };
        assert_eq!(read_all().damage().len(), 1);
        let report = rebuild(&machine.place).unwrap();
        assert_eq!((report.packs, report.packs_taken_over, report.versions.len()), (0, 1, 1), "{lost}");
        let store = read_all();
        assert_eq!(
            store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap().verdict,
            Verdict::Clean
        );
        let new = disk.contents(&only_pack(&machine, &disk)).unwrap();
        assert!(new[64..trailer] == bytes[64..trailer], "{lost}: frames and footer are unchanged");
        assert!(file == only_pack(&machine, &disk), "{lost}: same pack");
    }
}

/// Whatever is damaged in a pack, a rebuild succeeds. It loses no name and writes damaged records again. Only if catalog
/// and change log are missing too, names are lost with their records, and the rebuild reports it.
#[test]
fn rebuild_survives_any_damage_of_a_pack() {
    let (machine, file, disk) = small_store();
    let good = disk.contents(&file).unwrap();
    let (mut lost, mut written) = (0, 0);
    for at in (64..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        for is_alone in [false, true] {
            let disk = disk.fork();
            machine.insert(&disk);
            disk.overwrite(&file, &bad);
            for gone in ["catalog.sqlite", "changes.log"].into_iter().filter(|_| is_alone) {
                disk.remove(&machine.place.dir().join(gone)).unwrap();
            }
            let context = format!("byte {at}, alone: {is_alone}");
            let report = rebuild(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            lost += usize::from(report.versions.is_empty());
            assert!(is_alone || report.versions.len() == 1, "{context}: {report:?}");
            assert!(!is_alone || !report.notes.is_empty(), "{context}");
            written += usize::from(report.notes.iter().any(|note| note.contains("written again")));
            let packs = pack_count(&machine, &disk);
            assert_eq!(rebuild(&machine.place).unwrap().versions, report.versions, "{context}");
            assert_eq!(pack_count(&machine, &disk), packs, "{context}: nothing is copied again");
            let store = Store::open_writer(&machine.place).unwrap();
            let found = store.check(CheckOptions::default(), &mut |_| {}).unwrap().findings;
            let is_left = |found: &&platter_store::Finding| {
                let is_of_pack = found.pack.is_some() && found.offset.is_none();
                found.severity == Severity::Damage && (is_of_pack || found.what.starts_with("version record"))
            };
            let left: Vec<_> = found.iter().filter(is_left).collect();
            assert!(left.is_empty(), "{context}: {left:?}");
        }
    }
    assert!(lost > 0 && written > 0);
}

fn pack_count(machine: &Machine, disk: &SimulatedDisk) -> usize {
    let packs = machine.place.dir().join("packs");
    let folders = disk.list(&packs).unwrap();
    folders.iter().map(|folder| disk.list(&packs.join(&folder.name)).unwrap().len()).sum()
}

/// The catalog or `store.json` is missing or garbage: a rebuild restores every version.
#[test]
fn rebuild_works_from_packs_alone() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for (image, first) in [("a", 0), ("b/c", 5), ("a", 10)] {
            publish(&store, image, &(first..first + 9).collect::<Vec<u64>>()).unwrap();
        }
    }
    let catalog = machine.place.dir().join("catalog.sqlite");
    let good = machine.disk();
    for damage in ["missing", "garbage", "format"] {
        let disk = good.fork();
        machine.insert(&disk);
        match damage {
            "missing" => disk.remove(&catalog).unwrap(),
            "garbage" => disk.overwrite(&catalog, &[0x55; 9000]),
            _ => disk.remove(&machine.place.dir().join("store.json")).unwrap(),
        }
        assert!(Store::open_reader(&machine.place).is_err(), "{damage}");
        let report = rebuild(&machine.place).unwrap();
        let names: Vec<String> = report.versions.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a@1", "a@2", "b/c@1"], "{damage}");
        assert_eq!(report.reappeared.is_some(), damage == "format");
        let store = Store::open_writer(&machine.place).unwrap();
        assert_eq!(
            store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap().verdict,
            Verdict::Clean
        );
        assert_eq!(publish(&store, "a", &[1]).unwrap().name.number, 3);
    }
}
