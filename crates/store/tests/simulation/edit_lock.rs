//! Edit locks under power failures and failing calls: the state is that before or after the call in flight, nothing that
//! returned is lost, and no number is assigned twice. An interrupted publish is finished only under the current edit lock.

use std::path::PathBuf;

use platter_image::{ErrorKind, Result};
use platter_records::{EditLock, ImageName, NumberChoice, Version};
use platter_store::{Store, rebuild};
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};
use platter_vfs::{OpenMode, Vfs};

use super::work::{Dice, Machine, Model, add_disk, draft, publish, verify};

fn image() -> ImageName {
    "a".parse().unwrap()
}

/// Publishes under an edit lock, or without one.
fn publish_under(store: &Store, numbers: &[u64], edit_lock: Option<u64>) -> Result<Version> {
    let session = store.session()?;
    let disk = add_disk(&session, numbers)?;
    let mut draft = draft("a", disk)?;
    draft.edit_lock = edit_lock;
    session.publish(draft)
}

/// What the store has promised about the edit lock.
#[derive(Debug, Default)]
struct Promised {
    model: Model,
    /// The edit lock after the last call that returned.
    held: Option<EditLock>,
    /// The edit lock if the call that did not return has happened; a new edit lock has number 0 here.
    in_flight: Option<Option<EditLock>>,
    /// The highest number that was assigned.
    last: u64,
}

impl Promised {
    fn given(&mut self, edit_lock: EditLock) {
        assert!(edit_lock.number > self.last, "{edit_lock} after {}", self.last);
        self.last = edit_lock.number;
        self.held = Some(edit_lock);
    }

    fn begin(&mut self, in_flight: Option<EditLock>) {
        self.in_flight = Some(in_flight);
    }

    fn end(&mut self) {
        self.in_flight = None;
    }
}

/// Random changes of the edit lock by seed, through stores opened for reading and for writing.
fn work(machine: &Machine, seed: u64, promised: &mut Promised) -> Result<()> {
    let mut dice = Dice(seed);
    Store::init(&machine.place)?;
    let mut store = Store::open_writer(&machine.place)?;
    let version = publish(&store, "a", &[1, 2])?;
    promised.model.published.push((version, vec![1, 2]));
    for step in 0..8 {
        let holder = ["x", "y"][dice.below(2) as usize];
        match dice.below(6) {
            0 => {
                drop(store);
                let is_writer = dice.below(2) == 0;
                let open = if is_writer { Store::open_writer } else { Store::open_reader };
                store = open(&machine.place)?;
            }
            1 if promised.held.is_some() => {
                promised.begin(None);
                store.release_edit_lock(promised.held.as_ref().unwrap())?;
                promised.held = None;
            }
            2 | 3 if store.session().is_ok() => {
                let numbers: Vec<u64> = (step..step + 3).collect();
                let edit_lock = promised.held.as_ref().map(|edit_lock| edit_lock.number);
                let version = publish_under(&store, &numbers, edit_lock)?;
                promised.model.published.push((version, numbers));
            }
            _ => {
                let new = EditLock {
                    image: image(),
                    number: 0,
                    holder: holder.into(),
                    time_unix_ms: 7,
                    overlay: String::new(),
                };
                promised.begin(Some(new));
                let edit_lock = match &promised.held {
                    None => store.take_edit_lock(&image(), holder, 7)?,
                    Some(_) => store.steal_edit_lock(&image(), holder, 7)?,
                };
                promised.given(edit_lock);
            }
        }
        promised.end();
    }
    Ok(())
}

