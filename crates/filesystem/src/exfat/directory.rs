//! Reads a directory piece by piece: it may have up to 256 MiB.

use platter_image::{Error, Result};

use super::entry_set::{ENTRY_LENGTH, Entry, Sets};
use crate::clusters::{Clusters, Run};

/// A longer directory is invalid; in bytes.
pub(super) const DIRECTORY_LENGTH_MAX: u64 = 256 << 20;

/// Directories are read in pieces of at most this many bytes.
const READ_LENGTH: u64 = 256 << 10;

/// Passes everything that the directory in these clusters says to `visit`.
///
/// # Errors
/// `Corrupt` if it is invalid; errors of `visit` and of reading the disk.
pub(super) fn for_each_entry(
    clusters: &Clusters<'_>,
    runs: &[Run],
    mut visit: impl FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let total: u64 = runs.iter().map(|run| run.count.saturating_mul(clusters.size())).sum();
    if total > DIRECTORY_LENGTH_MAX {
        return Err(Error::corrupt(format!("it has {total} bytes, more than a directory may have")));
    }
    let mut sets = Sets::default();
    let mut buffer = Vec::new();
    for run in runs {
        let length = run.count * clusters.size();
        for skip in (0..length).step_by(READ_LENGTH as usize) {
            if sets.is_over() {
                return Ok(());
            }
            buffer.resize(READ_LENGTH.min(length - skip) as usize, 0);
            clusters.read(run.first, skip, &mut buffer)?;
            for entry in buffer.chunks_exact(ENTRY_LENGTH) {
                if let Some(entry) = sets.push(entry)? {
                    visit(entry)?;
                }
            }
        }
    }
    sets.finish()
}
