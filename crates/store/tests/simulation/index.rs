//! The block index of a store is a cache: missing, damaged, outdated, foreign or impossible to write, it never changes what a store
//! returns, and the next writer makes it again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use platter_image::frame::{Codec, Compressor, FrameBuilder, FrameHeader};
use platter_image::{BlockId, Domain, ErrorKind, FrameAddress, FrameIndex, FrameSource, FrameStore, Kind};
use platter_store::{CheckOptions, CollectRequest, Store, Verdict, rebuild};
use platter_vfs::simulated::{Fault, FaultKind, Operation, SimulatedDisk};
use platter_vfs::{OpenMode, Vfs};

use super::work::{Machine, add_disk, block, draft, publish};

const EVERYTHING_NOW: CollectRequest = CollectRequest {
    now_unix_ms: 1_000_000,
    keep_trash_ms: 0,
    dry_run: false,
    is_confirmed: true,
    compact_percent: 100,
    recompress: None,
    end_leases: false,
};

fn range(first: u64, last: u64) -> Vec<u64> {
    (first..last).collect()
}

fn id(number: u64) -> BlockId {
    BlockId::of(Kind::Data, &block(number))
}

/// A store with blocks 0 to 39, in several packs that the index covers.
fn machine() -> Machine {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 25)).unwrap();
    publish(&store, "b", &range(10, 40)).unwrap();
    assert!(store.damage().is_empty(), "{:?}", store.damage());
    drop(store);
    machine
}

/// The files of the index, the manifest last.
fn files(machine: &Machine) -> Vec<PathBuf> {
    let dir = machine.place.dir().join("index");
    let listed = machine.disk().list(&dir).unwrap();
    let mut files: Vec<PathBuf> = listed.iter().map(|entry| dir.join(&entry.name)).collect();
    files.sort_by_key(|path| path.extension().is_none());
    files
}

/// Asserts that every block can be read, is known to deduplication, and that others are not.
fn assert_complete(store: &Store, context: &str) {
    for number in 0..40 {
        let read = store.read_block(Kind::Data, &id(number));
        let read = read.unwrap_or_else(|error| panic!("{context}: block {number}: {error:?}"));
        assert!(read == block(number), "{context}: block {number}");
    }
    assert!(store.lease(&id(99)).unwrap().is_none(), "{context}");
}

/// Opens the store for reading and for writing. Afterwards the index is whole, and the store clean.
fn assert_recovers(machine: &Machine, context: &str) {
    assert_complete(&Store::open_reader(&machine.place).unwrap(), context);
    let store = Store::open_writer(&machine.place).unwrap();
    assert_complete(&store, context);
    let session = store.session().unwrap();
    for number in 0..40 {
        assert!(session.lookup_and_pin(&id(number)).unwrap().is_some(), "{context}: block {number}");
    }
    assert!(session.lookup_and_pin(&id(99)).unwrap().is_none(), "{context}");
    drop(session);
    publish(&store, "c", &range(40, 60)).unwrap();
    drop(store);
    let store = Store::open_writer(&machine.place).unwrap();
    assert_complete(&store, context);
    drop(store);
    let store = Store::open_reader(&machine.place).unwrap();
    assert_complete(&store, context);
    assert!(store.damage().is_empty(), "{context}: {:?}", store.damage());
    let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_eq!(report.verdict, Verdict::Clean, "{context}: {:#?}", report.findings);
}

#[test]
fn a_damaged_index_is_made_again() {
    let machine = machine();
    let good = machine.disk().fork();
    let all = files(&machine);
    assert!(all.len() >= 2, "{all:?}");
    for file in all {
        let bytes = good.contents(&file).unwrap();
        let mut damages: Vec<(String, Option<Vec<u8>>)> = vec![
            ("missing".into(), None),
            ("empty".into(), Some(Vec::new())),
            ("truncated".into(), Some(bytes[..bytes.len() / 2].to_vec())),
            ("zeros".into(), Some(vec![0; bytes.len()])),
        ];
        // Header, both ends of the entries, the last checksum of a page, fence, filter.
        for at in [0, 9, 30, 45, 4096, 4100, 4096 + 47, 8191, 8193, bytes.len() - 9, bytes.len() - 1] {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 4;
                damages.push((format!("byte {at}"), Some(changed)));
            }
        }
        for (damage, changed) in damages {
            let disk = good.fork();
            match changed {
                Some(changed) => disk.overwrite(&file, &changed),
                None => disk.remove(&file).unwrap(),
            }
            machine.insert(&disk);
            assert_recovers(&machine, &format!("{}: {damage}", file.display()));
        }
    }
}

