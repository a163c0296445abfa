//! Promotions in a row: a follower takes the epoch of its origin, and a follower of that one the next epoch. Any call of either store
//! fails or is its last, twice for each promotion. At most one store accepts changes, a former origin none after its epoch was taken,
//! and the new origin has every version that was published.

use platter_image::{BlockId, ErrorKind, Kind, Result};
use platter_records::{Action, Following, Promotion, ReplicaPosition, Standing};
use platter_store::{
    CheckOptions, Continuation, ReplicatedChange, RowChange, StandingChange, Store, Verdict,
};
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use super::work::{Dice, Machine, add_disk, block, draft, publish};

/// The blocks of all versions of these tests.
const NUMBERS: std::ops::Range<u64> = 0..24;

/// How the calls of these tests fail.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    kind: FaultKind,
    persistent: bool,
    profile: CrashProfile,
}

fn set(store: &Store, standing: Standing, action: Action) -> Result<()> {
    let change = StandingChange { standing, action, used: Vec::new() };
    store.change_standing(|_, _| Ok(Some(change))).map(drop)
}

/// Enters all changes of the origin that the follower does not have.
fn follow(origin: &Store, follower: &Store) -> Result<()> {
    let Standing::Follower(following) = follower.standing()? else { panic!("no follower") };
    let texts = match origin.changes_for_follower(following.position.as_ref(), usize::MAX)? {
        Continuation::Start(texts) | Continuation::After(texts) => texts,
        Continuation::Diverged(why) => panic!("{why}"),
    };
    if following.position.as_ref() == Some(&texts.next) {
        return Ok(());
    }
    let session = follower.upkeep_session()?;
    add_disk(&session, &NUMBERS.collect::<Vec<_>>())?;
    for numbers in versions_of() {
        add_disk(&session, &numbers)?;
    }
    let changes = texts.texts.iter().map(|text| ReplicatedChange::parse(text).unwrap());
    let rows: Vec<RowChange> = changes.flat_map(|change| change.rows).collect();
    let action = Action::Follow { up_to: texts.next.number, versions: Vec::new(), changes: Vec::new() };
    let position: Option<ReplicaPosition> = Some(texts.next);
    let standing = Standing::Follower(Box::new(Following { position, ..*following }));
    session.apply(&rows, &StandingChange { standing, action, used: Vec::new() })
}

/// The disks that are published: what a follower fetches.
fn versions_of() -> [Vec<u64>; 3] {
    [(0..9).collect(), (5..14).collect(), (12..24).collect()]
}

/// Promotes a follower in the order of `platter promote`: its own id, the former origin, the last changes, the commit.
fn promote(origin: &Machine, follower: &Machine, epoch: u64) -> Result<()> {
    let store = Store::open_writer(&follower.place)?;
    let mut following = match store.standing()? {
        Standing::Follower(following) => following,
        Standing::Origin { epoch: own, .. } if own == epoch => return Ok(()),
        other => panic!("{other:?}"),
    };
    let former = Store::open_writer(&origin.place)?;
    if following.promotion.is_empty() {
        following.promotion = format!("{epoch:032x}");
        set(&store, Standing::Follower(following.clone()), Action::NoteStanding {})?;
    }
    let by = store.id().to_string();
    let promotion =
        Promotion { by: by.clone(), epoch, id: following.promotion.clone(), ..Promotion::default() };
    // A session that is under way when the epoch is taken.
    let late = former.session().ok();
    let disk = late.as_ref().map(|session| add_disk(session, &[50, 51])).transpose()?;
    if let Some(replaced) = former.standing()?.replaced_by(&promotion)? {
        set(&former, replaced, Action::Replaced { epoch, by })?;
    }
    if let (Some(session), Some(disk)) = (late, disk) {
        assert!(session.publish(draft("late", disk)?).is_err(), "a former origin has published");
    }
    follow(&former, &store)?;
    let standing = Standing::Origin {
        epoch,
        address: String::new(),
        former: Vec::new(),
        missing: Vec::new(),
        promotion: promotion.id,
        conflicts: Vec::new(),
    };
    set(&store, standing, Action::Promote { epoch })
}

/// Returns whether a store accepts changes. It publishes nothing that stays on the disk.
fn accepts(machine: &Machine, context: &str) -> bool {
    let disk = machine.disk();
    machine.insert(&disk.fork());
    let accepts = {
        let store = Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        match publish(&store, "own", &[40, 41]) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Refused => false,
            Err(error) => panic!("{context}: {error:?}"),
        }
    };
    machine.insert(&disk);
    accepts
}

/// Checks that nothing is lost or damaged.
fn verify(machine: &Machine, names: &[&str], context: &str) {
    let store = Store::open_writer(&machine.place).unwrap();
    let mut found: Vec<String> = store.versions().unwrap().iter().map(|it| it.name.to_string()).collect();
    found.sort();
    assert_eq!(found, names, "{context}");
    for number in versions_of().concat() {
        let id = BlockId::of(Kind::Data, &block(number));
        assert!(store.read_block(Kind::Data, &id).is_ok_and(|read| read == block(number)), "{context}");
    }
    let report = store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
    assert_ne!(report.verdict, Verdict::Damaged, "{context}: {:#?}", report.findings);
}

