//! The index against a simple model, on a simulated disk: lookups, crashes at every call, failing calls, damage in every byte, readers
//! beside a writer, and limited memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use platter_image::{BlockId, ErrorKind, Kind};
use platter_index::{Entry, IndexFolder, NewPack, Snapshot};
use platter_records::{PackId, StoreId};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};
use proptest::prelude::*;

const DIR: &str = "/store/index";
const STORE: StoreId = StoreId([3; 16]);
const MEMORY: u64 = 1 << 20;

fn folder(disk: &SimulatedDisk) -> IndexFolder<'_> {
    IndexFolder::new(disk, Path::new(DIR), STORE, MEMORY)
}

fn id(number: u64) -> BlockId {
    BlockId::of(Kind::Data, &number.to_le_bytes())
}

fn pack_id(number: u64) -> PackId {
    PackId(id(number).0[..16].try_into().unwrap())
}

/// The place of each block, by pack.
type Model = BTreeMap<PackId, Vec<Entry>>;

/// A pack with these blocks, two in each frame.
fn pack(number: u64, blocks: impl Iterator<Item = u64>) -> NewPack {
    let entries = blocks.enumerate().map(|(at, block)| Entry {
        id: id(block),
        pack: 0,
        offset: 64 + (at as u64 / 2) * 1000,
        slot: at as u16 % 2,
        length: 900 + number as u32,
    });
    NewPack { id: pack_id(number), entries: entries.collect() }
}

fn put(model: &mut Model, packs: &[NewPack]) {
    model.extend(packs.iter().map(|pack| (pack.id, pack.entries.clone())));
}

