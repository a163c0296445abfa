//! Packs are damaged, catalog and change log may be lost, and the rebuild is interrupted at any call: whatever could be read
//! before can be read after the next rebuild.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platter_image::{BlockId, ErrorKind, Kind};
use platter_records::VersionName;
use platter_store::{CheckOptions, CollectRequest, Store, rebuild};
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};
use platter_vfs::{OpenMode, Vfs};

use super::collect::{AT_ONCE, collect};
use super::work::{Machine, Model, add_disk, block, draft, publish, verify};

/// The blocks of all versions in the test's store.
const BLOCKS: std::ops::Range<u64> = 0..30;

/// The files of all packs.
pub(crate) fn packs(machine: &Machine) -> Vec<PathBuf> {
    let disk = machine.disk();
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    list(&machine.place.dir().join("packs")).iter().flat_map(list).collect()
}

/// A store with three versions. All packs have a damaged footer; with `has_bad_frames`, a damaged frame as well.
fn damaged_store(machine: &Machine, has_bad_frames: bool) -> SimulatedDisk {
    machine.insert(&SimulatedDisk::new(7));
    Store::init(&machine.place).unwrap();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        publish(&store, "a", &(0..14).collect::<Vec<_>>()).unwrap();
        publish(&store, "a", &(5..20).collect::<Vec<_>>()).unwrap();
        publish(&store, "b", &(18..30).collect::<Vec<_>>()).unwrap();
    }
    for pack in packs(machine) {
        let mut bytes = machine.disk().contents(&pack).unwrap();
        let (last, trailer) = (bytes.len() - 1, bytes.len() - 64);
        let footer = u64::from_le_bytes(bytes[trailer + 8..trailer + 16].try_into().unwrap()) as usize;
        bytes[last] ^= 1;
        if has_bad_frames {
            bytes[64 + (footer - 64) / 3] ^= 1;
        }
        machine.disk().overwrite(&pack, &bytes);
    }
    machine.disk()
}

/// The blocks that can be read.
fn readable(machine: &Machine) -> BTreeSet<u64> {
    let store = Store::open_reader(&machine.place).unwrap();
    let is_readable = |number: &u64| {
        let contents = block(*number);
        store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents)).is_ok_and(|read| read == contents)
    };
    BLOCKS.filter(is_readable).collect()
}

/// Interrupts a rebuild at every `step`th call by a power failure or an error, discards interrupted packs, and rebuilds
/// again.
fn interrupt(has_bad_frames: bool, lost: &[&str], step: usize) {
    let machine = Machine::new();
    let damaged = damaged_store(&machine, has_bad_frames);
    let expected = readable(&machine);
    assert_eq!(expected.len() < 30, has_bad_frames);
    let insert = || {
        machine.insert(&damaged.fork());
        for name in lost {
            machine.disk().remove(&machine.place.dir().join(name)).unwrap();
        }
        machine.disk().sync_dir(machine.place.dir()).unwrap();
    };
    insert();
    let before = machine.disk().calls();
    let versions: Vec<VersionName> = rebuild(&machine.place).unwrap().versions;
    assert_eq!(readable(&machine), expected);
    let calls = machine.disk().calls() - before;
    let ways = [
        (FaultKind::Halt, CrashProfile::All),
        (FaultKind::Halt, CrashProfile::Nothing),
        (FaultKind::Halt, CrashProfile::StrictPosix),
        (FaultKind::Io, CrashProfile::All),
    ];
    for (call, (kind, profile)) in (1..=calls).step_by(step).flat_map(|call| ways.map(|way| (call, way))) {
        let context = format!("bad frames: {has_bad_frames}, {lost:?} lost, {kind:?} at {call}, {profile:?}");
        insert();
        let persistent = kind == FaultKind::Halt;
        machine.disk().set_fault(Some(Fault { call, kind, persistent, only: None }));
        let _ = rebuild(&machine.place);
        machine.disk().crash(profile, call);
        machine.restart();
        // It may be refused. Then it must remove nothing.
        let _ = Store::discard_interrupted(&machine.place);
        let report = rebuild(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert_eq!(report.versions, versions, "{context}");
        assert_eq!(readable(&machine), expected, "{context}");
    }
}

#[test]
fn an_interrupted_rebuild_loses_no_damaged_pack() {
    for has_bad_frames in [false, true] {
        for lost in [&[][..], &["catalog.sqlite"], &["changes.log"], &["catalog.sqlite", "changes.log"]] {
            interrupt(has_bad_frames, lost, 19);
        }
    }
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every call of a rebuild"]
fn a_rebuild_interrupted_at_every_call_loses_no_damaged_pack() {
    for has_bad_frames in [false, true] {
        for lost in [&[][..], &["catalog.sqlite"], &["changes.log"], &["catalog.sqlite", "changes.log"]] {
            interrupt(has_bad_frames, lost, 1);
        }
    }
}

/// After the next change, what an interrupted rebuild left is older than the catalog in use and must never replace it.
#[test]
fn leftovers_of_a_rebuild_are_removed_before_the_next_change() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(7));
    Store::init(&machine.place).unwrap();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &[1, 2, 3]).unwrap();
    let good = machine.disk();
    let dir = machine.place.dir();
    let is_there = |name: &str| machine.disk().exists(&dir.join(name)).unwrap();
    machine.insert(&good.fork());
    let before = machine.disk().calls();
    rebuild(&machine.place).unwrap();
    let (calls, mut left) = (machine.disk().calls() - before, 0);
    for call in 1..=calls {
        machine.insert(&good.fork());
        machine.disk().set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
        let _ = rebuild(&machine.place);
        machine.disk().crash(CrashProfile::All, call);
        machine.restart();
        let others = ["catalog.new.sqlite", "catalog.unfinished.sqlite"];
        if !is_there("catalog.sqlite") || !others.iter().any(|name| is_there(name)) {
            continue;
        }
        left += 1;
        Store::discard_interrupted(&machine.place).unwrap();
        assert!(others.iter().all(|name| !is_there(name)), "call {call}");
    }
    assert!(left > 0);
}