/// An origin, its follower, which lacks the last changes, and an empty store.
fn machines() -> [Machine; 3] {
    let machines = [1, 2, 3].map(|seed| {
        let machine = Machine::new();
        machine.insert(&SimulatedDisk::new(seed));
        Store::init(&machine.place).unwrap();
        machine
    });
    let origin = Store::open_writer(&machines[0].place).unwrap();
    let [first, second, third] = versions_of();
    publish(&origin, "a", &first).unwrap();
    publish(&origin, "b", &second).unwrap();
    begin_to_follow(&origin, &machines[1]);
    publish(&origin, "a", &third).unwrap();
    drop(origin);
    machines
}

fn begin_to_follow(origin: &Store, follower: &Machine) {
    let store = Store::open_writer(&follower.place).unwrap();
    let of = origin.id().to_string();
    let following =
        Following { origin: of.clone(), epoch: origin.standing().unwrap().epoch(), ..Default::default() };
    set(&store, Standing::Follower(Box::new(following)), Action::BecomeFollower { of }).unwrap();
    follow(origin, &store).unwrap();
}

/// Promotes until it succeeds. The first attempt fails at call `call` of one of the stores, the second at a random one. Returns
/// whether the first attempt had so many calls.
fn interrupted(pair: [&Machine; 2], faulty: usize, call: u64, epoch: u64, trouble: Trouble) -> bool {
    let Trouble { kind, persistent, profile } = trouble;
    let context = format!("epoch {epoch}, {trouble:?} at call {call} of store {faulty}");
    let mut dice = Dice(call ^ epoch << 20);
    let mut was_hit = false;
    let mut was_taken = false;
    for at in [call, 1 + dice.below(call + 30)] {
        pair[faulty].disk().set_fault(Some(Fault { call: at, kind, persistent, only: None }));
        let done = promote(pair[0], pair[1], epoch);
        was_hit |= at == call && pair[faulty].disk().fault_hits() > 0;
        for machine in pair {
            machine.disk().crash(profile, call);
            machine.restart();
        }
        let standings = pair.map(|machine| {
            let store = Store::open_writer(&machine.place);
            store.and_then(|store| store.standing()).unwrap_or_else(|error| panic!("{context}: {error:?}"))
        });
        let accepting = pair.map(|machine| accepts(machine, &context));
        let is_promoted = match &standings[1] {
            Standing::Follower(_) => false,
            Standing::Origin { epoch: own, .. } if *own == epoch => true,
            other => panic!("{context}: {other:?}"),
        };
        let is_replaced = match &standings[0] {
            Standing::Origin { epoch: own, .. } if *own < epoch => false,
            Standing::Replaced { epoch: own, .. } if *own == epoch => true,
            other => panic!("{context}: {other:?}"),
        };
        assert_eq!(accepting, [!is_replaced, is_promoted], "{context}: {standings:?}");
        assert!(is_replaced || !is_promoted, "{context}: two origins: {standings:?}");
        assert!(is_replaced || !was_taken, "{context}: the epoch was given back: {standings:?}");
        assert!(is_promoted || done.is_err(), "{context}: {standings:?}");
        was_taken |= is_replaced;
    }
    promote(pair[0], pair[1], epoch).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert_eq!(pair.map(|machine| accepts(machine, &context)), [false, true], "{context}");
    was_hit
}

/// Fails every `step`th call of both stores in both promotions.
fn sweep(trouble: Trouble, step: usize) {
    let machines = machines();
    let begin = [0, 1, 2].map(|at: usize| machines[at].disk());
    for faulty in 0..2 {
        for call in (1..).step_by(step) {
            for (machine, disk) in machines.iter().zip(&begin) {
                machine.insert(&disk.fork());
            }
            let [first, second, third] = &machines;
            let mut was_hit = interrupted([first, second], faulty, call, 1, trouble);
            let names = ["a@1", "a@2", "b@1"];
            verify(second, &names, "promoted once");
            {
                let origin = Store::open_writer(&second.place).unwrap();
                begin_to_follow(&origin, third);
                publish(&origin, "c", &versions_of()[0]).unwrap();
            }
            was_hit |= interrupted([second, third], faulty, call, 2, trouble);
            verify(third, &["a@1", "a@2", "b@1", "c@1"], "promoted twice");
            assert!(!accepts(first, "the first origin"));
            if !was_hit {
                assert!(call > 50, "{call}");
                break;
            }
        }
    }
}

#[test]
fn promotions_that_fail_twice_leave_one_origin() {
    sweep(Trouble { kind: FaultKind::Io, persistent: false, profile: CrashProfile::Nothing }, 53);
    sweep(Trouble { kind: FaultKind::NoSpace, persistent: true, profile: CrashProfile::StrictPosix }, 89);
}

#[test]
fn power_failures_during_promotions_leave_one_origin() {
    for profile in [CrashProfile::StrictPosix, CrashProfile::Nothing] {
        sweep(Trouble { kind: FaultKind::Halt, persistent: true, profile }, 71);
    }
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every call of all promotions"]
fn every_call_of_two_promotions_can_fail_twice() {
    for profile in CrashProfile::EVERY {
        for persistent in [false, true] {
            sweep(Trouble { kind: FaultKind::Io, persistent, profile }, 1);
        }
        sweep(Trouble { kind: FaultKind::Halt, persistent: true, profile }, 1);
    }
}
