//! Runs of clusters: pairs of a length, and the distance to the start of the run before.
//!
//! The halves of the first byte of a pair give the bytes of length and distance, which are little-endian numbers with
//! a sign. A run without a distance is a hole. A zero byte ends the list.

use platter_image::{Error, Result};

/// Consecutive clusters of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster on the volume; `None` for a hole.
    pub(super) cluster: Option<u64>,
    /// How many.
    pub(super) count: u64,
}

/// Decodes a list of runs on a volume with this many clusters.
///
/// # Errors
/// `Corrupt` if the list is invalid or a run leaves the volume.
pub(super) fn decode(mut bytes: &[u8], clusters: u64) -> Result<Vec<Run>> {
    let (mut runs, mut last, mut total) = (Vec::new(), 0_i64, 0_i64);
    loop {
        let (head, rest) =
            bytes.split_first().ok_or_else(|| Error::corrupt("has a list of runs without an end"))?;
        if *head == 0 {
            return Ok(runs);
        }
        let [length, distance] = [head & 0xf, head >> 4].map(usize::from);
        let count = rest.get(..length).and_then(number).filter(|count| *count > 0);
        let sum = count.and_then(|count| total.checked_add(count));
        let (Some(count), Some(sum)) = (count, sum) else {
            return Err(Error::corrupt(format!("has a run without a valid length after {total} clusters")));
        };
        total = sum;
        let after = rest.get(length..).unwrap_or_default();
        let cluster = if distance == 0 {
            None
        } else {
            let start =
                after.get(..distance).and_then(number).and_then(|distance| last.checked_add(distance));
            let start = start.filter(|start| {
                *start >= 0 && start.checked_add(count).is_some_and(|end| end.cast_unsigned() <= clusters)
            });
            last = start.ok_or_else(|| {
                Error::corrupt(format!("has a run of {count} clusters that does not lie on the volume"))
            })?;
            Some(last.cast_unsigned())
        };
        runs.push(Run { cluster, count: count.cast_unsigned() });
        bytes = after.get(distance..).unwrap_or_default();
    }
}

/// A number of 1 to 8 bytes with a sign.
fn number(bytes: &[u8]) -> Option<i64> {
    let (last, rest) = bytes.split_last().filter(|(_, rest)| rest.len() < 8)?;
    Some(rest.iter().rev().fold(i64::from(last.cast_signed()), |number, byte| number << 8 | i64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8]) -> std::result::Result<Vec<(Option<u64>, u64)>, String> {
        let runs = decode(bytes, 0x10000).map_err(|error| error.to_string())?;
        Ok(runs.into_iter().map(|run| (run.cluster, run.count)).collect())
    }

    #[test]
    fn runs_are_decoded_with_signs_and_holes() {
        let list = b"\x21\x18\x34\x56\x01\x30\x11\x08\xe0\x12\x00\x01\x02\x00";
        assert_eq!(
            runs(list).unwrap(),
            [(Some(0x5634), 0x18), (None, 0x30), (Some(0x5614), 8), (Some(0x5616), 0x100)]
        );
        assert_eq!(runs(b"\x11\x02\x00\x00").unwrap(), [(Some(0), 2)], "the boot sector's own cluster");
        assert_eq!(runs(b"\0").unwrap(), []);
    }

    #[test]
    fn invalid_runs_are_errors() {
        for (list, expected) in [
            (&b""[..], "without an end"),
            (b"\x11\x01\x01", "without an end"),
            (b"\x10\x05\x00", "without a valid length"),
            (b"\x11\x00\x05\x00", "without a valid length"),
            (b"\x11\xff\x05\x00", "without a valid length"),
            (b"\x19\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x00", "without a valid length"),
            (b"\x11\x01\xff\x00", "1 clusters that does not lie"),
            (b"\x31\x01\xff\xff\x00\x11\x01\x01\x00", "1 clusters that does not lie"),
            (b"\x31\x02\xff\xff\x00\x00", "2 clusters that does not lie"),
            (b"\x91\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x00", "does not lie"),
            (b"\x11\x01", "1 clusters that does not lie"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x01\x00", "after 9223372036854775807 clusters"),
        ] {
            let error = runs(list).unwrap_err();
            assert!(error.contains(expected), "{list:x?}: {error}");
        }
    }
}
