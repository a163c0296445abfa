//! Changes of the catalog of every kind: a rebuild from either file restores every field of every row, and a power failure at any
//! call leaves the state before or after the change.

use std::collections::BTreeMap;
use std::path::PathBuf;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, Result};
use platter_records::{
    Action, BootBlock, BootSet, BootSetRecord, FormerOrigin, ImageName, NumberChoice, OriginAccess,
    Signature, Standing, VersionName, VersionRecord,
};
use platter_store::{DailyRequest, StandingChange, Store, rebuild};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::work::{Dice, Machine, add_disk, draft, publish};

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

/// Publishes a version with labels.
fn publish_labelled(store: &Store, name: &str, step: u64) -> Result<()> {
    let session = store.session()?;
    let disk = add_disk(&session, &[step, step + 7])?;
    let labels = [("room".into(), format!("{step}")), ("by".into(), "tests".into())].into();
    session.publish(VersionRecord { labels, ..draft(name, disk)? }).map(drop)
}

/// Signs the newest version of an image.
fn sign(store: &Store, name: &str, step: u64) -> Result<()> {
    let version = store.version(&image(name), NumberChoice::Latest)?;
    let signature = Signature { store: store.id(), text: format!("signature {step}") };
    store.sign(&version.name, &signature).map(drop)
}

/// Makes the store an origin that was promoted once more, and knows a store that it replaced.
fn promote(store: &Store, step: u64) -> Result<()> {
    let access = OriginAccess { address: format!("https://former-{step}"), ..OriginAccess::default() };
    let former = FormerOrigin { store: format!("{step:032x}"), access, told: step.is_multiple_of(2) };
    let changed = store.change_standing(|present, _| {
        let standing = Standing::Origin {
            epoch: present.epoch() + 1,
            address: format!("https://here-{step}"),
            former: vec![former],
            missing: vec![format!("lab/missing@{step}")],
            promotion: format!("{step:032x}"),
            conflicts: vec![format!("conflict {step}")],
        };
        Ok(Some(StandingChange { standing, action: Action::Snapshot {}, used: Vec::new() }))
    });
    changed.map(drop)
}

/// Registers a boot of the newest version of an image, which read some of its blocks.
pub(crate) fn boot(store: &Store, name: &str, step: u64) -> Result<()> {
    let version = store.version(&image(name), NumberChoice::Latest)?;
    let recipe = Recipe::open(version.record.score, store)?;
    let whole = Extent::new(0, recipe.root().disk_length);
    let (mut pages, mut blocks) = (Vec::new(), Vec::new());
    recipe.visit_pages(whole, &mut |id| {
        pages.push(BootBlock::new(*id, store.page(id)?.len() as u64));
        Ok(())
    })?;
    for entry in recipe.entries(whole).take(1 + step as usize % 2) {
        let entry = entry?;
        let State::Data { block, .. } = entry.state else { continue };
        blocks.push(BootBlock::new(block, entry.extent.length));
    }
    let record = BootSetRecord {
        version: version.name.clone(),
        score: version.record.score,
        marker: format!("marker {step}"),
        command: "boot".into(),
        accelerator: String::new(),
        time_unix_ms: step as i64,
        duration_ms: step,
        requests: blocks.len() as u64,
        bytes_read: 512,
        pages: pages.len() as u32,
        blocks: blocks.len() as u32,
        bytes: pages.iter().chain(&blocks).map(BootBlock::length).sum(),
        tool_version: "test".into(),
        boots: 0,
        nodes: Vec::new(),
    };
    store.register_boot_set(&version.name, &BootSet { record, pages, blocks }, step as i64).map(drop)
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
    let refused = match dice.below(19) {
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
        13 => {
            let limit = (dice.below(3) > 0).then(|| (1 << 30) + step);
            store.set_quota(&image(["lab", one][dice.below(2) as usize]), limit).map(drop)
        }
        14 => sign(store, one, step),
        15 => publish_labelled(store, one, step),
        16 => promote(store, step),
        17 => boot(store, one, step),
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
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut labelled, mut signed, mut promoted) = (0, 0, 0);
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
        for (table, rows) in &expected {
            *seen.entry(table.clone()).or_default() += rows.len();
        }
        let versions = expected["versions"].iter().chain(&expected["former"]);
        labelled += versions.clone().filter(|row: &&String| row.contains("\\\"room\\\"")).count();
        signed += versions.filter(|row| row.contains("signature ")).count();
        promoted += expected["meta"].iter().filter(|row| row.contains("lab/missing@")).count();
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
    // Otherwise nothing was compared.
    assert!(seen.values().all(|rows| *rows > 0), "{seen:?}");
    assert!(labelled > 0 && signed > 0 && promoted > 0, "{labelled} {signed} {promoted}");
}

type ChangeKind = (&'static str, fn(&Store) -> Result<()>);

/// One change of each kind, for the store of [`eventful`].
const KINDS: [ChangeKind; 18] = [
    ("publish", |store| publish(store, "b", &[8, 9]).map(drop)),
    ("publish with labels", |store| publish_labelled(store, "b", 8)),
    ("boot set", |store| boot(store, "b", 3)),
    ("quota", |store| store.set_quota(&image("b"), Some(1 << 30)).map(drop)),
    ("sign", |store| sign(store, "b", 3)),
    ("promote", |store| promote(store, 3)),
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
        let named = |version: &platter_records::Version| {
            let (labels, signatures) = (&version.record.labels, &version.record.signatures);
            format!("{} {} {labels:?} {signatures:?}", version.name, version.record_id)
        };
        versions.iter().map(named).collect()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {:?}",
        names(store.versions().unwrap()),
        names(store.forgotten().unwrap()),
        store.edit_locks().unwrap(),
        store.protected().unwrap(),
        store.hoard_followed().unwrap(),
        store.hoard_revision().unwrap().1,
        store.hoard().unwrap().members,
        store.quotas(&|_| true).unwrap(),
        store.standing().unwrap(),
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
    for (kind, change) in KINDS.into_iter().skip(3) {
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
