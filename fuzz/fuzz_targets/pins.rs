//! Sets of pins. The input is the file of a set, parsed unchanged and again with its checksum corrected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_cache::{decode_pins, encode_pins};
use platter_fuzz::{bug_free, xxh3};

const CHECKSUM_LENGTH: usize = 8;

fuzz_target!(|input: &[u8]| {
    check(input);
    if let Some(length) = input.len().checked_sub(CHECKSUM_LENGTH) {
        let mut bytes = input[..length].to_vec();
        bytes.extend_from_slice(&xxh3(&[&input[..length]]).to_le_bytes());
        check(&bytes);
    }
});

fn check(bytes: &[u8]) {
    let Some(ids) = bug_free(decode_pins(bytes)) else { return };
    assert!(ids.is_sorted_by(|a, b| a < b), "pins out of order, or twice");
    let header = bytes.len() - CHECKSUM_LENGTH - ids.len() * 32;
    let written = encode_pins(&ids);
    assert_eq!(
        written[header..written.len() - CHECKSUM_LENGTH],
        bytes[header..bytes.len() - CHECKSUM_LENGTH]
    );
}