/// Asserts that the snapshot covers exactly the packs of the model, and has their blocks and no others.
fn assert_same(snapshot: Option<&Snapshot>, model: &Model, blocks: u64, context: &str) {
    let packs: BTreeMap<u32, PackId> =
        snapshot.iter().flat_map(|snapshot| snapshot.packs()).map(|pack| (pack.number, pack.id)).collect();
    let covered: BTreeSet<PackId> = packs.values().copied().collect();
    assert_eq!(covered, model.keys().copied().collect(), "{context}");
    let key = |pack: PackId, entry: &Entry| (pack, entry.offset, entry.slot, entry.length);
    let mut expected: BTreeMap<BlockId, BTreeSet<_>> = BTreeMap::new();
    for (pack, entries) in model {
        for entry in entries {
            expected.entry(entry.id).or_default().insert(key(*pack, entry));
        }
    }
    let mut found = Vec::new();
    for block in 0..blocks {
        found.clear();
        if let Some(snapshot) = snapshot {
            snapshot.find(&id(block), &mut found).unwrap();
        }
        let places: BTreeSet<_> = found.iter().map(|entry| key(packs[&entry.pack], entry)).collect();
        assert_eq!(places, expected.remove(&id(block)).unwrap_or_default(), "{context}: block {block}");
        assert_eq!(places.len(), found.len(), "{context}: block {block} has a place twice");
    }
    if let Some(snapshot) = snapshot {
        assert_eq!(snapshot.len(), model.values().map(|entries| entries.len() as u64).sum::<u64>());
        for (number, id) in packs {
            let mut entries = snapshot.entries_of(number).unwrap();
            entries.iter_mut().for_each(|entry| entry.pack = 0);
            assert_eq!(&entries, &model[&id], "{context}: the entries of a pack");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Packs come and go; blocks are in several packs. A reader that opens the index sees the same as the writer.
    #[test]
    fn behaves_like_a_map(
        steps in prop::collection::vec(
            (0..3_u64, prop::collection::vec((0..400_u64, 0..300_u64), 0..4), any::<u8>()), 1..14),
    ) {
        let disk = SimulatedDisk::new(1);
        let (mut model, mut snapshot, mut next) = (Model::new(), None::<Arc<Snapshot>>, 0);
        for (number, (_, packs, keep)) in steps.iter().enumerate() {
            let packs: Vec<NewPack> = packs.iter().map(|(first, count)| {
                next += 1;
                pack(next, *first..first + count)
            }).collect();
            // Sometimes a quarter of the packs goes.
            let keeps = |pack: PackId| *keep < 128 || pack.0[0] % 4 != keep % 4;
            model.retain(|pack, _| keeps(*pack));
            put(&mut model, &packs);
            snapshot = Some(folder(&disk).add(snapshot.as_ref(), packs, &keeps).unwrap());
            let context = format!("step {number}");
            assert_same(snapshot.as_deref(), &model, 700, &context);
            let opened = folder(&disk).open(None).unwrap();
            assert_same(opened.as_deref(), &model, 700, &context);
        }
    }
}

/// Four flushes, the last of which merges. Some packs are dropped.
fn work(disk: &SimulatedDisk, states: &mut Vec<Model>) -> platter_image::Result<()> {
    let mut model = Model::new();
    states.push(model.clone());
    let mut snapshot = folder(disk).open(None)?;
    for number in 0..5_u64 {
        let packs = vec![pack(number, number * 30..number * 30 + 90)];
        let dropped = pack_id(0);
        let keeps = |pack: PackId| number < 3 || pack != dropped;
        model.retain(|pack, _| keeps(*pack));
        put(&mut model, &packs);
        states.push(model.clone());
        snapshot = Some(folder(disk).add(snapshot.as_ref(), packs, &keeps)?);
    }
    Ok(())
}

/// Power fails at every call: the old index or the new one is there, and the next writer continues.
#[test]
fn a_power_failure_at_any_call_leaves_the_old_index_or_the_new_one() {
    for call in 1.. {
        let mut is_done = false;
        for (seed, profile) in (0..).zip(CrashProfile::EVERY) {
            let disk = SimulatedDisk::new(call);
            disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
            let mut states = Vec::new();
            is_done = work(&disk, &mut states).is_ok();
            disk.crash(profile, seed);
            let context = format!("call {call}, {profile:?}");
            let opened = folder(&disk).open(None).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let covered = opened.iter().flat_map(|opened| opened.packs()).map(|pack| pack.id).collect();
            let state = states.iter().rev().take(2);
            let mut matching =
                state.filter(|state| state.keys().copied().collect::<BTreeSet<_>>() == covered);
            let state = matching.next_back().unwrap_or_else(|| panic!("{context}: {covered:?}"));
            assert_same(opened.as_deref(), state, 240, &context);
            let mut state = state.clone();
            let packs = vec![pack(77, 0..10)];
            put(&mut state, &packs);
            let added = folder(&disk).add(opened.as_ref(), packs, &|_| true);
            let added = added.unwrap_or_else(|error| panic!("{context}: {error:?}"));
            assert_same(Some(&added), &state, 240, &context);
            let files = disk.list(Path::new(DIR)).unwrap().len();
            assert_eq!(files, 1 + added.segments(), "{context}: files that nothing names");
        }
        if is_done {
            return;
        }
    }
}

/// A call fails: the change fails or happens, and the index before it stays usable.
#[test]
fn after_a_failed_call_the_index_is_as_before() {
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::ShortWrite] {
        for call in 1.. {
            let disk = SimulatedDisk::new(call);
            let mut states = Vec::new();
            disk.set_fault(Some(Fault { call, kind, persistent: false, only: None }));
            let done = work(&disk, &mut states);
            if disk.fault_hits() == 0 {
                assert!(done.is_ok());
                break;
            }
            disk.set_fault(None);
            let context = format!("{kind:?} at call {call}: {done:?}");
            let opened = folder(&disk).open(None).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let covered = opened.iter().flat_map(|opened| opened.packs()).map(|pack| pack.id).collect();
            let state = states.iter().rev().take(2);
            let mut state = state.filter(|state| state.keys().copied().collect::<BTreeSet<_>>() == covered);
            assert_same(opened.as_deref(), state.next().unwrap(), 240, &context);
        }
    }
}

/// On a full disk nothing is left behind.
#[test]
fn a_full_disk_keeps_no_unfinished_files() {
    let disk = SimulatedDisk::new(1);
    let first = folder(&disk).add(None, vec![pack(1, 0..500)], &|_| true).unwrap();
    let used = disk.used();
    disk.set_capacity(used + (256 << 10) + 20_000);
    let error = folder(&disk).add(Some(&first), vec![pack(2, 0..3000)], &|_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 2);
    folder(&disk).remove().unwrap();
    assert!(folder(&disk).open(None).unwrap().is_none());
    assert!(disk.list(Path::new(DIR)).unwrap().is_empty());
}

/// Every byte of every file is changed in turn. The answer is right, or an error.
#[test]
fn a_changed_byte_never_changes_an_answer() {
    let disk = SimulatedDisk::new(1);
    let mut model = Model::new();
    let mut snapshot = None;
    for number in 0..2 {
        let packs = vec![pack(number, number * 50..number * 50 + 100)];
        put(&mut model, &packs);
        snapshot = Some(folder(&disk).add(snapshot.as_ref(), packs, &|_| true).unwrap());
    }
    let mut errors = 0;
    for file in disk.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(&file.name);
        let bytes = disk.contents(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            disk.overwrite(&path, &changed);
            let opened = match folder(&disk).open(None) {
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused), "{error:?}");
                    errors += 1;
                    continue;
                }
                opened => opened.unwrap().unwrap(),
            };
            let mut found = Vec::new();
            // Often enough that the filter is loaded.
            for block in (0..152).chain(0..8) {
                found.clear();
                if let Err(error) = opened.find(&id(block), &mut found) {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    errors += 1;
                    break;
                }
                let places = model.values().flatten().filter(|entry| entry.id == id(block)).count();
                assert_eq!(found.len(), places, "{}, byte {at}, block {block}", file.name);
            }
        }
        disk.overwrite(&path, &bytes);
    }
    assert!(errors > 10_000, "{errors} changes were noticed");
}

