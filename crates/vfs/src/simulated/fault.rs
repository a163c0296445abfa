//! Decides which calls fail, and how. Pure: it is asked before each call, and counts.

use std::io;

/// The kind of a call; a fault may be limited to one.
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
    /// `list`, `exists`, `length` and `drop_cache`.
    Look,
    /// `lock`.
    Lock,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// I/O error (EIO). A failed sync discards the pending operations and marks them clean (design: durable).
    Io,
    /// No space (ENOSPC), for writes, holes, new files and directories, length changes and syncs; other calls
    /// succeed.
    NoSpace,
    /// This process has no more open files (EMFILE), for opening them; other calls succeed.
    NoFiles,
    /// A write accepts only half of its bytes and returns that count; other calls succeed.
    ShortWrite,
    /// A read returns one wrong bit; other calls succeed.
    FlippedBit,
    /// The machine stops: this call and all later ones fail without effect until the crash.
    Halt,
}

/// A planned failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the call that fails, counted from 1 since [`super::SimulatedDisk::set_fault`]. With
    /// `only`, other kinds of calls are not counted.
    pub call: u64,
    /// How it fails.
    pub kind: FaultKind,
    /// Whether all later matching calls fail as well.
    pub persistent: bool,
    /// The kind of call that is meant; any if `None`.
    pub only: Option<Operation>,
}

/// The planned failure, and the calls so far.
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

    /// How many calls have failed.
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// Whether the machine has stopped.
    pub(super) fn is_halted(&self) -> bool {
        self.halted
    }

    /// Counts a call and returns how it fails, if it does.
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
        FaultKind::NoFiles => operation == Open,
        FaultKind::ShortWrite => operation == Write,
        FaultKind::FlippedBit => operation == Read,
    }
}

/// The error of a failed call; `None` for faults that are not errors.
pub(super) fn error_of(kind: FaultKind) -> Option<io::Error> {
    match kind {
        FaultKind::Io => Some(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
        FaultKind::NoSpace => Some(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())),
        FaultKind::NoFiles => Some(io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error())),
        FaultKind::Halt => Some(io::Error::other("the simulated machine has stopped")),
        FaultKind::ShortWrite | FaultKind::FlippedBit => None,
    }
}
