//! Changes of the catalog of every kind: a rebuild from either file restores every field of every row, and a power failure at any
//! call leaves the state before or after the change.

use std::collections::BTreeMap;
use std::path::PathBuf;

use platter_image::Result;
use platter_records::{ImageName, NumberChoice, VersionName, VersionRecord};
use platter_store::{DailyRequest, Store, rebuild};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::work::{Dice, Machine, publish};

const IMAGES: [&str; 4] = ["a", "b", "lab/c", "lab/d"];

fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

/// Makes a version the next one of another image.
fn clone(store: &Store, from: &str, to: &str) -> Result<()> {
    let version = store.version(&image(from), NumberChoice::Latest)?;
    let cloned_from = Some(version.name);
    let draft = VersionRecord { image: image(to), cloned_from, edit_lock: None, ..version.record };
    store.session()?.publish(draft).map(drop)
}

/// All rows of the catalog as text, by table, without what describes the file itself.
fn rows(machine: &Machine) -> BTreeMap<String, Vec<String>> {
    let path = machine.place.dir().join("catalog.sqlite");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let catalog = Connection::open_with_flags_and_vfs(path, flags, machine.sqlite_vfs()).unwrap();
    let mut statement = catalog.prepare("SELECT name FROM sqlite_master WHERE name <> 'seals'").unwrap();
    let tables: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(|name| name.unwrap()).collect();
    let mut all = BTreeMap::new();
    for table in tables {
        let mut statement = catalog.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = statement.column_count();
        let read = statement.query_map([], |row| {
            (0..width).map(|at| row.get::<_, Value>(at)).collect::<rusqlite::Result<Vec<Value>>>()
        });
        let mut found: Vec<String> = read.unwrap().map(|row| format!("{:?}", row.unwrap())).collect();
        found.retain(|row| table != "meta" || !row.starts_with("[Text(\"log\")"));
        all.insert(table, found);
    }
    all
}

/// One random change. A refused one changes nothing.
fn random_change(store: &Store, dice: &mut Dice, step: u64) {
    let mut name = || IMAGES[dice.below(4) as usize];
    let (one, other) = (name(), name());
    let first = image(one);
    let held = store.edit_lock(&first).unwrap();
    let refused = match dice.below(14) {
        0 => publish(store, one, &[step, step + 1]).map(drop),
        1 | 2 => clone(store, one, other),
        3 => store.forget(&first, Some(1 + dice.below(3))).map(drop),
        4 => store.forget(&first, None).map(drop),
        5 => store.rename(&first, &image(other)).map(drop),
        6 => store.take_edit_lock(&first, "x", 7).map(drop),
        7 => store.steal_edit_lock(&first, "y", 8).map(drop),
        8 => held.map_or(Ok(()), |lock| store.set_overlay(&lock, "some.overlay").map(drop)),
        9 | 10 => held.map_or(Ok(()), |lock| store.release_edit_lock(&lock)),
        11 => store.protect(&first, None, dice.below(2) == 0).map(drop),
        12 => store.resurrect(&[]).map(drop),
        _ => {
            let request =
                DailyRequest { now_unix_ms: step as i64 * 86_400_000, keep_days: Some(2), window_days: 3 };
            store.hoard_follow(&first, Some("{}")).and_then(|()| store.hoard_daily(request)).map(drop)
        }
    };
    // Refusals are part of the sequence; the store must stay usable after them.
    drop(refused);
    assert!(store.takes_writes(), "step {step}");
}

fn remove(machine: &Machine, file: &str) {
    let path: PathBuf = machine.place.dir().join(file);
    if machine.disk().exists(&path).unwrap() {
        machine.disk().remove(&path).unwrap();
    }
}

/// A rebuild from the log, and one from the catalog, restore every field after any sequence of changes.
#[test]
fn a_rebuild_restores_every_field_after_any_changes() {
    let machine = Machine::new();
    for seed in 0..24 {
        machine.insert(&SimulatedDisk::new(seed));
        Store::init(&machine.place).unwrap();
        let mut dice = Dice(seed);
        let mut store = Store::open_writer(&machine.place).unwrap();
        for name in IMAGES {
            publish(&store, name, &[seed, seed + 1]).unwrap();
        }
        for step in 0..25 {
            if dice.below(8) == 0 {
                drop(store);
                store = Store::open_writer(&machine.place).unwrap();
            }
            random_change(&store, &mut dice, step);
        }
        let changes = store.changes_after(0, usize::MAX).unwrap();
        assert!(changes.is_whole, "seed {seed}");
        let numbers: Vec<u64> = changes.changes.iter().map(|change| change.number).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "seed {seed}: {numbers:?}");
        drop(store);
        let expected = rows(&machine);
        for lost in ["catalog.sqlite", "changes.log", "nothing"] {
            remove(&machine, lost);
            if lost == "catalog.sqlite" {
                remove(&machine, "catalog.sqlite-journal");
            }
            let report = rebuild(&machine.place).unwrap();
            // Without a catalog, nothing confirms where the log ends, and the report says so.
            let noted = usize::from(lost == "catalog.sqlite");
            assert_eq!(report.notes.len(), noted, "seed {seed}, lost {lost}: {:?}", report.notes);
            assert_eq!(rows(&machine), expected, "seed {seed}, lost {lost}");
        }
        // The history continues in the new log.
        let store = Store::open_reader(&machine.place).unwrap();
        let after = store.changes_after(0, usize::MAX).unwrap().changes;
        assert_eq!(after.last().unwrap().number, numbers.len() as u64 + 3, "seed {seed}");
    }
}

