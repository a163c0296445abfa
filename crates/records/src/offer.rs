//! The signatures of a version in the compact form that a cast announces: time of publishing, and each signature with its store.
//! With the announced name and score, a receiver has all parts of the signed statement.

use crate::identity::StoreId;
use crate::record::VersionRecord;
use crate::signature::{SIGNATURE_LENGTH_MAX, SIGNATURES_MAX, Signature};

/// Bytes before the text of a signature: store and length.
const HEAD_LENGTH: usize = 18;

/// Encodes time and signatures of a version, as many as fit in `length_max` bytes. Empty if the version is not signed.
pub fn encode_offer(record: &VersionRecord, length_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Signature { store, text } in &record.signatures {
        let start = if bytes.is_empty() { 8 } else { bytes.len() };
        if start + HEAD_LENGTH + text.len() > length_max {
            continue;
        }
        if bytes.is_empty() {
            bytes.extend_from_slice(&record.time_unix_ms.to_le_bytes());
        }
        bytes.extend_from_slice(&store.0);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Decodes time and signatures. `None` for anything that [`encode_offer`] does not make.
pub fn decode_offer(bytes: &[u8]) -> Option<(i64, Vec<Signature>)> {
    let (time, mut rest) = bytes.split_first_chunk::<8>()?;
    let mut signatures = Vec::new();
    while !rest.is_empty() {
        let (store, after) = rest.split_first_chunk::<16>()?;
        let (length, after) = after.split_first_chunk::<2>()?;
        let (text, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        if text.len() > SIGNATURE_LENGTH_MAX || signatures.len() == SIGNATURES_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?.to_owned();
        signatures.push(Signature { store: StoreId(*store), text });
        rest = after;
    }
    (!signatures.is_empty()).then_some((i64::from_le_bytes(*time), signatures))
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Score};

    use super::*;

    #[test]
    fn signatures_round_trip_and_those_that_do_not_fit_are_left_out() {
        let mut record = VersionRecord::draft("lab/a".parse().unwrap(), Score(BlockId([1; 32])), 1234);
        assert!(encode_offer(&record, 4096).is_empty());
        let signature = |store, length| Signature { store: StoreId([store; 16]), text: "x".repeat(length) };
        record.signatures = vec![signature(1, 300), signature(2, 700), signature(3, 200)];
        let fitting = vec![signature(1, 300), signature(3, 200)];
        assert_eq!(decode_offer(&encode_offer(&record, 600)), Some((1234, fitting)));
        assert!(encode_offer(&record, 100).is_empty());
        let whole = encode_offer(&record, 4096);
        assert_eq!(decode_offer(&whole), Some((1234, record.signatures)));
        for length in 0..whole.len() {
            let ends_between = [8 + 18 + 300, 8 + 18 + 300 + 18 + 700].contains(&length);
            assert_eq!(decode_offer(&whole[..length]).is_some(), ends_between, "{length}");
        }
    }
}
