//! How a job tells how far it is. The one who shows it decides how.

/// Told of long work by the threads that do it.
pub trait Progress: Sync {
    /// A stage begins: what it is, and how many bytes it has to do (0 if nobody knows).
    fn begin(&self, stage: &str, total: u64);

    /// So many more bytes are done.
    fn advance(&self, bytes: u64);

    /// Something that the user should know now, in a sentence.
    fn note(&self, note: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn note(&self, _note: &str) {}
}
