//! The progress of an analysis. The caller decides how to display it.

/// Receives the progress of an analysis, from the threads that do it.
pub trait Progress: Sync {
    /// A stage begins: its name, and its bytes of work.
    fn begin(&self, stage: &str, total: u64);

    /// This many more bytes are done.
    fn advance(&self, bytes: u64);
}
