//! The bytes of a file of observations, written and parsed here only (`docs/formats/health.md`).
//!
//! Each observation proves itself, so that a file that a crash or a bad sector tore still tells the others. Parsing takes
//! hostile bytes and allocates no more than they account for.

use std::hash::Hasher;

use platter_image::{Error, Result};
use twox_hash::XxHash3_64;

use crate::identity::{PackId, StoreId};

const MAGIC: [u8; 4] = *b"PLhl";
const FORMAT_VERSION: u16 = 1;
const HEADER_LENGTH: usize = 64;
const OBSERVATION_LENGTH: usize = 48;

/// Most observations in one file.
pub(super) const OBSERVATIONS_MAX: usize = 1 << 16;
/// Most bytes of a file.
pub(super) const FILE_LENGTH_MAX: u64 = (HEADER_LENGTH + OBSERVATIONS_MAX * OBSERVATION_LENGTH) as u64;

/// What was seen when bytes of a pack were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// They came, twice, and are not what they must be.
    Damaged = 1,
    /// The system failed to read them, twice.
    Unreadable = 2,
    /// The whole pack was read, and every frame that was not found bad was decoded and hashed.
    ReadBack = 3,
}

/// One thing that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Observation {
    /// Where.
    pub pack: PackId,
    /// First byte of the frame; of a pack that was read back, its length.
    pub offset: u64,
    /// What.
    pub condition: Condition,
    /// When: for people, nothing is decided by it.
    pub time_unix_ms: i64,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// The good ones.
    pub good: Vec<Observation>,
    /// How many prove nothing: torn by a crash, or damaged.
    pub lost: usize,
}

/// A file of these observations.
pub(super) fn encode(store: StoreId, observations: &[Observation]) -> Vec<u8> {
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

/// Parses a file of observations. One whose header is torn or damaged says nothing: all of it is lost.
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
            "a file of findings about packs: format {version}, this Platter knows {FORMAT_VERSION}: use a newer one"
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

/// Whether the checksum at the end is that of what stands before it.
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

    /// Golden vector: format 1 as it was first written.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the golden file is no file of a store")]
    fn the_golden_file_is_what_is_written_and_read() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/health-v1.health");
        let written = encode(STORE, &observations(4));
        if std::env::var_os("PLATTER_WRITE_GOLDEN").is_some() {
            std::fs::write(&golden, &written).unwrap();
        }
        assert!(std::fs::read(golden).unwrap() == written);
        assert_eq!(decode_health(&written, STORE).unwrap(), Observations { good: observations(4), lost: 0 });
    }

    /// Whatever is flipped or cut, nothing is believed that was not written, and the rest of the file still counts.
    #[test]
    fn damage_costs_what_it_hits_and_no_more() {
        let all = observations(3);
        let good = encode(STORE, &all);
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