/// A pack is away during a rebuild, and returns: it is not removed as long as a version needs it.
#[test]
fn a_pack_that_returns_after_a_rebuild_is_not_discarded() {
    let machine = new_store();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        publish(&store, "a", &(0..14).collect::<Vec<_>>()).unwrap();
        publish(&store, "a", &(5..30).collect::<Vec<_>>()).unwrap();
    }
    for pack in packs(&machine) {
        let whole = machine.disk().fork();
        rebuild_without(&machine, &pack);
        let refused = Store::discard_interrupted(&machine.place).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused:?}");
        assert!(machine.disk().contents(&pack).is_some(), "{refused:?}");
        machine.insert(&whole);
    }
}

/// A machine with an empty store.
fn new_store() -> Machine {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(7));
    Store::init(&machine.place).unwrap();
    machine
}

/// Removes the catalog and its log.
fn lose_names(machine: &Machine) {
    for name in ["catalog.sqlite", "changes.log"] {
        machine.disk().remove(&machine.place.dir().join(name)).unwrap();
    }
}

/// Rebuilds without a pack, which then returns.
fn rebuild_without(machine: &Machine, pack: &Path) {
    let away = machine.place.dir().join("away");
    machine.disk().rename(pack, &away).unwrap();
    rebuild(&machine.place).unwrap();
    machine.disk().rename(&away, pack).unwrap();
}

/// Catalog and log are lost while a pack is away. When it is back, the next writer lists the version of which only it has the record,
/// although later versions of that image are known.
#[test]
fn a_pack_that_returns_brings_its_version_back() {
    let machine = new_store();
    let mut model = Model::default();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for (image, blocks) in [("a", 0..14), ("a", 5..20), ("b", 10..16), ("a", 18..30)] {
            let numbers: Vec<u64> = blocks.collect();
            model.published.push((publish(&store, image, &numbers).unwrap(), numbers));
        }
    }
    let whole = machine.disk().fork();
    for pack in packs(&machine) {
        for again in [false, true] {
            machine.insert(&whole.fork());
            lose_names(&machine);
            rebuild_without(&machine, &pack);
            if again {
                rebuild(&machine.place).unwrap();
            }
            verify(&machine, &model, &format!("{} returned", pack.display()));
        }
    }
}

/// A pack that was away during a rebuild has the record of a forgotten version before the blocks of others. The next writer does not cut
/// them off.
#[test]
fn a_pack_that_returns_is_not_cut() {
    let machine = new_store();
    let mut model = Model::default();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for number in 0..40 {
            let session = store.session().unwrap();
            // Makes the pack worth compacting.
            add_disk(&session, &[1000 + number]).unwrap();
            let disk = add_disk(&session, &[number]).unwrap();
            let version = session.publish(draft("a", disk).unwrap()).unwrap();
            model.published.push((version, vec![number]));
        }
        collect(&store, AT_ONCE).unwrap();
        for (version, _) in model.published.drain(..10) {
            store.forget(&version.name.image, Some(version.name.number)).unwrap();
        }
    }
    let whole = machine.disk().fork();
    let all = packs(&machine);
    assert!(all.len() < 20, "not merged: {all:?}");
    for pack in all {
        machine.insert(&whole.fork());
        rebuild_without(&machine, &pack);
        verify(&machine, &model, &format!("{} returned", pack.display()));
    }
}

