//! The progress of a job. The caller decides how to display it.

/// Receives the progress of long work, from the threads that do it.
pub trait Progress: Sync {
    /// A stage begins: its name, and its bytes of work (0 if unknown).
    fn begin(&self, stage: &str, total: u64);

    /// This many more bytes are done.
    fn advance(&self, bytes: u64);

    /// A notice for the user, in a sentence.
    fn note(&self, note: &str);
}

/// Displays nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn note(&self, _note: &str) {}
}