type ChangeKind = (&'static str, fn(&Store) -> Result<()>);

/// One change of each kind, for the store of [`eventful`].
const KINDS: [ChangeKind; 13] = [
    ("publish", |store| publish(store, "b", &[8, 9]).map(drop)),
    ("clone", |store| clone(store, "b", "new")),
    ("forget", |store| store.forget(&image("b"), None).map(drop)),
    ("resurrect", |store| store.resurrect(&[VersionName { image: image("a"), number: 1 }]).map(drop)),
    ("rename", |store| store.rename(&image("b"), &image("new/name")).map(drop)),
    ("take", |store| store.take_edit_lock(&image("b"), "x", 7).map(drop)),
    ("steal", |store| store.steal_edit_lock(&image("lab/c"), "y", 8).map(drop)),
    ("overlay", |store| {
        store.set_overlay(&store.edit_lock(&image("lab/c"))?.unwrap(), "some.overlay").map(drop)
    }),
    ("release", |store| store.release_edit_lock(&store.edit_lock(&image("lab/c"))?.unwrap())),
    ("protect", |store| store.protect(&image("b"), None, true).map(drop)),
    ("unprotect", |store| store.protect(&image("lab/d"), Some(1), false).map(drop)),
    ("follow", |store| store.hoard_follow(&image("b"), Some("{}"))),
    ("daily", |store| {
        let request = DailyRequest { now_unix_ms: 86_400_000, keep_days: None, window_days: 3 };
        store.hoard_daily(request).map(drop)
    }),
];

/// A store with versions, a forgotten one, an edit lock and a protected version.
fn eventful(machine: &Machine) {
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    for (name, first) in IMAGES.into_iter().zip(1..) {
        publish(&store, name, &[first, first + 1]).unwrap();
    }
    store.forget(&image("a"), None).unwrap();
    store.take_edit_lock(&image("lab/c"), "x", 7).unwrap();
    store.protect(&image("lab/d"), None, true).unwrap();
}

/// What the store answers, without times.
fn answers(store: &Store) -> String {
    let names = |versions: Vec<platter_records::Version>| -> Vec<String> {
        versions.iter().map(|version| format!("{} {}", version.name, version.record_id)).collect()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {}",
        names(store.versions().unwrap()),
        names(store.forgotten().unwrap()),
        store.edit_locks().unwrap(),
        store.protected().unwrap(),
        store.hoard_followed().unwrap(),
        store.hoard_revision().unwrap().1,
    )
}

/// Interrupts each kind of change at every call, cuts power, and opens the catalog again, or loses and rebuilds it.
fn interrupt_at_every_call(kind_of_fault: FaultKind) {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    eventful(&machine);
    let base = machine.disk();
    for (kind, change) in KINDS {
        machine.insert(&base.fork());
        let before = answers(&Store::open_reader(&machine.place).unwrap());
        let opened = machine.disk().calls();
        change(&Store::open_writer(&machine.place).unwrap()).unwrap();
        let calls = machine.disk().calls() - opened;
        let after = answers(&Store::open_reader(&machine.place).unwrap());
        for call in 1..=calls + 1 {
            let context = format!("{kind}, {kind_of_fault:?} at call {call} of {calls}");
            machine.insert(&base.fork());
            let persistent = kind_of_fault == FaultKind::Halt;
            let fault = Fault { call, kind: kind_of_fault, persistent, only: None };
            machine.disk().set_fault(Some(fault));
            let done = Store::open_writer(&machine.place).and_then(|store| change(&store));
            let profile = CrashProfile::EVERY[call as usize % CrashProfile::EVERY.len()];
            machine.disk().crash(profile, call);
            machine.restart();
            if call % 2 == 0 {
                remove(&machine, "catalog.sqlite");
                remove(&machine, "catalog.sqlite-journal");
                rebuild(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            }
            let store =
                Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let found = answers(&store);
            assert!(found == after || (done.is_err() && found == before), "{context}: {done:?}: {found}");
            let history = store.changes_after(0, usize::MAX).unwrap();
            assert!(history.is_whole, "{context}: {history:?}");
            clone(&store, "lab/d", "and/more").unwrap_or_else(|error| panic!("{context}: {error:?}"));
        }
    }
}

#[test]
fn a_power_failure_at_every_call_of_every_change_leaves_the_state_before_or_after() {
    interrupt_at_every_call(FaultKind::Halt);
}

#[test]
fn an_io_error_at_every_call_of_every_change_leaves_the_state_before_or_after() {
    interrupt_at_every_call(FaultKind::Io);
}

/// Clones, renames, locks and forgotten versions write no pack.
#[test]
fn only_new_blocks_make_packs() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    eventful(&machine);
    let packs = || {
        let folders = machine.disk().list(&machine.place.dir().join("packs")).unwrap();
        folders
            .iter()
            .map(|folder| {
                machine.disk().list(&machine.place.dir().join("packs").join(&folder.name)).unwrap().len()
            })
            .sum::<usize>()
    };
    let before = packs();
    for (kind, change) in KINDS.into_iter().skip(1) {
        // Some of these changes exclude each other.
        let fork = machine.disk().fork();
        let back = machine.disk();
        machine.insert(&fork);
        change(&Store::open_writer(&machine.place).unwrap()).unwrap();
        assert_eq!(packs(), before, "{kind}");
        machine.insert(&back);
    }
    let store = Store::open_writer(&machine.place).unwrap();
    for number in 0..500 {
        clone(&store, "b", &format!("clone{number}")).unwrap();
    }
    assert_eq!(packs(), before);
    assert_eq!(store.images().unwrap().len(), 503);
}