/// A pack that was away during a rebuild has a damaged frame when it returns. The next writer cuts nothing off it, and a rebuild takes over
/// what is sound.
#[test]
fn a_damaged_pack_that_returns_keeps_its_sound_frames() {
    let machine = new_store();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &(0..30).collect::<Vec<_>>()).unwrap();
    let whole = machine.disk().fork();
    for pack in packs(&machine) {
        machine.insert(&whole.fork());
        let mut bytes = machine.disk().contents(&pack).unwrap();
        bytes[100] ^= 1;
        machine.disk().overwrite(&pack, &bytes);
        let before = readable(&machine);
        assert!(before.len() < 30, "{before:?}");
        rebuild_without(&machine, &pack);
        publish(&Store::open_writer(&machine.place).unwrap(), "b", &[50]).unwrap();
        assert_eq!(machine.disk().contents(&pack).unwrap().len(), bytes.len(), "it was cut");
        rebuild(&machine.place).unwrap();
        assert_eq!(readable(&machine), before);
    }
}

/// A pack without a record was away during a rebuild, and returns: a collection lists it.
#[test]
fn a_collection_lists_a_pack_that_returned() {
    let machine = new_store();
    let numbers: Vec<u64> = (0..400).collect();
    let published = publish(&Store::open_writer(&machine.place).unwrap(), "a", &numbers).unwrap();
    let model = Model { published: vec![(published, numbers)], ..Model::default() };
    let whole = machine.disk().fork();
    let all = packs(&machine);
    assert!(all.len() > 2, "{all:?}");
    for pack in all {
        for is_dry in [true, false] {
            machine.insert(&whole.fork());
            rebuild_without(&machine, &pack);
            let store = Store::open_writer(&machine.place).unwrap();
            let report = collect(&store, CollectRequest { dry_run: is_dry, ..AT_ONCE }).unwrap();
            assert_eq!((report.given_up.packs, report.needs_confirmation), (0, false), "{report:?}");
            drop(store);
            verify(&machine, &model, &format!("{} returned", pack.display()));
        }
    }
}

/// Catalog and log are lost while a pack is away; much is changed, and the pack returns: what only it has comes back, and what was changed
/// since stays.
#[test]
fn a_pack_that_returns_late_changes_nothing_made_since() {
    let machine = new_store();
    let mut model = Model::default();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for (image, blocks) in [("a", 0..14), ("a", 5..20), ("c", 10..16), ("a", 18..30)] {
            let numbers: Vec<u64> = blocks.collect();
            // The next pack has these changes, more than are made after its loss.
            for is_protected in [true, false].into_iter().cycle().take(20).filter(|_| image == "c") {
                store.protect(&"a".parse().unwrap(), None, is_protected).unwrap();
            }
            model.published.push((publish(&store, image, &numbers).unwrap(), numbers));
        }
    }
    let whole = machine.disk().fork();
    for pack in packs(&machine) {
        machine.insert(&whole.fork());
        let away = machine.place.dir().join("away");
        machine.disk().rename(&pack, &away).unwrap();
        lose_names(&machine);
        rebuild(&machine.place).unwrap();
        let mut model = model.clone();
        {
            let store = Store::open_writer(&machine.place).unwrap();
            let (lost, known): (Vec<_>, Vec<_>) =
                std::mem::take(&mut model.published).into_iter().partition(|(version, _)| {
                    store.versions().unwrap().iter().all(|known| known.name != version.name)
                });
            assert!(lost.len() < 2, "{lost:?}");
            model.published = lost;
            for image in ["a", "c", "d"] {
                let numbers = vec![40, 41];
                model.published.push((publish(&store, image, &numbers).unwrap(), numbers));
            }
            store.forget(&known[0].0.name.image, Some(known[0].0.name.number)).unwrap();
            model.published.extend_from_slice(&known[1..]);
        }
        machine.disk().rename(&away, &pack).unwrap();
        let names: BTreeSet<_> = model.published.iter().map(|(version, _)| &version.name).collect();
        assert_eq!(names.len(), model.published.len(), "a number was used twice");
        for again in [false, true] {
            if again {
                rebuild(&machine.place).unwrap();
            }
            verify(&machine, &model, &format!("{} returned", pack.display()));
            let store = Store::open_writer(&machine.place).unwrap();
            let more: Vec<_> = store.versions().unwrap().into_iter().map(|version| version.name).collect();
            more.iter()
                .filter(|name| !model.published.iter().any(|(version, _)| version.name == **name))
                .for_each(|name| {
                    store.forget(&name.image, Some(name.number)).unwrap();
                });
        }
    }
}

