//! A follower under power failures and failing calls: its position says exactly what it has, every version that it lists has its data, and
//! it accepts changes only after its promotion. A promotion and a replacement happened completely or not at all.

use platter_image::{BlockId, ErrorKind, Kind, Result};
use platter_records::{Action, Following, Promotion, ReplicaPosition, Standing};
use platter_store::{
    CheckOptions, Continuation, ReplicatedChange, RowChange, StandingChange, Store, Verdict,
};
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use super::work::{Machine, add_disk, block, publish};

/// The origin's changes in three steps, and the blocks of the versions that exist after each.
struct Steps {
    changes: Vec<(Vec<ReplicatedChange>, ReplicaPosition)>,
    versions: Vec<Vec<(String, Vec<u64>)>>,
}

fn origin() -> Steps {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(77));
    Store::init(&machine.place).unwrap();
    let store = Store::open_writer(&machine.place).unwrap();
    let (mut position, mut changes) = (None, Vec::new());
    let mut take = |store: &Store| {
        let texts = match store.changes_for_follower(position.as_ref(), usize::MAX).unwrap() {
            Continuation::Start(texts) | Continuation::After(texts) => texts,
            Continuation::Diverged(why) => panic!("{why}"),
        };
        position = Some(texts.next.clone());
        let parsed = texts.texts.iter().map(|text| ReplicatedChange::parse(text).unwrap()).collect();
        changes.push((parsed, texts.next));
    };
    let numbers = |from: u64| (from..from + 9).collect::<Vec<u64>>();
    publish(&store, "a", &numbers(0)).unwrap();
    publish(&store, "b", &numbers(5)).unwrap();
    take(&store);
    publish(&store, "a", &numbers(12)).unwrap();
    store.forget(&"b".parse().unwrap(), None).unwrap();
    take(&store);
    store.rename(&"a".parse().unwrap(), &"c".parse().unwrap()).unwrap();
    store.take_edit_lock(&"c".parse().unwrap(), "me", 7).unwrap();
    take(&store);
    let named = |names: &[(&str, u64)]| -> Vec<(String, Vec<u64>)> {
        names.iter().map(|(name, from)| ((*name).to_owned(), numbers(*from))).collect()
    };
    let versions = vec![
        Vec::new(),
        named(&[("a@1", 0), ("b@1", 5)]),
        named(&[("a@1", 0), ("a@2", 12)]),
        named(&[("c@1", 0), ("c@2", 12)]),
    ];
    Steps { changes, versions }
}

fn change(standing: Standing, action: Action) -> StandingChange {
    StandingChange { standing, action, used: Vec::new() }
}

fn following(position: Option<ReplicaPosition>) -> Standing {
    Standing::Follower(Box::new(Following { origin: "o".into(), position, ..Following::default() }))
}

fn promoted() -> Standing {
    Standing::Origin {
        epoch: 1,
        address: String::new(),
        former: Vec::new(),
        missing: Vec::new(),
        promotion: "p".into(),
        conflicts: Vec::new(),
    }
}

/// Follows in steps, is promoted, publishes, and is replaced. `done` counts the steps that have returned.
fn work(machine: &Machine, steps: &Steps, done: &mut usize) -> Result<()> {
    Store::init(&machine.place)?;
    let store = Store::open_writer(&machine.place)?;
    let set = |standing: Standing, action| store.change_standing(|_, _| Ok(Some(change(standing, action))));
    set(following(None), Action::BecomeFollower { of: "o".into() })?;
    *done = 1;
    for ((changes, position), versions) in steps.changes.iter().zip(&steps.versions[1..]) {
        let session = store.upkeep_session()?;
        for (_, numbers) in versions {
            add_disk(&session, numbers)?;
        }
        let rows: Vec<RowChange> = changes.iter().flat_map(|change| change.rows.clone()).collect();
        let action = Action::Follow { up_to: position.number, versions: Vec::new(), changes: Vec::new() };
        session.apply(&rows, &change(following(Some(position.clone())), action))?;
        *done += 1;
    }
    set(promoted(), Action::Promote { epoch: 1 })?;
    *done += 1;
    publish(&store, "new", &[1, 2, 3])?;
    let successor = Promotion { by: "c".into(), epoch: 2, ..Promotion::default() };
    let replaced = store.standing()?.replaced_by(&successor)?;
    set(replaced.unwrap(), Action::Replaced { epoch: 2, by: "c".into() })?;
    *done += 1;
    Ok(())
}