/// A reader keeps its snapshot while the index is replaced and even removed, and sees the new one when it opens it.
#[test]
fn readers_keep_what_they_opened() {
    let disk = SimulatedDisk::new(1);
    let mut model = Model::new();
    let mut writer = folder(&disk).add(None, vec![pack(0, 0..300)], &|_| true).unwrap();
    put(&mut model, &[pack(0, 0..300)]);
    let reader = folder(&disk).open(None).unwrap().unwrap();
    let old = model.clone();
    for number in 1..9 {
        let packs = vec![pack(number, number..number + 300)];
        put(&mut model, &packs);
        writer = folder(&disk).add(Some(&writer), packs, &|_| true).unwrap();
    }
    assert_same(Some(&reader), &old, 320, "an old snapshot");
    let newer = folder(&disk).open(Some(&reader)).unwrap().unwrap();
    assert_same(Some(&newer), &model, 320, "the new snapshot");
    assert!(Arc::ptr_eq(&newer, &folder(&disk).open(Some(&newer)).unwrap().unwrap()));
    folder(&disk).remove().unwrap();
    assert_same(Some(&newer), &model, 320, "a removed index");
}

#[test]
fn an_index_of_another_store_is_not_used() {
    let disk = SimulatedDisk::new(1);
    folder(&disk).add(None, vec![pack(0, 0..9)], &|_| true).unwrap();
    let other = IndexFolder::new(&disk, Path::new(DIR), StoreId([4; 16]), MEMORY);
    assert_eq!(other.open(None).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// With little memory, filters are small and fences are few. All answers stay right.
#[test]
fn memory_is_limited() {
    let disk = SimulatedDisk::new(1);
    let (mut model, mut snapshot) = (Model::new(), None);
    for number in 0..3_u64 {
        let packs = vec![pack(number, number * 20_000..number * 20_000 + 30_000)];
        put(&mut model, &packs);
        snapshot = Some(folder(&disk).add(snapshot.as_ref(), packs, &|_| true).unwrap());
    }
    let list = 4096;
    for memory in [0, 20_000, 60_000, MEMORY] {
        let limited = IndexFolder::new(&disk, Path::new(DIR), STORE, memory);
        let opened = limited.open(None).unwrap().unwrap();
        assert!(opened.memory_bytes() < list, "nothing is loaded before it is needed");
        assert_same(Some(&opened), &model, 75_000, &format!("{memory} bytes"));
        assert!(
            opened.memory_bytes() as u64 <= list as u64 + memory.max(40_000),
            "{memory}: {}",
            opened.memory_bytes()
        );
    }
}