/// A damaged block was stored again in another pack, which is away during a rebuild: nothing removes it when it returns.
#[test]
fn the_only_sound_copy_is_not_discarded() {
    let machine = new_store();
    let numbers: Vec<u64> = (0..30).collect();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &numbers).unwrap();
    let before = packs(&machine);
    for pack in &before {
        let mut bytes = machine.disk().contents(pack).unwrap();
        bytes[100] ^= 1;
        machine.disk().overwrite(pack, &bytes);
    }
    {
        let store = Store::open_writer(&machine.place).unwrap();
        store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
        publish(&store, "a", &numbers).unwrap();
    }
    assert_eq!(readable(&machine).len(), 30, "the capture stored it again");
    for second in packs(&machine).iter().filter(|pack| !before.contains(pack)) {
        rebuild_without(&machine, second);
        Store::discard_interrupted(&machine.place).unwrap_err();
        assert!(machine.disk().contents(second).is_some());
        rebuild(&machine.place).unwrap();
        assert_eq!(readable(&machine).len(), 30);
    }
}

/// A collection deleted a pack after it had copied what was needed. The copy is lost, and the old pack comes back from a backup: a rebuild
/// copies from it again.
#[test]
fn a_deleted_pack_that_comes_back_is_used() {
    let machine = new_store();
    let numbers: Vec<u64> = (5..30).collect();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &(0..14).collect::<Vec<_>>()).unwrap();
    let kept = publish(&store, "b", &numbers).unwrap();
    let model = Model { published: vec![(kept, numbers)], ..Model::default() };
    let backup: Vec<_> = packs(&machine)
        .into_iter()
        .map(|pack| (pack.clone(), machine.disk().contents(&pack).unwrap()))
        .collect();
    store.forget(&"a".parse().unwrap(), None).unwrap();
    assert!(collect(&store, AT_ONCE).unwrap().copied_bytes > 0);
    drop(store);
    let copies: Vec<_> =
        packs(&machine).into_iter().filter(|pack| backup.iter().all(|(old, _)| old != pack)).collect();
    assert!(!copies.is_empty());
    copies.iter().for_each(|pack| machine.disk().remove(pack).unwrap());
    assert!(!rebuild(&machine.place).unwrap().damaged.is_empty(), "b is incomplete");
    for (pack, contents) in &backup {
        if machine.disk().contents(pack).is_none() {
            let file = machine.disk().open(pack, OpenMode::CreateNew).unwrap();
            file.write_all_at(contents, 0).unwrap();
        }
    }
    Store::discard_interrupted(&machine.place).unwrap_err();
    assert_eq!(rebuild(&machine.place).unwrap().damaged, [] as [String; 0]);
    verify(&machine, &model, "it came back");
}

/// Catalog and log were lost while a pack was away, and somebody holds an edit lock of the image when it returns: the pack waits.
#[test]
fn a_pack_that_returns_waits_for_an_edit_lock() {
    let machine = new_store();
    let mut model = Model::default();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for first in [0, 20, 40] {
            let numbers: Vec<u64> = (first..first + 10).collect();
            model.published.push((publish(&store, "a", &numbers).unwrap(), numbers));
        }
    }
    let whole = machine.disk().fork();
    for pack in packs(&machine) {
        machine.insert(&whole.fork());
        lose_names(&machine);
        let away = machine.place.dir().join("away");
        machine.disk().rename(&pack, &away).unwrap();
        rebuild(&machine.place).unwrap();
        let image = "a".parse().unwrap();
        let held = Store::open_writer(&machine.place).unwrap().take_edit_lock(&image, "ada", 7).unwrap();
        machine.disk().rename(&away, &pack).unwrap();
        let length = machine.disk().contents(&pack).unwrap().len();
        publish(&Store::open_writer(&machine.place).unwrap(), "b", &[90]).unwrap();
        // It may refuse.
        let _ = Store::discard_interrupted(&machine.place);
        let left = machine.disk().contents(&pack).map(|contents| contents.len());
        assert_eq!(left, Some(length), "{}", pack.display());
        Store::open_writer(&machine.place).unwrap().release_edit_lock(&held).unwrap();
        let store = Store::open_writer(&machine.place).unwrap();
        store.forget(&"b".parse().unwrap(), None).unwrap();
        drop(store);
        verify(&machine, &model, &format!("{} returned", pack.display()));
    }
}

