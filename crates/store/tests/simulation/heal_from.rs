//! Healing from other holders, on a simulated disk: any byte of a store is flipped, and another store that has the same versions
//! makes it whole. Holders that lie heal nothing. A crash or a failing call loses nothing that was reported.

use std::path::PathBuf;

use platter_image::{BlockId, Error, FrameSource, Kind, Result};
use platter_store::{CheckOptions, HealSource, Store, Verdict, WantedBlock};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use super::changes::boot;
use super::work::{Machine, publish};

const NUMBERS: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn store_with_versions() -> Machine {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    publish(&Store::open_writer(&machine.place).unwrap(), "a", &NUMBERS).unwrap();
    publish(&Store::open_writer(&machine.place).unwrap(), "b", &[2, 3, 20, 21]).unwrap();
    machine
}

fn packs(machine: &Machine) -> Vec<PathBuf> {
    let disk = machine.disk();
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    list(&machine.place.dir().join("packs")).iter().flat_map(list).collect()
}

/// Another store with the same contents.
struct Other(Store);

impl HealSource for Other {
    fn name(&self) -> String {
        "other".into()
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        match self.0.lease(&wanted.id)? {
            Some(_) => self.0.read_block(wanted.kind, &wanted.id).map(Some),
            None => Ok(None),
        }
    }
}

/// A holder that returns something else, or fails.
struct Liar(bool);

impl HealSource for Liar {
    fn name(&self) -> String {
        "liar".into()
    }

    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        match self.0 {
            true => Ok(Some(wanted.id.0.repeat(16))),
            false => Err(Error::transient("it is down")),
        }
    }
}

fn other(machine: &Machine) -> Box<dyn HealSource> {
    Box::new(Other(Store::open_reader(&machine.place).unwrap()))
}

fn check(machine: &Machine) -> Verdict {
    let store = Store::open_reader(&machine.place).unwrap();
    let options = CheckOptions { read_data: true, ..Default::default() };
    store.check(options, &mut |_| {}).unwrap().verdict
}

/// Flips bytes of both packs in turn. What a check finds in frames is healed, and the store is not damaged any more.
#[test]
fn any_flipped_byte_of_a_frame_heals_from_another_store() {
    let (machine, twin) = (store_with_versions(), store_with_versions());
    let good = machine.disk();
    let (mut healed, mut records) = (0, 0);
    for file in packs(&machine) {
        let length = good.contents(&file).unwrap().len();
        for at in (0..length).step_by(41) {
            let context = format!("byte {at} of {length}");
            let disk = good.fork();
            machine.insert(&disk);
            flip(&disk, &file, at);
            if check(&machine) != Verdict::Damaged {
                continue;
            }
            let quarantined = Store::open_reader(&machine.place).unwrap().quarantined().len();
            let report = {
                let store = Store::open_writer(&machine.place).unwrap();
                store
                    .heal(
                        &mut [Box::new(Liar(true)), Box::new(Liar(false)), other(&twin)],
                        &|| Ok(Vec::new()),
                    )
                    .unwrap()
            };
            assert!(report.lost.is_empty() && report.damaged.is_empty(), "{context}: {:?}", report.lost);
            // Records are not counted: the store has them.
            records += usize::from(report.healed < quarantined);
            healed += report.healed;
            if report.healed > 0 {
                assert_eq!(report.sources[0].wrong, report.healed, "{context}");
                assert!(report.sources[1].error.is_some() && !report.whole.is_empty(), "{context}");
            }
            // The reported state is durable.
            disk.crash(CrashProfile::Nothing, at as u64);
            machine.restart();
            if quarantined > 0 {
                assert_eq!(check(&machine), Verdict::Leaks, "{context}");
            }
        }
    }
    assert!(healed > 20 && records > 0, "{healed} {records}");
}

