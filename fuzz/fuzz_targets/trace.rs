//! Traces. The input is a trace's file, parsed unchanged and again with the checksums of all its batches corrected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{bug_free, xxh3_after};
use platter_vdisk::Trace;

const HEADER_LENGTH: usize = 56;
const BATCH_HEADER_LENGTH: usize = 16;
const REQUEST_LENGTH: usize = 40;

fuzz_target!(|input: &[u8]| {
    check(input);
    check(&with_checksums(input.to_vec()));
});

fn check(bytes: &[u8]) {
    let Some(trace) = bug_free(Trace::read(bytes)) else { return };
    assert!(trace.requests.len() * REQUEST_LENGTH <= bytes.len());
    assert!(trace.requests.is_sorted_by_key(|request| request.start_ns));
    for request in &trace.requests {
        assert!(request.range.offset.checked_add(request.range.length).unwrap() <= trace.header.disk_length);
        assert!(request.end_ns() >= request.start_ns);
    }
}

fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let (mut start, mut length, mut chain) = (0, HEADER_LENGTH, 0);
    while let Some(covered) = bytes.get(start..start + length).filter(|_| bytes.len() >= start + length + 8) {
        chain = xxh3_after(chain, covered);
        start += length;
        bytes[start..start + 8].copy_from_slice(&chain.to_le_bytes());
        start += 8;
        let Some(count) = bytes.get(start..).and_then(|rest| rest.first_chunk()) else { break };
        length = BATCH_HEADER_LENGTH + REQUEST_LENGTH * u32::from_le_bytes(*count) as usize;
    }
    bytes
}
