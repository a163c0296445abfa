//! What state a target is in, shared between the job that writes it and whoever must say so when it ends early: after
//! an error, or after Ctrl-C in another thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How far writing has come. A target goes through these in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing was written.
    Untouched,
    /// The first MiB and the last one are emptied, and everything between them is being written.
    Filling,
    /// Everything between them is durable. They are being written.
    Finishing,
    /// Everything is written and durable.
    Complete,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Untouched, Self::Filling, Self::Finishing, Self::Complete];
}

/// The state of one target. `Display` says it in a sentence.
#[derive(Debug)]
pub struct TargetState {
    target: PathBuf,
    phase: AtomicU8,
    written: AtomicU64,
    /// Bytes that have to be written; 0 while nobody knows.
    total: AtomicU64,
    /// An incomplete target is of no use and was made by this job: whoever ends early removes it.
    is_removed: AtomicBool,
}

impl TargetState {
    /// The state of a target that nothing was written to.
    pub fn new(target: &Path) -> Self {
        Self {
            target: target.to_owned(),
            phase: AtomicU8::new(Phase::Untouched as u8),
            written: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_removed: AtomicBool::new(false),
        }
    }

    /// How far writing has come.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::SeqCst)) % Phase::ALL.len()]
    }

    /// The next phase begins.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// So many bytes will have to be written.
    pub fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// So many more bytes were written.
    pub fn advance(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From now on an incomplete target is removed by [`TargetState::abandon`].
    pub fn remove_if_incomplete(&self) {
        self.is_removed.store(true, Ordering::SeqCst);
    }

    /// The job ends here. Gives the sentence about what it leaves.
    pub fn abandon(&self) -> String {
        if !matches!(self.phase(), Phase::Filling | Phase::Finishing)
            || !self.is_removed.load(Ordering::SeqCst)
        {
            return self.to_string();
        }
        match std::fs::remove_file(&self.target) {
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
    fn every_phase_is_said() {
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
    fn only_an_incomplete_file_that_the_job_made_is_removed() {
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