/// Checks that the edit lock is the promised one, or the result of the call in flight, and that the next number is new.
fn verify_edit_lock(machine: &Machine, promised: &mut Promised, context: &str) {
    if promised.model.published.is_empty() {
        return;
    }
    let store = Store::open_reader(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let found = store.edit_lock(&image()).unwrap();
    let is_in_flight = promised.in_flight.as_ref().is_some_and(|in_flight| match (in_flight, &found) {
        (None, found) => found.is_none(),
        (Some(new), Some(found)) => {
            found.number > promised.last && EditLock { number: 0, ..found.clone() } == *new
        }
        (Some(_), None) => false,
    });
    assert!(found == promised.held || is_in_flight, "{context}: {found:?} is not {promised:?}");
    promised.last = promised.last.max(found.map_or(0, |edit_lock| edit_lock.number));
    let edit_lock =
        store.steal_edit_lock(&image(), "z", 8).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(edit_lock.number > promised.last, "{context}: {edit_lock} is not after {promised:?}");
    promised.given(edit_lock.clone());
    store.release_edit_lock(&edit_lock).unwrap();
}

fn crash_once(machine: &Machine, seed: u64, call: u64, profile: CrashProfile) {
    let context = format!("seed {seed}, power cut at call {call}, {profile:?}");
    machine.insert(&SimulatedDisk::new(seed));
    let fault = Fault { call, kind: FaultKind::Halt, persistent: true, only: None };
    machine.disk().set_fault(Some(fault));
    let mut promised = Promised::default();
    let _ = work(machine, seed, &mut promised);
    machine.disk().crash(profile, seed ^ call);
    machine.restart();
    verify_edit_lock(machine, &mut promised, &context);
    verify(machine, &promised.model, &context);
}

fn crash_often(seeds: std::ops::Range<u64>, cuts: u64) {
    let machine = Machine::new();
    for seed in seeds {
        machine.insert(&SimulatedDisk::new(seed));
        work(&machine, seed, &mut Promised::default()).unwrap();
        let calls = machine.disk().calls();
        let mut dice = Dice(seed);
        for profile in CrashProfile::EVERY {
            for _ in 0..cuts {
                crash_once(&machine, seed, 1 + dice.below(calls + 1), profile);
            }
        }
    }
}

#[test]
fn power_failures_leave_the_state_before_or_after() {
    crash_often(0..8, 8);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: 20,000 power failures"]
fn many_power_failures_leave_the_state_before_or_after() {
    crash_often(2000..2080, 40);
}

/// Any call fails once: what was promised holds, and the reopened store is sound.
#[test]
fn an_io_error_at_any_call_leaves_the_state_before_or_after() {
    let machine = Machine::new();
    for call in (1..).step_by(5) {
        machine.insert(&SimulatedDisk::new(11));
        let disk = machine.disk();
        disk.set_fault(Some(Fault { call, kind: FaultKind::Io, persistent: false, only: None }));
        let mut promised = Promised::default();
        let done = work(&machine, 11, &mut promised);
        if disk.calls() < call {
            return done.unwrap();
        }
        disk.crash(CrashProfile::Nothing, call);
        machine.restart();
        let context = format!("error at call {call}: {done:?}");
        verify_edit_lock(&machine, &mut promised, &context);
        verify(&machine, &promised.model, &context);
    }
}

/// The files of all packs on the machine's disk.
fn packs(machine: &Machine) -> Vec<PathBuf> {
    let (disk, packs) = (machine.disk(), machine.place.dir().join("packs"));
    let folders = disk.list(&packs).unwrap().into_iter().map(|entry| packs.join(entry.name));
    folders
        .flat_map(|folder| disk.list(&folder).unwrap().into_iter().map(move |file| folder.join(file.name)))
        .collect()
}

/// A publish under an edit lock lacked only its commit. If the edit lock is still current, the next writer finishes it. If the edit lock was
/// taken over meanwhile, it is not finished and no rebuild finds it again; the next holder's version gets its number.
#[test]
fn an_interrupted_publish_is_fenced_too() {
    for is_stolen in [false, true] {
        let machine = Machine::new();
        Store::init(&machine.place).unwrap();
        publish(&Store::open_writer(&machine.place).unwrap(), "a", &[1]).unwrap();
        let edit_lock = Store::open_reader(&machine.place).unwrap().take_edit_lock(&image(), "x", 7).unwrap();
        let (before, known) = (machine.disk().fork(), packs(&machine));
        publish_under(&Store::open_writer(&machine.place).unwrap(), &[5, 6], Some(edit_lock.number)).unwrap();
        let new = packs(&machine).into_iter().find(|pack| !known.contains(pack)).unwrap();
        let bytes = machine.disk().contents(&new).unwrap();
        machine.insert(&before);
        // Skips the fork's next random id, which would be the id of this pack.
        before.random_id().unwrap();
        match before.create_dir(new.parent().unwrap()) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
            _ => {}
        }
        drop(before.open(&new, OpenMode::CreateNew).unwrap());
        before.overwrite(&new, &bytes);
        let reader = Store::open_reader(&machine.place).unwrap();
        let stolen = is_stolen.then(|| reader.steal_edit_lock(&image(), "y", 7).unwrap());
        drop(reader);
        let store = Store::open_writer(&machine.place).unwrap();
        let finished: Vec<String> =
            store.salvaged().unwrap().versions.iter().map(ToString::to_string).collect();
        assert_eq!(finished, if is_stolen { vec![] } else { vec!["a@2".to_owned()] });
        assert_eq!(publish_under(&store, &[5], Some(edit_lock.number)).is_err(), is_stolen);
        if let Some(stolen) = stolen {
            let theirs = publish_under(&store, &[5, 6], Some(stolen.number)).unwrap();
            assert_eq!((theirs.name.number, theirs.record.new_raw_bytes), (2, 0), "blocks were kept");
            drop(store);
            assert_eq!(rebuild(&machine.place).unwrap().notes, Vec::<String>::new());
            let store = Store::open_reader(&machine.place).unwrap();
            assert_eq!(store.version(&image(), NumberChoice::Number(2)).unwrap(), theirs);
        }
    }
}

/// If the sync of an edit lock's change fails, the change is an error, and the store accepts no more writes.
#[test]
fn a_failed_sync_is_reported() {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    publish(&store, "a", &[1]).unwrap();
    let only = Some(platter_vfs::simulated::Operation::Sync);
    machine.disk().set_fault(Some(Fault { call: 1, kind: FaultKind::Io, persistent: false, only }));
    assert_eq!(store.take_edit_lock(&image(), "x", 7).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.take_edit_lock(&image(), "x", 7).unwrap_err().kind(), ErrorKind::Refused);
}
