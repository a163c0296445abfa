//! Power fails at any call, and any subset of the unsynced data is lost; then power fails again during recovery. Published
//! versions are complete, the store is clean, and work can continue.

use platter_store::{Store, rebuild};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use super::work::{Dice, Machine, Model, verify, work};

fn halt_at(call: u64) -> Option<Fault> {
    Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None })
}

/// Works until power fails at call `call`. Power fails once more while the store is opened.
fn crash_once(machine: &Machine, seed: u64, call: u64, profile: CrashProfile) {
    let context = format!("seed {seed}, power cut at call {call}, {profile:?}");
    machine.insert(&SimulatedDisk::new(seed));
    machine.disk().set_fault(halt_at(call));
    let mut model = Model::default();
    // An error at the end does not matter, and closing reports none: only what was published counts.
    let _ = work(machine, seed, &mut model);
    machine.disk().crash(profile, seed ^ call);
    machine.restart();
    let mut dice = Dice(seed ^ call << 8);
    machine.disk().set_fault(halt_at(1 + dice.below(60)));
    drop(Store::open_writer(&machine.place));
    machine.disk().crash(profile, seed.wrapping_add(call));
    machine.restart();
    verify(machine, &model, &context);
}

/// Runs every seed with every profile, with `cuts` random calls each.
fn crash_often(seeds: std::ops::Range<u64>, cuts: u64) {
    let machine = Machine::new();
    for seed in seeds {
        machine.insert(&SimulatedDisk::new(seed));
        let mut model = Model::default();
        work(&machine, seed, &mut model).unwrap();
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
fn power_failures_lose_nothing_published() {
    crash_often(0..8, 10);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: 30,000 power failures"]
fn many_power_failures_lose_nothing_published() {
    crash_often(1000..1100, 50);
}

/// A rebuild is interrupted, with catalog, change log or nothing missing. The next rebuild ends with all names unchanged.
#[test]
fn power_failures_during_a_rebuild_change_no_name() {
    let machine = Machine::new();
    for seed in 0..6 {
        machine.insert(&SimulatedDisk::new(seed));
        let mut model = Model::default();
        work(&machine, seed, &mut model).unwrap();
        let worked = machine.disk();
        for lost in [None, Some("catalog.sqlite"), Some("changes.log")] {
            let insert = || {
                machine.insert(&worked.fork());
                for suffix in ["", "-journal"] {
                    let name = lost.map(|lost| machine.place.dir().join(format!("{lost}{suffix}")));
                    // SQLite does not always leave a journal.
                    let _ = name.map(|name| machine.disk().remove(&name));
                }
                machine.disk().sync_dir(machine.place.dir()).unwrap();
                machine.restart();
            };
            insert();
            let before = machine.disk().calls();
            rebuild(&machine.place).unwrap();
            let calls = machine.disk().calls() - before;
            let mut dice = Dice(seed);
            for profile in CrashProfile::EVERY {
                for _ in 0..6 {
                    let call = 1 + dice.below(calls);
                    let context =
                        format!("seed {seed}, {lost:?} lost, power cut at call {call}, {profile:?}");
                    insert();
                    machine.disk().set_fault(halt_at(call));
                    let _ = rebuild(&machine.place);
                    machine.disk().crash(profile, seed ^ call);
                    machine.restart();
                    let report =
                        rebuild(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                    assert!(
                        !report.notes.iter().any(|note| note.contains("may have reappeared")),
                        "{context}: {report:?}"
                    );
                    verify(&machine, &model, &context);
                }
            }
        }
    }
}

/// The next session finds what an interrupted one stored: after a power failure in which everything reached the disk, capturing
/// the same disk again adds almost nothing.
#[test]
fn an_interrupted_capture_is_taken_over() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    let numbers: Vec<u64> = (0..40).collect();
    {
        let store = Store::open_writer(&machine.place).unwrap();
        let session = store.session().unwrap();
        super::work::add_disk(&session, &numbers).unwrap();
        machine.disk().set_fault(halt_at(1));
    }
    machine.disk().crash(CrashProfile::All, 1);
    machine.restart();
    let store = Store::open_writer(&machine.place).unwrap();
    assert!(store.salvaged().unwrap().packs >= 1);
    let version = super::work::publish(&store, "a", &numbers).unwrap();
    assert_eq!(version.record.new_raw_bytes, 0, "every block was found");
}
