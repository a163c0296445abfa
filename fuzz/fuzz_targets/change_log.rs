//! The change log. The input is a log, parsed unchanged and again with all checksums corrected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{ReadOnly, bug_free, xxh3};
use platter_store::read_change_log;

const HEADER_LENGTH: usize = 32;
const ENTRY_HEAD: usize = 24;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut bytes = input.to_vec();
    if bytes.len() < HEADER_LENGTH {
        return;
    }
    let sum = xxh3(&[&bytes[..24]]);
    bytes[24..HEADER_LENGTH].copy_from_slice(&sum.to_le_bytes());
    let id: String = bytes[8..24].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut at = HEADER_LENGTH;
    while let Some(head) = bytes.get(at..at + ENTRY_HEAD) {
        let length = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        let end = at + ENTRY_HEAD + length as usize;
        let Some(text) = bytes.get(at + ENTRY_HEAD..end) else { break };
        let offset = (at as u64).to_le_bytes();
        let sum = xxh3(&[id.as_bytes(), &offset, &head[8..16], &length.to_le_bytes(), text]);
        bytes[at..at + 4].copy_from_slice(b"\0PLc");
        bytes[at + 16..at + ENTRY_HEAD].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    check(&bytes);
});

fn check(bytes: &[u8]) {
    let Some(contents) = bug_free(read_change_log(Box::new(ReadOnly(bytes.to_vec())))) else { return };
    let count = contents.entries();
    assert!(count == 0 || HEADER_LENGTH + count * ENTRY_HEAD <= bytes.len(), "more than there are");
    assert!(!contents.is_whole() || count > 0, "whole, and says nothing");
}