/// Returns after how many steps this is the standing.
fn steps_of(standing: &Standing, steps: &Steps) -> usize {
    match standing {
        Standing::Origin { epoch: 0, .. } => 0,
        Standing::Follower(following) => match &following.position {
            None => 1,
            Some(position) => 2 + steps.changes.iter().position(|(_, own)| own == position).unwrap(),
        },
        Standing::Origin { .. } => 5,
        Standing::Replaced { .. } => 6,
    }
}

fn verify(machine: &Machine, steps: &Steps, done: usize, context: &str) {
    if !machine.place.is_store().unwrap() {
        assert_eq!(done, 0, "{context}");
        return;
    }
    let store = Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let standing = store.standing().unwrap();
    let found = steps_of(&standing, steps);
    assert!(found == done || found == done + 1, "{context}: {done} steps have returned, found {standing:?}");
    let versions = &steps.versions[found.saturating_sub(1).min(3)];
    let mut names: Vec<String> = store.versions().unwrap().iter().map(|it| it.name.to_string()).collect();
    names.retain(|name| !name.starts_with("new@"));
    let expected: Vec<&String> = versions.iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().collect::<Vec<_>>(), expected, "{context}: {standing:?}");
    for number in versions.iter().flat_map(|(_, numbers)| numbers) {
        let contents = block(*number);
        let read = store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents));
        assert!(read.is_ok_and(|read| read == contents), "{context}: block {number}");
    }
    let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{context}: {:#?}", report.findings);
    let published = publish(&store, "own", &[40, 41]);
    match standing {
        Standing::Origin { .. } => assert!(published.is_ok(), "{context}: {published:?}"),
        _ => assert_eq!(published.unwrap_err().kind(), ErrorKind::Refused, "{context}"),
    }
    if let Standing::Follower(_) = standing {
        let refused = store.take_edit_lock(&"a".parse().unwrap(), "x", 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{context}");
    }
}

/// Fails each call in turn; then power fails, and again while the store is opened.
fn sweep(kind: FaultKind, persistent: bool, profiles: &[CrashProfile]) {
    let (machine, steps) = (Machine::new(), origin());
    for call in 1_u64.. {
        let profile = profiles[call as usize % profiles.len()];
        machine.insert(&SimulatedDisk::new(5));
        let disk = machine.disk();
        disk.set_fault(Some(Fault { call, kind, persistent, only: None }));
        let mut done = 0;
        let worked = work(&machine, &steps, &mut done);
        if disk.calls() < call {
            assert!(worked.is_ok() && done == 6 && call > 100, "{call} calls: {worked:?}");
            return;
        }
        let context = format!("{kind:?} at call {call}, {profile:?}: {worked:?}");
        disk.crash(profile, call);
        machine.restart();
        disk.set_fault(Some(Fault {
            call: 1 + call % 40,
            kind: FaultKind::Halt,
            persistent: true,
            only: None,
        }));
        drop(Store::open_writer(&machine.place));
        disk.crash(profile, 1 + call);
        machine.restart();
        verify(&machine, &steps, done, &context);
    }
}

#[test]
fn an_io_error_at_any_call() {
    sweep(FaultKind::Io, false, &[CrashProfile::Nothing]);
}

#[test]
fn power_fails_at_any_call() {
    sweep(FaultKind::Halt, true, &CrashProfile::EVERY);
}

#[test]
fn the_disk_is_full_at_any_call() {
    sweep(FaultKind::NoSpace, true, &[CrashProfile::StrictPosix]);
}

/// An origin leaves out which numbers were assigned. The follower can be opened, and once it is promoted it assigns higher ones.
#[test]
fn numbers_that_an_origin_leaves_out_are_not_assigned_again() {
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(78));
    let (steps, mut lying) = (origin(), origin());
    for change in lying.changes.iter_mut().flat_map(|(changes, _)| changes) {
        change.rows.retain(|row| !row.is_of_numbers());
    }
    let mut done = 0;
    work(&machine, &lying, &mut done).unwrap();
    verify(&machine, &steps, done, "numbers left out");
    let machine = Machine::new();
    machine.insert(&SimulatedDisk::new(79));
    lying.changes.truncate(2);
    work(&machine, &lying, &mut 0).unwrap();
    let store = Store::open_reader(&machine.place).unwrap();
    let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{:#?}", report.findings);
}