/// A boot set that left the hoard a day ago is healed like a member's: a collection reads it, and gives up if it is damaged.
#[test]
fn a_boot_set_that_left_the_hoard_heals() {
    let machine = store_with_versions();
    let before: Vec<PathBuf> = packs(&machine);
    let id = {
        let store = Store::open_writer(&machine.place).unwrap();
        boot(&store, "a", 1).unwrap();
        let id = store.hoard().unwrap().members[0].boot_set;
        store.unregister_boot_set(&"a".parse().unwrap(), None, 2).unwrap();
        id
    };
    let good = machine.disk();
    let twin = Machine::new();
    twin.insert(&good.fork());
    let mut healed = 0;
    for file in packs(&machine).into_iter().filter(|file| !before.contains(file)) {
        for at in (64..good.contents(&file).unwrap().len()).step_by(7) {
            machine.insert(&good.fork());
            flip(&machine.disk(), &file, at);
            let store = Store::open_writer(&machine.place).unwrap();
            if store.boot_set(&id).is_ok() {
                continue;
            }
            store.heal(&mut [other(&twin)], &|| Ok(Vec::new())).unwrap();
            assert!(store.boot_set(&id).is_ok(), "byte {at}");
            healed += 1;
        }
    }
    assert!(healed > 3, "{healed}");
}

/// Without a holder, what is lost is named with all versions that need it.
#[test]
fn what_stays_lost_is_named() {
    let machine = store_with_versions();
    let file = packs(&machine).into_iter().max_by_key(|file| machine.disk().contents(file).unwrap().len());
    machine.disk().remove(&file.unwrap()).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let report = store.heal(&mut [], &|| Ok(Vec::new())).unwrap();
    assert!(report.healed == 0 && !report.lost.is_empty());
    assert!(report.whole.is_empty() && report.damaged.len() == 2, "both versions need a block of that pack");
}

/// A pack that is gone is healed from another store: all of its blocks that versions need.
#[test]
fn a_missing_pack_heals() {
    let (machine, twin) = (store_with_versions(), store_with_versions());
    for file in packs(&machine) {
        machine.disk().remove(&file).unwrap();
    }
    let report = {
        let store = Store::open_writer(&machine.place).unwrap();
        store.heal(&mut [other(&twin)], &|| Ok(Vec::new())).unwrap()
    };
    assert!(report.lost.is_empty() && report.whole.len() == 2, "{report:?}");
    let store = Store::open_reader(&machine.place).unwrap();
    for number in NUMBERS {
        let contents = super::work::block(number);
        assert!(store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents)).unwrap() == contents);
    }
}

/// Any call of a run fails, or the power fails there: the next run heals everything.
#[test]
fn an_interrupted_run_loses_nothing() {
    let (machine, twin) = (store_with_versions(), store_with_versions());
    let file = packs(&machine)[0].clone();
    flip(&machine.disk(), &file, 64 + 300);
    assert_eq!(check(&machine), Verdict::Damaged);
    let damaged = machine.disk();
    let run = |machine: &Machine| {
        let store = Store::open_writer(&machine.place)?;
        store.heal(&mut [other(&twin)], &|| Ok(Vec::new()))
    };
    let calls = {
        let disk = damaged.fork();
        machine.insert(&disk);
        let before = disk.calls();
        assert!(run(&machine).unwrap().healed > 0);
        disk.calls() - before
    };
    for call in (1..calls).step_by(3) {
        let disk = damaged.fork();
        machine.insert(&disk);
        disk.set_fault(Some(Fault { call, kind: FaultKind::Io, persistent: true, only: None }));
        let failed = run(&machine);
        disk.set_fault(None);
        disk.crash(CrashProfile::StrictPosix, call);
        machine.restart();
        let report = run(&machine).unwrap_or_else(|error| panic!("call {call}: {}", error.with_causes()));
        assert!(report.lost.is_empty(), "call {call}");
        if failed.is_ok_and(|first| first.healed > 0) {
            assert_eq!(report.healed, 0, "call {call}: what was reported is still there");
        }
        assert_eq!(check(&machine), Verdict::Leaks, "call {call}");
    }
}

fn flip(disk: &SimulatedDisk, file: &std::path::Path, at: usize) {
    let mut bytes = disk.contents(file).unwrap();
    bytes[at] ^= 1 << (at % 8);
    disk.overwrite(file, &bytes);
}