/// The whole folder is gone, or that of an earlier or later state of the store, or of another store.
#[test]
fn an_index_that_does_not_match_the_store_is_not_believed() {
    let machine = machine();
    let good = machine.disk().fork();
    let before = files(&machine);
    let copy = |from: &SimulatedDisk, names: &[PathBuf], disk: &SimulatedDisk| {
        for name in names {
            let _ = disk.remove(name);
            drop(disk.open(name, OpenMode::Create).unwrap());
            disk.overwrite(name, &from.contents(name).unwrap());
        }
    };
    // A later state: another version, compacted and without the old packs.
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "d", &range(0, 90)).unwrap();
    store.collect(&EVERYTHING_NOW, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    drop(store);
    let later = machine.disk().fork();
    let after = files(&machine);
    for (context, base, from, names) in
        [("an older index", &later, &good, &before), ("an index of the future", &good, &later, &after)]
    {
        let disk = base.fork();
        copy(from, names, &disk);
        machine.insert(&disk);
        if context == "an older index" {
            // It has blocks up to 89, so the test's own block 99 is still unknown.
            assert_complete(&Store::open_reader(&machine.place).unwrap(), context);
        }
        assert_recovers(&machine, context);
    }
    let disk = good.fork();
    before.iter().for_each(|name| disk.remove(name).unwrap());
    machine.insert(&disk);
    assert_recovers(&machine, "no files");
    let other = self::machine();
    let store = Store::open_writer(&other.place).unwrap();
    publish(&store, "x", &range(60, 120)).unwrap();
    drop(store);
    let disk = good.fork();
    before.iter().for_each(|name| disk.remove(name).unwrap());
    copy(&other.disk(), &files(&other), &disk);
    machine.insert(&disk);
    assert_recovers(&machine, "the index of another store");
}

/// A page is damaged while the store is open: everything is still found, in reader and writer.
#[test]
fn damage_that_is_met_later_changes_nothing() {
    let machine = machine();
    let reader = Store::open_reader(&machine.place).unwrap();
    let writer = Store::open_writer(&machine.place).unwrap();
    for file in files(&machine).iter().filter(|file| file.extension().is_some()) {
        let bytes = machine.disk().contents(file).unwrap();
        machine.disk().overwrite(file, &vec![0x55; bytes.len()]);
    }
    assert_complete(&reader, "the reader");
    assert_complete(&writer, "the writer");
    assert!(reader.damage()[0].contains("block index is damaged"), "{:?}", reader.damage());
    publish(&writer, "e", &range(0, 50)).unwrap();
    drop((reader, writer));
    assert_recovers(&machine, "afterwards");
}

/// A read of the index fails, once or always.
#[test]
fn an_index_that_cannot_be_read_is_not_used() {
    let machine = machine();
    for kind in [FaultKind::FlippedBit, FaultKind::Io] {
        for call in 1..40 {
            let reader = Store::open_reader(&machine.place).unwrap();
            let persistent = kind == FaultKind::Io && call > 20;
            let fault = Fault { call, kind, persistent, only: Some(Operation::Read) };
            machine.disk().set_fault(Some(fault));
            for number in 0..40 {
                let read = reader.read_block(Kind::Data, &id(number));
                let is_missing = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Missing);
                assert!(!is_missing, "{kind:?} at call {call}: {read:?}");
                assert!(read.is_err() || read.is_ok_and(|read| read == block(number)), "call {call}");
            }
            machine.disk().set_fault(None);
            assert_complete(&reader, &format!("after {kind:?} at call {call}"));
        }
    }
}

