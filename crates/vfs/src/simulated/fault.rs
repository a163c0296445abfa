//! Which calls fail, and how. Pure: it is asked before each call, and counts.

use std::io;

/// What a call does, for faults that are meant for one kind of call only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `open`, in any mode.
    Open,
    /// `read_at`.
    Read,
    /// `write_at`.
    Write,
    /// `set_length`.
    SetLength,
    /// `punch`.
    Punch,
    /// `sync` of a file.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `rename`.
    Rename,
    /// `remove`.
    Remove,
    /// `create_dir`.
    CreateDir,
    /// `list`, `exists` and `length`.
    Look,
    /// `lock`.
    Lock,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// With an I/O error (EIO). A failed sync forgets what was pending and calls it clean (design: durable).
    Io,
    /// For want of space (ENOSPC): writes, holes, new files and directories, longer lengths and syncs; others go well.
    NoSpace,
    /// A write takes only half of its bytes and says so; other calls go well.
    ShortWrite,
    /// A read gives one wrong bit; other calls go well.
    FlippedBit,
    /// The machine stops: this call and all later ones fail and change nothing, until the crash.
    Halt,
}

/// One planned failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the call that fails, from 1, counted since [`super::SimulatedDisk::set_fault`]. With
    /// `only`, calls of other kinds are not counted.
    pub call: u64,
    /// How it fails.
    pub kind: FaultKind,
    /// Whether all later calls that match fail too.
    pub persistent: bool,
    /// The kind of call meant; any, if `None`.
    pub only: Option<Operation>,
}

/// The plan, and how far it has got.
#[derive(Debug, Default)]
pub(super) struct Faults {
    plan: Option<Fault>,
    matching: u64,
    hits: u64,
    halted: bool,
}

impl Faults {
    pub(super) fn set(&mut self, plan: Option<Fault>) {
        *self = Self { plan, ..Self::default() };
    }

    /// How many calls the plan has failed.
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// Whether the machine has stopped.
    pub(super) fn is_halted(&self) -> bool {
        self.halted
    }

    /// Counts one call and says whether, and how, it fails.
    pub(super) fn next(&mut self, operation: Operation) -> Option<FaultKind> {
        if self.halted {
            return Some(FaultKind::Halt);
        }
        let plan = self.plan.filter(|plan| plan.only.is_none_or(|only| only == operation))?;
        self.matching += 1;
        let is_due = self.matching == plan.call || plan.persistent && self.matching > plan.call;
        if !is_due || !can_fail_so(operation, plan.kind) {
            return None;
        }
        self.hits += 1;
        self.halted = plan.kind == FaultKind::Halt;
        Some(plan.kind)
    }
}

fn can_fail_so(operation: Operation, kind: FaultKind) -> bool {
    use Operation::{CreateDir, Open, Punch, Read, Rename, SetLength, Sync, SyncDir, Write};
    match kind {
        FaultKind::Io | FaultKind::Halt => true,
        FaultKind::NoSpace => {
            matches!(operation, Open | Write | SetLength | Punch | Sync | SyncDir | Rename | CreateDir)
        }
        FaultKind::ShortWrite => operation == Write,
        FaultKind::FlippedBit => operation == Read,
    }
}

/// The error a failed call gives; `None` for faults that are not errors.
pub(super) fn error_of(kind: FaultKind) -> Option<io::Error> {
    match kind {
        FaultKind::Io => Some(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
        FaultKind::NoSpace => Some(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())),
        FaultKind::Halt => Some(io::Error::other("the simulated machine has stopped")),
        FaultKind::ShortWrite | FaultKind::FlippedBit => None,
    }
}
