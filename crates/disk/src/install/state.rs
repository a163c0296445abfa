//! The state of a target, shared between the job that writes it and whoever reports an early end: after an
//! error, or after Ctrl-C in another thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How far writing has progressed. A target passes through these in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing was written.
    Untouched,
    /// The first and last MiB have been emptied; everything in between is being written.
    Filling,
    /// Everything in between is durable; the first and last MiB are being written.
    Finishing,
    /// Everything is written and durable.
    Complete,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Untouched, Self::Filling, Self::Finishing, Self::Complete];
}

/// The state of one target. `Display` describes it in a sentence.
#[derive(Debug)]
pub struct TargetState {
    target: PathBuf,
    phase: AtomicU8,
    written: AtomicU64,
    /// Bytes to be written; 0 while unknown.
    total: AtomicU64,
    /// The job created the target, and an incomplete one is useless: remove it on an early end.
    is_removed: AtomicBool,
    /// Where the job writes, if not at the target.
    part: OnceLock<PathBuf>,
}

impl TargetState {
    /// The state of a target that was not written to yet.
    pub fn new(target: &Path) -> Self {
        Self {
            target: target.to_owned(),
            phase: AtomicU8::new(Phase::Untouched as u8),
            written: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_removed: AtomicBool::new(false),
            part: OnceLock::new(),
        }
    }

    /// How far writing has progressed.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::SeqCst)) % Phase::ALL.len()]
    }

    /// Enters the next phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Sets the number of bytes to be written.
    pub fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Adds to the number of bytes written.
    pub fn advance(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From now on [`TargetState::abandon`] removes an incomplete target.
    pub fn remove_if_incomplete(&self) {
        self.is_removed.store(true, Ordering::SeqCst);
    }

    /// The job writes to this file, which gets the target's name when it is complete.
    pub fn is_written_to(&self, part: &Path) {
        let _ = self.part.set(part.to_owned());
    }

    /// Ends the job, and returns a sentence about what it leaves.
    pub fn abandon(&self) -> String {
        if !matches!(self.phase(), Phase::Filling | Phase::Finishing)
            || !self.is_removed.load(Ordering::SeqCst)
        {
            return self.to_string();
        }
        match std::fs::remove_file(self.part.get().unwrap_or(&self.target)) {
            Ok(()) => format!("{} was incomplete and is removed", self.target.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.to_string(),
            Err(error) => format!("{self}; removing it failed: {error}"),
        }
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.display();
        let (written, total) = (self.written.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        match self.phase() {
            Phase::Untouched => write!(f, "nothing was written to {target}"),
            Phase::Filling => {
                write!(f, "{target} is incomplete: {}", megabytes(written))?;
                if total > 0 {
                    write!(f, " of {}", megabytes(total))?;
                }
                write!(
                    f,
                    " written; its first MiB is empty, so it does not boot; run the command again, with --yes"
                )
            }
            Phase::Finishing => write!(
                f,
                "{target} is incomplete: its data is written, but its first and last MiB may not be; \
                 run the command again, with --yes"
            ),
            Phase::Complete => write!(f, "{target} is complete: everything was written and is durable"),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_described() {
        let state = TargetState::new(Path::new("/dev/sdb"));
        assert_eq!(state.to_string(), "nothing was written to /dev/sdb");
        state.enter(Phase::Filling);
        state.advance(12_340_000);
        assert!(
            state.to_string().starts_with("/dev/sdb is incomplete: 12.3 MB written; its first MiB is empty")
        );
        state.expect(46_000_000);
        assert!(state.to_string().contains("12.3 MB of 46.0 MB written"));
        state.enter(Phase::Finishing);
        assert!(state.to_string().contains("its data is written"));
        state.enter(Phase::Complete);
        assert_eq!(state.phase(), Phase::Complete);
        assert_eq!(state.abandon(), "/dev/sdb is complete: everything was written and is durable");
    }

    #[test]
    fn only_an_incomplete_file_created_by_the_job_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, "half").unwrap();
        let state = TargetState::new(&path);
        state.enter(Phase::Filling);
        state.abandon();
        assert!(path.exists(), "an installed target stays, to be installed again");
        state.remove_if_incomplete();
        state.enter(Phase::Complete);
        state.abandon();
        assert!(path.exists(), "a complete file stays");
        state.enter(Phase::Filling);
        assert!(state.abandon().contains("removed"));
        assert!(!path.exists());
    }
}
