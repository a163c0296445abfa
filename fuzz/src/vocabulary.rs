//! What holds for every parser: bad input is an error of the input's, never a broken promise of ours.

use platter_image::{ErrorKind, Result};
use twox_hash::XxHash3_64;

/// The result's value, if any.
///
/// # Panics
/// When the error is `Bug`: input must not be able to break an invariant.
pub fn bug_free<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Bug, "input broke an invariant: {error}");
            None
        }
    }
}

/// The checksum of frames and packs, over parts as if they were one.
pub fn xxh3(parts: &[&[u8]]) -> u64 {
    XxHash3_64::oneshot(&parts.concat())
}

/// The checksum of a part that continues another, whose checksum is `before`.
pub fn xxh3_after(before: u64, part: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(before, part)
}
