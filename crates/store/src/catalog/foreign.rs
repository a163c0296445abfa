//! Limits of what another store says: numbers and sizes that leave room for later ones.

use platter_image::{Error, Result};
use platter_records::VersionRecord;

/// Maximum number of a version, edit lock or change of another store: later ones still have numbers to take.
pub(crate) const NUMBER_MAX: u64 = 1 << 52;
/// Maximum of a number in a row of an origin, which may have taken some since it imported a version with that one.
pub(crate) const FOLLOWED_NUMBER_MAX: u64 = 1 << 56;
/// Maximum size in an imported record, in bytes.
const SIZE_MAX: u64 = 1 << 53;

/// Refuses numbers and sizes of another store that leave no room for later ones, or for sums.
///
/// # Errors
/// `Refused`.
pub(crate) fn refuse_impossible(record: &VersionRecord) -> Result<()> {
    if record.time_unix_ms.unsigned_abs() > NUMBER_MAX {
        return Err(Error::refused(format!("{}: its time is impossible", record.name())));
    }
    if record.number.max(record.edit_lock.unwrap_or(0)) > NUMBER_MAX {
        return Err(Error::refused(format!("{}: its numbers are too high", record.name())));
    }
    let sizes = [
        record.allocated_bytes,
        record.skipped_gap_bytes,
        record.new_raw_bytes,
        record.new_stored_bytes,
        record.unreadable_omitted.map_or(0, |omitted| omitted.bytes.max(omitted.ranges)),
    ];
    match sizes.iter().any(|size| *size > SIZE_MAX) {
        false => Ok(()),
        true => Err(Error::refused(format!("{}: a size in its record is impossible", record.name()))),
    }
}
