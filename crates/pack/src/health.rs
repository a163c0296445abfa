//! The byte layout of a file of observations, written and parsed only here (`docs/formats/health.md`).
//!
//! Each observation has its own checksum, so an incomplete or damaged file still yields the other observations. Parsing accepts
//! hostile bytes and allocates only in proportion to them.

use std::hash::Hasher;

use platter_image::{Error, Result};
use twox_hash::XxHash3_64;

use platter_records::{PackId, StoreId};

const MAGIC: [u8; 4] = *b"PLhl";
const FORMAT_VERSION: u16 = 1;
const HEADER_LENGTH: usize = 64;
const OBSERVATION_LENGTH: usize = 48;

/// Maximum number of observations in a file.
pub const OBSERVATIONS_MAX: usize = 1 << 16;
/// Maximum length of a file in bytes.
pub const HEALTH_LENGTH_MAX: u64 = (HEADER_LENGTH + OBSERVATIONS_MAX * OBSERVATION_LENGTH) as u64;

/// The result of reading bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// Two reads returned bytes that do not match their hash or checksum.
    Damaged = 1,
    /// Two reads failed with an I/O error.
    Unreadable = 2,
    /// The whole pack was read, and every frame except those known to be bad was decoded and hashed.
    ReadBack = 3,
}

impl Condition {
    /// Describes the condition for messages.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Damaged => "the frame was found damaged",
            Self::Unreadable => "the frame could not be read",
            Self::ReadBack => "the pack was read back",
        }
    }
}

/// One result of reading bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Observation {
    /// The pack.
    pub pack: PackId,
    /// Offset of the frame; for [`Condition::ReadBack`], the length of the pack in bytes.
    pub offset: u64,
    /// The result.
    pub condition: Condition,
    /// Time in milliseconds since 1970 UTC. Only displayed.
    pub time_unix_ms: i64,
}

/// The contents of a file of observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// The valid observations.
    pub good: Vec<Observation>,
    /// Number of invalid ones: incomplete after a crash, or damaged.
    pub lost: usize,
}

/// Serializes observations: at most [`OBSERVATIONS_MAX`].
pub fn encode_health(store: StoreId, observations: &[Observation]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LENGTH + observations.len() * OBSERVATION_LENGTH);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&store.0);
    out.extend_from_slice(&[0; 24]);
    put_checksum(&mut out, 0);
    for observation in observations {
        let start = out.len();
        out.extend_from_slice(&observation.pack.0);
        out.extend_from_slice(&observation.offset.to_le_bytes());
        out.extend_from_slice(&observation.time_unix_ms.to_le_bytes());
        out.extend_from_slice(&[observation.condition as u8, 0, 0, 0, 0, 0, 0, 0]);
        put_checksum(&mut out, start);
    }
    out
}

/// Parses a file of observations. If its header is incomplete or damaged, all observations are lost.
///
/// # Errors
/// `Refused` when a newer Platter wrote it.
pub fn decode_health(bytes: &[u8], store: StoreId) -> Result<Observations> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_LENGTH) else {
        return Ok(Observations { good: Vec::new(), lost: usize::from(!bytes.is_empty()) });
    };
    let mut observations = Observations::default();
    let (records, torn) = rest.as_chunks::<OBSERVATION_LENGTH>();
    if header[..4] != MAGIC || !is_whole(header) || header[16..32] != store.0 {
        observations.lost = records.len().max(1);
        return Ok(observations);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != FORMAT_VERSION {
        return Err(Error::refused(format!(
            "health file of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        )));
    }
    for record in records {
        match decode_observation(record) {
            Some(observation) => observations.good.push(observation),
            None => observations.lost += 1,
        }
    }
    observations.lost += usize::from(!torn.is_empty());
    Ok(observations)
}

fn decode_observation(record: &[u8; OBSERVATION_LENGTH]) -> Option<Observation> {
    if !is_whole(record) {
        return None;
    }
    let number = |at: usize| record[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let condition = match record[32] {
        1 => Condition::Damaged,
        2 => Condition::Unreadable,
        3 => Condition::ReadBack,
        _ => return None,
    };
    let mut pack = [0; 16];
    pack.copy_from_slice(&record[..16]);
    let (offset, time) = (number(16), number(24));
    Some(Observation { pack: PackId(pack), offset, condition, time_unix_ms: time as i64 })
}

/// Returns whether the last 8 bytes are the checksum of the bytes before them.
fn is_whole(bytes: &[u8]) -> bool {
    let (covered, checksum) = bytes.split_at(bytes.len() - 8);
    XxHash3_64::oneshot(covered).to_le_bytes() == checksum
}

fn put_checksum(out: &mut Vec<u8>, start: usize) {
    let mut hasher = XxHash3_64::new();
    hasher.write(&out[start..]);
    out.extend_from_slice(&hasher.finish().to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId([7; 16]);

    fn observations(count: u64) -> Vec<Observation> {
        let conditions = [Condition::Damaged, Condition::Unreadable, Condition::ReadBack];
        let one = |number: u64| Observation {
            pack: PackId([number as u8; 16]),
            offset: number << 33 | 64,
            condition: conditions[number as usize % 3],
            time_unix_ms: 1_700_000_000_000 + number as i64,
        };
        (0..count).map(one).collect()
    }

    /// These bytes are a golden vector: format 1 must not change.
    #[test]
    fn the_golden_file_matches_what_is_written_and_parsed() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/health-v1.health");
        let written = encode_health(STORE, &observations(4));
        if std::env::var_os("PLATTER_WRITE_GOLDEN").is_some() {
            std::fs::write(&golden, &written).unwrap();
        }
        assert!(std::fs::read(golden).unwrap() == written);
        assert_eq!(decode_health(&written, STORE).unwrap(), Observations { good: observations(4), lost: 0 });
    }

    /// After any bit flip or truncation, only observations that were written are returned, and the undamaged ones still count.
    #[test]
    fn damage_loses_only_the_observations_it_hits() {
        let all = observations(3);
        let good = encode_health(STORE, &all);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let found = decode_health(&bad, STORE).unwrap();
            assert!(found.lost > 0 && found.good.iter().all(|observation| all.contains(observation)));
            assert_eq!(found.good.len(), if at < HEADER_LENGTH { 0 } else { 2 }, "byte {at}");
        }
        for length in 0..good.len() {
            let found = decode_health(&good[..length], STORE).unwrap();
            let whole = length.saturating_sub(HEADER_LENGTH) / OBSERVATION_LENGTH;
            assert_eq!(found.good, all[..whole]);
        }
        assert_eq!(decode_health(&good, StoreId([8; 16])).unwrap().good, []);
    }
}
