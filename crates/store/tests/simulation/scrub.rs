//! Scrubbing on a simulated disk: what it finds is durable at once, its position survives a crash, and one unreadable pack does
//! not keep it from the others.

use std::path::{Path, PathBuf};

use platter_store::{CheckOptions, Scrub, Store, Verdict};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, Operation, SimulatedDisk};

use super::work::{Machine, publish};

/// A store with three versions in a pack each. Returns the files of the packs.
fn three_packs() -> (Machine, Vec<PathBuf>) {
    let machine = Machine::new();
    Store::init(&machine.place).unwrap();
    for (image, numbers) in [("a", [1, 2, 3]), ("b", [4, 5, 6]), ("c", [7, 8, 9])] {
        publish(&Store::open_writer(&machine.place).unwrap(), image, &numbers).unwrap();
    }
    let disk = machine.disk();
    let list = |dir: &PathBuf| {
        disk.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
    };
    let files = list(&machine.place.dir().join("packs")).iter().flat_map(list).collect();
    (machine, files)
}

fn flip(disk: &SimulatedDisk, file: &Path, at: usize) {
    let mut bytes = disk.contents(file).unwrap();
    bytes[at] ^= 1 << (at % 8);
    disk.overwrite(file, &bytes);
}

fn open_scrub(machine: &Machine) -> Scrub {
    Scrub::new(Store::open_reader(&machine.place).unwrap())
}

/// Reads the next `packs` packs. Returns the number of newly bad frames, and the troubles.
fn scrub(scrub: &mut Scrub, packs: usize) -> (u64, Vec<String>) {
    let mut found = (0, Vec::new());
    for _ in 0..packs {
        let next = scrub.next().unwrap().unwrap();
        let done = scrub.read(next.pack, &mut || true).unwrap();
        found.0 += done.newly_bad;
        found.1.extend(done.trouble);
    }
    found
}

/// A flipped byte anywhere in the frames of any pack is found by one round, and is known after a power failure.
#[test]
fn a_round_finds_every_flip_durably() {
    let (machine, files) = three_packs();
    let good = machine.disk();
    let mut found = 0;
    for (number, file) in files.iter().enumerate() {
        let length = good.contents(file).unwrap().len();
        for at in (0..length).step_by(53) {
            let context = format!("byte {at} of {length} of pack {number}");
            let disk = good.fork();
            machine.insert(&disk);
            // The store is open before the damage, as in a running server.
            let mut running = open_scrub(&machine);
            flip(&disk, file, at);
            let (newly_bad, trouble) = scrub(&mut running, 3);
            drop(running);
            disk.crash(CrashProfile::Nothing, at as u64);
            machine.restart();
            let store = Store::open_reader(&machine.place).unwrap();
            let quarantined = store.health().unwrap().quarantined_frames;
            assert_eq!(quarantined, newly_bad, "{context}");
            let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {});
            let is_damaged = report.unwrap().verdict == Verdict::Damaged;
            assert_eq!(is_damaged, newly_bad > 0 || !trouble.is_empty(), "{context}: {trouble:?}");
            found += newly_bad;
        }
    }
    assert!(found > 10, "{found}");
}

/// On a disk without any free byte, the reserve has the space for what a check finds. Where nothing can be written, the check says so.
#[test]
fn a_check_records_damage_on_a_full_disk_or_says_that_it_cannot() {
    let check = |machine: &Machine| {
        let options = CheckOptions { read_data: true, ..CheckOptions::default() };
        let report = Store::open_reader(&machine.place).unwrap().check(options, &mut |_| {}).unwrap();
        assert_eq!(report.verdict, Verdict::Damaged);
        report.findings.iter().any(|finding| finding.what.contains("could not be recorded"))
    };
    let quarantined =
        |machine: &Machine| Store::open_reader(&machine.place).unwrap().health().unwrap().quarantined_frames;
    let (machine, files) = three_packs();
    flip(&machine.disk(), &files[0], 200);
    let kept = machine.disk();
    machine.insert(&kept.fork());
    machine.disk().set_capacity(machine.disk().used());
    assert!(!check(&machine), "there is a reserve");
    assert!(quarantined(&machine) > 0);
    machine.insert(&kept.fork());
    let fault = Fault { call: 1, kind: FaultKind::Io, persistent: true, only: Some(Operation::Write) };
    machine.disk().set_fault(Some(fault));
    assert!(check(&machine), "nothing can be written");
    machine.disk().set_fault(None);
    assert_eq!(quarantined(&machine), 0);
}

/// Another process continues where a scrub was interrupted: no pack is read again before all others were.
#[test]
fn a_scrub_continues_after_a_crash() {
    let (machine, _) = three_packs();
    let mut read = Vec::new();
    for round in 0..3 {
        let mut scrub = open_scrub(&machine);
        let next = scrub.next().unwrap().unwrap();
        assert!(!read.contains(&next.pack), "round {round}");
        let interrupted = scrub.read(next.pack, &mut || false).unwrap();
        assert!(!interrupted.is_complete);
        assert_eq!(scrub.next().unwrap().unwrap(), next, "an interrupted pack is read again");
        assert!(scrub.read(next.pack, &mut || true).unwrap().is_complete);
        read.push(next.pack);
        drop(scrub);
        machine.disk().crash(CrashProfile::Nothing, round);
        machine.restart();
        let health = Store::open_reader(&machine.place).unwrap().health().unwrap();
        assert_eq!(health.never_read_back.packs, 2 - round as usize);
        assert_eq!(health.all_read_since_unix_ms.is_some(), round == 2);
    }
}

/// A pack that is gone is reported, and its frames are quarantined.
#[test]
fn a_missing_pack_is_reported_and_does_not_stop_the_scrub() {
    let (machine, files) = three_packs();
    let mut running = open_scrub(&machine);
    machine.disk().remove(&files[0]).unwrap();
    let (newly_bad, trouble) = scrub(&mut running, 3);
    assert!(newly_bad > 0 && trouble.len() == 1, "{newly_bad} {trouble:?}");
    let health = Store::open_reader(&machine.place).unwrap().health().unwrap();
    assert_eq!((health.never_read_back.packs, health.quarantined_frames), (1, newly_bad));
}