/// A reader in another process keeps reading while the index is replaced again and again, and packs are collected.
#[test]
fn a_reader_beside_a_writer() {
    let machine = machine();
    let reader = Store::open_reader(&machine.place).unwrap();
    let planned: Vec<_> = (0..40).map(|number| reader.lease(&id(number)).unwrap().unwrap()).collect();
    let writer = Store::open_writer(&machine.place).unwrap();
    for round in 0..6_u64 {
        publish(&writer, "d", &range(100 + round * 7, 140 + round * 7)).unwrap();
        assert_complete(&reader, &format!("round {round}"));
        writer.collect(&EVERYTHING_NOW, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
        assert_complete(&reader, &format!("collected, round {round}"));
        let mut stored = Vec::new();
        for lease in &planned {
            reader.read_leased(lease, &mut stored).unwrap();
        }
        reader.refresh().unwrap();
        assert_eq!(reader.read_block(Kind::Data, &id(101 + round * 7)).unwrap(), block(101 + round * 7));
    }
    drop((reader, writer));
    assert_recovers(&machine, "afterwards");
}

/// Without space for the index, everything else works, and the disk is not filled up.
#[test]
fn a_full_disk_has_no_index() {
    let machine = machine();
    // Enough for what follows, but not for the room that stays free while an index is written.
    let free = 250 << 10;
    machine.disk().set_capacity(machine.disk().used() + free);
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "c", &range(40, 80)).unwrap();
    let said = store.damage();
    assert!(said.iter().any(|line| line.contains("index could not be written")), "{said:?}");
    assert_complete(&store, "on a full disk");
    assert!(files(&machine).iter().all(|file| !file.ends_with("room")), "unfinished files are removed");
    // The simulated disk does not give back the space of removed files.
    machine.disk().set_capacity(machine.disk().used() + (64 << 10));
    store.forget(&"b".parse().unwrap(), None).unwrap();
    let report = store.collect(&EVERYTHING_NOW, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    assert!(report.deleted.packs > 0, "{report:?}");
    drop(store);
    let store = Store::open_reader(&machine.place).unwrap();
    assert_eq!(store.read_block(Kind::Data, &id(3)).unwrap(), block(3));
    assert_eq!(store.read_block(Kind::Data, &id(70)).unwrap(), block(70));
    drop(store);
    machine.disk().set_capacity(u64::MAX);
    drop(Store::open_writer(&machine.place).unwrap());
    let store = Store::open_reader(&machine.place).unwrap();
    assert!(store.damage().is_empty());
}

/// The file of a covered pack is gone: its blocks count as missing, and are stored again.
#[test]
fn a_missing_pack_is_noticed() {
    let machine = machine();
    let reader = Store::open_reader(&machine.place).unwrap();
    let pack = reader.pack_id(reader.lease(&id(5)).unwrap().unwrap().place.frame).unwrap().to_string();
    drop(reader);
    let file = machine.place.dir().join("packs").join(&pack[..2]).join(format!("{pack}.pack"));
    machine.disk().remove(&file).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    assert!(store.damage().iter().any(|line| line.contains("unreadable")), "{:?}", store.damage());
    let session = store.session().unwrap();
    let known = (0..40).filter(|number| session.lookup_and_pin(&id(*number)).unwrap().is_some()).count();
    assert!(known < 40, "the pack had some of them");
    drop(session);
    publish(&store, "c", &range(0, 40)).unwrap();
    assert_complete(&store, "stored again");
}

/// Opening a store reads no footers of packs that the index covers.
#[test]
fn opening_reads_the_index_instead_of_the_packs() {
    let machine = machine();
    let store = Store::open_writer(&machine.place).unwrap();
    for number in 0..60 {
        publish(&store, "c", &range(100 + number, 104 + number)).unwrap();
    }
    drop(store);
    let calls = || {
        let before = machine.disk().calls();
        let store = Store::open_reader(&machine.place).unwrap();
        assert!(store.damage().is_empty());
        machine.disk().calls() - before
    };
    let with = calls();
    files(&machine).iter().for_each(|file| machine.disk().remove(file).unwrap());
    let without = calls();
    assert!(with * 2 < without, "{with} calls with an index, {without} without");
}

/// Starts of all frames, up to more than all of a frame.
fn frame_starts(store: &Store) -> Vec<(FrameAddress, usize, Vec<u8>)> {
    let mut starts = Vec::new();
    for number in 0..40 {
        let frame = store.lease(&id(number)).unwrap().unwrap().place.frame;
        for length in [0, 1, 100, frame.length as usize, frame.length as usize + 5_000] {
            let mut stored = vec![1; 7];
            store.read_frame_start(frame, length, &mut stored).unwrap();
            starts.push((frame, length, stored));
        }
    }
    starts
}

/// Frames are the same whether the index is in memory, whether the outlines of packs are used or their directories, and
/// whatever is wrong with a footer.
#[test]
fn a_damaged_footer_changes_no_frame() {
    let machine = machine();
    let good = machine.disk().fork();
    files(&machine).iter().for_each(|file| machine.disk().remove(file).unwrap());
    let expected = frame_starts(&Store::open_reader(&machine.place).unwrap());
    assert!(
        expected.iter().all(|(frame, length, stored)| stored.len() == (*length).min(frame.length as usize))
    );
    machine.insert(&good.fork());
    let store = Store::open_reader(&machine.place).unwrap();
    let packs: BTreeSet<_> =
        expected.iter().map(|start| store.pack_id(start.0).unwrap().to_string()).collect();
    for context in ["outlines", "then directories"] {
        assert!(frame_starts(&store) == expected, "{context}");
    }
    drop(store);
    for pack in packs {
        let file = machine.place.dir().join("packs").join(&pack[..2]).join(format!("{pack}.pack"));
        let bytes = good.contents(&file).unwrap();
        let footer = bytes.windows(4).rposition(|window| window == b"PLpf").unwrap();
        for at in (footer..bytes.len()).step_by(7) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let disk = good.fork();
            disk.overwrite(&file, &changed);
            machine.insert(&disk);
            let store = Store::open_reader(&machine.place).unwrap();
            assert!(frame_starts(&store) == expected, "pack {pack}, byte {at}");
        }
    }
}

