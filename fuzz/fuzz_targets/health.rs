//! Observations of packs. The input is a file of them, parsed unchanged and again with all checksums corrected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{bug_free, xxh3};
use platter_records::StoreId;
use platter_store::decode_health;

const HEADER_LENGTH: usize = 64;
const OBSERVATION_LENGTH: usize = 48;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut bytes = input.to_vec();
    let Some((header, rest)) = bytes.split_at_mut_checked(HEADER_LENGTH) else { return };
    make_checksum_right(header);
    rest.chunks_exact_mut(OBSERVATION_LENGTH).for_each(make_checksum_right);
    check(&bytes);
});

fn check(bytes: &[u8]) {
    let mut store = [0; 16];
    if let Some(found) = bytes.get(16..32) {
        store.copy_from_slice(found);
    }
    let Some(found) = bug_free(decode_health(bytes, StoreId(store))) else { return };
    let count = found.good.len();
    assert!(count == 0 || HEADER_LENGTH + count * OBSERVATION_LENGTH <= bytes.len(), "more than there are");
    let of_another = StoreId(store.map(|byte| !byte));
    if let Some(found) = bug_free(decode_health(bytes, of_another)) {
        assert!(found.good.is_empty(), "observations of another store");
    }
}

/// Sets the last eight bytes to the checksum of the preceding ones.
fn make_checksum_right(bytes: &mut [u8]) {
    let at = bytes.len() - 8;
    let sum = xxh3(&[&bytes[..at]]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
}