/// The files of two packs were exchanged, and a rebuild took over what they have. The right file of one returns later: what only the wrong
/// file had is still there.
#[test]
fn the_right_file_of_an_exchanged_pack_returns() {
    let machine = new_store();
    let mut model = Model::default();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        for (image, blocks) in [("a", 0..14), ("b", 14..30)] {
            let numbers: Vec<u64> = blocks.collect();
            model.published.push((publish(&store, image, &numbers).unwrap(), numbers));
        }
    }
    let all = packs(&machine);
    let contents: Vec<_> = all.iter().map(|pack| machine.disk().contents(pack).unwrap()).collect();
    let whole = machine.disk().fork();
    for loses_names in [false, true] {
        for (from, to) in [(0, all.len() - 1), (all.len() - 1, 0)] {
            machine.insert(&whole.fork());
            machine.disk().overwrite(&all[to], &contents[from]);
            machine.disk().overwrite(&all[from], &contents[to]);
            if loses_names {
                lose_names(&machine);
            }
            rebuild(&machine.place).unwrap();
            // From a backup of that file.
            machine.disk().open(&all[to], OpenMode::Create).unwrap().sync().unwrap();
            machine.disk().sync_dir(all[to].parent().unwrap()).unwrap();
            machine.disk().overwrite(&all[to], &contents[to]);
            verify(&machine, &model, &format!("names lost: {loses_names}, {} returned", all[to].display()));
            rebuild(&machine.place).unwrap();
            verify(
                &machine,
                &model,
                &format!("names lost: {loses_names}, rebuilt, {} returned", all[to].display()),
            );
        }
    }
}

/// An older copy of the catalog comes back after a new log began: the log is newer, and nothing of it is lost.
#[test]
fn an_older_catalog_does_not_outweigh_a_newer_log() {
    let machine = new_store();
    let mut model = Model::default();
    let capture = |model: &mut Model, image: &str, numbers: Vec<u64>| {
        let store = Store::open_writer(&machine.place).unwrap();
        model.published.push((publish(&store, image, &numbers).unwrap(), numbers));
    };
    capture(&mut model, "a", (0..9).collect());
    let catalog = machine.place.dir().join("catalog.sqlite");
    let older = machine.disk().contents(&catalog).unwrap();
    capture(&mut model, "b", (5..20).collect());
    // Stores no block, so that no pack has its record.
    capture(&mut model, "c", (5..20).collect());
    rebuild(&machine.place).unwrap();
    machine.disk().overwrite(&catalog, &older);
    let report = rebuild(&machine.place).unwrap();
    assert_eq!(report.versions.len(), 3, "{report:?}");
    verify(&machine, &model, "an older catalog");
    // And the other way round: an older log.
    let log = machine.place.dir().join("changes.log");
    let older = machine.disk().contents(&log).unwrap();
    capture(&mut model, "d", (5..20).collect());
    rebuild(&machine.place).unwrap();
    machine.disk().overwrite(&log, &older);
    rebuild(&machine.place).unwrap();
    verify(&machine, &model, "an older log");
}

/// The log of another store, with higher numbers and without packs, does not outweigh a sound catalog.
#[test]
fn the_log_of_another_store_does_not_outweigh_a_catalog() {
    let (machine, other) = (new_store(), new_store());
    let numbers: Vec<u64> = (0..9).collect();
    let published = publish(&Store::open_writer(&machine.place).unwrap(), "a", &numbers).unwrap();
    let model = Model { published: vec![(published, numbers)], ..Model::default() };
    {
        let store = Store::open_writer(&other.place).unwrap();
        for limit in 1..30 {
            store.set_quota(&"x".parse().unwrap(), Some(limit)).unwrap();
        }
    }
    let log = machine.place.dir().join("changes.log");
    machine.disk().overwrite(&log, &other.disk().contents(&log).unwrap());
    rebuild(&machine.place).unwrap();
    verify(&machine, &model, "the log of another store");
}