/// A single block is read without the ids of all other blocks of its pack; many blocks, with them.
#[test]
fn the_directory_is_read_only_for_many_frames() {
    let mut machine = Machine::new();
    machine.place = machine.place.clone().with_pack_length_target(8 << 20);
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &range(0, 3_000)).unwrap();
    drop(store);
    let store = Store::open_reader(&machine.place).unwrap();
    let read = |number| {
        let before = machine.disk().bytes_read();
        assert_eq!(store.read_block(Kind::Data, &id(number)).unwrap(), block(number));
        machine.disk().bytes_read() - before
    };
    let ids = 3_000 * BlockId::LEN as u64;
    read(0);
    let few: u64 = (1..11).map(|number| read(250 * number)).sum();
    assert!(few < ids, "{few} bytes for 10 blocks, and {ids} for all ids");
    let many: Vec<u64> = (0..100).map(|number| read(20 * number)).collect();
    assert_eq!(many.iter().filter(|bytes| **bytes > ids).count(), 1, "{many:?}");
}

/// A page of a frame that is stored raw is read without its neighbours, and only if it is right.
#[test]
fn a_page_is_read_without_the_rest_of_its_frame() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let id = |page: &[u8]| BlockId::of(Kind::Page, page);
    let page = |number: u8| (0..200).flat_map(|part| id(&[number, part]).0).collect();
    let pages: Vec<Vec<u8>> = (0..9).map(page).collect();
    let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
    pages.iter().for_each(|page| frame.push(id(page), page));
    let frame = frame.encode(&mut Compressor::new(3).unwrap()).unwrap();
    assert_eq!(FrameHeader::parse(&frame.stored).unwrap().codec, Codec::Raw);
    let session = store.session().unwrap();
    session.append(&frame).unwrap();
    let disk = add_disk(&session, &[1, 2]).unwrap();
    session.publish(draft("a", disk).unwrap()).unwrap();
    drop(store);
    let store = Store::open_reader(&machine.place).unwrap();
    let read = |page: &[u8]| {
        let before = machine.disk().bytes_read();
        let read = store.read_block(Kind::Page, &id(page));
        (read, machine.disk().bytes_read() - before)
    };
    let _ = read(&pages[8]);
    for page in &pages {
        let (found, bytes) = read(page);
        assert!(found.unwrap() == *page);
        assert!(bytes * 4 < frame.stored.len() as u64, "{bytes} of {} bytes", frame.stored.len());
    }
    let place = store.locate(&id(&pages[3])).unwrap().unwrap();
    let pack = store.pack_id(place.frame).unwrap().to_string();
    let file = machine.place.dir().join("packs").join(&pack[..2]).join(format!("{pack}.pack"));
    let mut bytes = machine.disk().contents(&file).unwrap();
    let at = bytes.windows(64).position(|window| *window == pages[3][..64]).unwrap();
    bytes[at + 5] ^= 1;
    machine.disk().overwrite(&file, &bytes);
    for (number, page) in pages.iter().enumerate() {
        let found = read(page).0.map_err(|error| error.kind());
        assert!(if number == 3 { found == Err(ErrorKind::Corrupt) } else { found.unwrap() == *page });
    }
}

#[test]
fn a_rebuild_makes_the_index_again() {
    let machine = machine();
    let before = files(&machine);
    let report = rebuild(&machine.place).unwrap();
    assert_eq!(report.versions.len(), 2);
    assert_ne!(files(&machine), before);
    assert_recovers(&machine, "rebuilt");
}
