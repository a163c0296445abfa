//! Any call fails, once or from then on. Nothing is reported done that is not, nothing is accepted after a failed write,
//! and the reopened store is sound.

use platter_image::ErrorKind;
use platter_store::Store;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, Operation, SimulatedDisk};

use super::work::{Machine, Model, publish, verify, work};

/// Fails every `step`th call in turn, until the workload has fewer calls.
fn sweep(kind: FaultKind, persistent: bool, seed: u64, step: usize) {
    let machine = Machine::new();
    let mut hits = 0;
    for call in (1..).step_by(step) {
        machine.insert(&SimulatedDisk::new(seed));
        let disk = machine.disk();
        disk.set_fault(Some(Fault { call, kind, persistent, only: None }));
        let mut model = Model::default();
        let done = work(&machine, seed, &mut model);
        if disk.calls() < call {
            assert!(done.is_ok() && hits > 0);
            return;
        }
        hits += disk.fault_hits();
        let context = format!("{kind:?} at call {call}, persistent {persistent}, seed {seed}: {done:?}");
        // Power fails and only synced data is left: everything that was reported done must be there.
        disk.crash(CrashProfile::Nothing, seed);
        machine.restart();
        verify(&machine, &model, &context);
    }
}

#[test]
fn an_io_error_at_any_call() {
    sweep(FaultKind::Io, false, 3, 3);
}

#[test]
fn io_errors_from_any_call_on() {
    sweep(FaultKind::Io, true, 4, 3);
}

#[test]
fn no_space_at_any_call() {
    sweep(FaultKind::NoSpace, false, 5, 3);
    sweep(FaultKind::NoSpace, true, 6, 3);
}

#[test]
fn short_writes_at_any_call() {
    sweep(FaultKind::ShortWrite, false, 7, 5);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every call of twenty workloads"]
fn any_fault_at_every_call() {
    for seed in 100..120 {
        for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::ShortWrite] {
            sweep(kind, seed % 2 == 0, seed, 1);
        }
    }
}

/// A second sync would succeed although data was lost, so the store must not try it (design: durable).
#[test]
fn after_a_failed_sync_the_store_refuses_writes_until_reopened() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(1));
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let first = publish(&store, "a", &[1, 2, 3]).unwrap();
    let fault = Fault { call: 1, kind: FaultKind::Io, persistent: false, only: Some(Operation::Sync) };
    machine.disk().set_fault(Some(fault));
    let error = publish(&store, "a", &[4, 5, 6]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    for _ in 0..2 {
        let error = publish(&store, "a", &[7]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(
            error.to_string().contains("syncing") && error.to_string().contains("open it again"),
            "{error}"
        );
    }
    drop(store);
    machine.disk().crash(CrashProfile::All, 1);
    machine.restart();
    verify(
        &machine,
        &Model { published: vec![(first, vec![1, 2, 3])], ..Model::default() },
        "after the failed sync",
    );
}

/// The disk becomes full during the work. When there is space again, work continues.
#[test]
fn a_full_disk_loses_nothing() {
    let machine = Machine::new();
    for capacity in (4..160).step_by(9).map(|kib| kib << 10) {
        machine.insert(&SimulatedDisk::new(1));
        machine.disk().set_capacity(capacity);
        let mut model = Model::default();
        let done = work(&machine, 9, &mut model);
        machine.disk().set_capacity(u64::MAX);
        machine.disk().crash(CrashProfile::StrictPosix, capacity);
        machine.restart();
        verify(&machine, &model, &format!("{capacity} bytes: {done:?}"));
    }
}

/// Wherever space runs out, a change that was reported as failed did not happen, and one that was reported as done did.
#[test]
fn without_space_a_change_happens_or_fails() {
    let machine = Machine::new();
    let (mut failed, mut done) = (0, 0);
    for room in 0..=40 {
        machine.insert(&SimulatedDisk::new(1));
        Store::init(&machine.place).unwrap();
        let store = Store::open_writer(&machine.place).unwrap();
        publish(&store, "a", &[1, 2, 3]).unwrap();
        let (name, overlay) = ("a".parse().unwrap(), "o".repeat(200));
        let edit_lock = store.take_edit_lock(&name, "first", 1).unwrap();
        machine.disk().set_capacity(machine.disk().used() + (room << 8));
        let result = store.set_overlay(&edit_lock, &overlay);
        machine.disk().set_capacity(u64::MAX);
        let held = |store: &Store| store.edit_lock(&name).unwrap().map(|edit_lock| edit_lock.overlay);
        let expected = if result.is_ok() { overlay.as_str() } else { "" };
        assert_eq!(held(&store).as_deref(), Some(expected), "room for {room} times 256 bytes: {result:?}");
        drop(store);
        let store = Store::open_writer(&machine.place).unwrap();
        assert_eq!(held(&store).as_deref(), Some(expected), "room for {room} times 256 bytes: {result:?}");
        store.release_edit_lock(&store.edit_lock(&name).unwrap().unwrap()).unwrap();
        *(if result.is_ok() { &mut done } else { &mut failed }) += 1;
    }
    assert!(failed > 0 && done > 10, "{failed} failed, {done} were done");
}
