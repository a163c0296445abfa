//! The bitmaps of clusters and of records, read piece by piece.

use platter_image::{Error, Extents, Result};

use super::stream::Stream;
use crate::clusters::Clusters;

/// Bitmaps are read in pieces of this many bytes.
const READ_LENGTH: u64 = 1 << 20;
/// A bitmap with more runs is not used: they would take too much memory.
const RUNS_MAX: usize = 1 << 22;

/// Where the clusters lie that a bitmap marks as used.
///
/// # Errors
/// `Corrupt` if it is too short, or marks too many pieces; errors of reading the disk.
pub(super) fn used(bitmap: &Stream, clusters: &Clusters<'_>) -> Result<Extents> {
    if bitmap.written() < clusters.count().div_ceil(8) {
        return Err(Error::corrupt(format!(
            "its bitmap has {} bytes for {} clusters",
            bitmap.written(),
            clusters.count()
        )));
    }
    let mut used = Extents::new();
    for_each_run(bitmap, clusters, clusters.count(), |first, count| {
        used.push(clusters.at(first, count));
        match used.as_slice().len() < RUNS_MAX {
            true => Ok(()),
            false => Err(Error::corrupt(format!("its used space is in more than {RUNS_MAX} pieces"))),
        }
    })?;
    Ok(used)
}

/// Passes each run of the first `bits` bits that are set to `visit`: its first bit and its length. Runs that cross a
/// piece are passed in two.
///
/// # Errors
/// Errors of `visit` and of reading the disk.
pub(super) fn for_each_run(
    bitmap: &Stream,
    clusters: &Clusters<'_>,
    bits: u64,
    mut visit: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let length = bits.div_ceil(8);
    let mut buffer = Vec::new();
    for offset in (0..length).step_by(READ_LENGTH as usize) {
        buffer.resize(READ_LENGTH.min(length - offset) as usize, 0);
        bitmap.read(clusters, offset, &mut buffer)?;
        let mut start = None;
        let base = offset * 8;
        let end = (buffer.len() as u64 * 8).min(bits - base);
        let mut index = 0;
        while index < end {
            let byte = buffer[(index / 8) as usize];
            // Most bytes are full or empty.
            if index.is_multiple_of(8) && index + 8 <= end && byte == if start.is_some() { 0xff } else { 0 } {
                index += 8;
                continue;
            }
            match (start, byte >> (index % 8) & 1 == 1) {
                (None, true) => start = Some(index),
                (Some(first), false) => {
                    visit(base + first, index - first)?;
                    start = None;
                }
                _ => {}
            }
            index += 1;
        }
        if let Some(first) = start {
            visit(base + first, end - first)?;
        }
    }
    Ok(())
}
