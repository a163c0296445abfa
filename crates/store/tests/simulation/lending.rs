//! Two sessions at once, one of which relies on blocks that the other has not published. Any call fails, or the power fails there, and the
//! lender ends in every way: what was published is complete.

use platter_image::Result;
use platter_store::Store;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use super::work::{Machine, Model, add_disk, draft, verify};

/// When and how the lender ends.
#[derive(Clone, Copy, Debug)]
enum Lender {
    DiesBefore,
    DiesAfter,
    PublishesBefore,
    PublishesAfter,
    /// It stores more, and is abandoned with the process.
    GoesOn,
}

const LENDERS: [Lender; 5] =
    [Lender::DiesBefore, Lender::DiesAfter, Lender::PublishesBefore, Lender::PublishesAfter, Lender::GoesOn];

/// The lender captures `lent`, the borrower `own`, most of which the lender has.
fn lend(machine: &Machine, lender_is: Lender, model: &mut Model) -> Result<()> {
    Store::init(&machine.place)?;
    let store = Store::open_writer(&machine.place)?;
    let (lent, own): (Vec<u64>, Vec<u64>) = ((0..16).collect(), (4..22).collect());
    let (mut lender, borrower) = (Some(store.session()?), store.session()?);
    let lent_disk = match &lender {
        Some(session) => add_disk(session, &lent)?,
        None => return Ok(()),
    };
    let publish_lent = |lender: &mut Option<platter_store::Session>, model: &mut Model| {
        let Some(session) = lender.take() else { return Ok(()) };
        let version = session.publish(draft("lent", lent_disk)?)?;
        model.published.push((version, lent.clone()));
        Ok::<(), platter_image::Error>(())
    };
    let disk = add_disk(&borrower, &own)?;
    match lender_is {
        Lender::DiesBefore => lender = None,
        Lender::PublishesBefore => publish_lent(&mut lender, model)?,
        Lender::GoesOn => {
            let session = lender.as_ref();
            session.map(|session| add_disk(session, &(30..40).collect::<Vec<_>>())).transpose()?;
        }
        Lender::DiesAfter | Lender::PublishesAfter => {}
    }
    let version = borrower.publish(draft("borrowed", disk)?)?;
    assert!(version.record.new_raw_bytes < 12 << 10, "{lender_is:?}: nothing was borrowed");
    model.published.push((version, own));
    match lender_is {
        Lender::PublishesAfter => publish_lent(&mut lender, model),
        _ => Ok(()),
    }
}

fn sweep(kind: FaultKind, persistent: bool, step: usize) {
    let machine = Machine::new();
    for lender in LENDERS {
        for call in (1_u64..).step_by(step) {
            machine.insert(&SimulatedDisk::new(call));
            let disk = machine.disk();
            disk.set_fault(Some(Fault { call, kind, persistent, only: None }));
            let mut model = Model::default();
            let done = lend(&machine, lender, &mut model);
            let was_hit = disk.fault_hits() > 0;
            assert!(was_hit || done.is_ok() && call > 40, "call {call}: {done:?}");
            let profile = CrashProfile::EVERY[call as usize % CrashProfile::EVERY.len()];
            let context =
                format!("{lender:?}, {kind:?} at call {call}, persistent {persistent}, {profile:?}");
            disk.crash(profile, call);
            machine.restart();
            verify(&machine, &model, &format!("{context}: {done:?}"));
            if !was_hit {
                break;
            }
        }
    }
}

#[test]
fn a_lender_may_die_anywhere() {
    sweep(FaultKind::Halt, true, 7);
    sweep(FaultKind::Io, false, 11);
    sweep(FaultKind::NoSpace, true, 13);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: every call of two sessions"]
fn a_lender_may_die_at_every_call() {
    sweep(FaultKind::Halt, true, 1);
    for persistent in [false, true] {
        sweep(FaultKind::Io, persistent, 1);
    }
    // Not every call needs space, so only a lack that lasts is met for sure.
    sweep(FaultKind::NoSpace, true, 1);
}
