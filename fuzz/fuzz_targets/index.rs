//! The block index. The input is a manifest, the header page of a segment, or a page of entries; it is parsed unchanged and again with
//! its checksum corrected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{bug_free, xxh3};
use platter_index::{ENTRIES_PER_PAGE, Manifest, OFFSET_MAX, PAGE_LENGTH, SegmentHead, decode_page};

/// Segment id and number of the page of entries in the seeds.
const SEGMENT: [u8; 16] = [0; 16];
const PAGE: u64 = 0;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut bytes = input.to_vec();
    let Some(at) = bytes.len().checked_sub(8) else { return };
    // Seed 0 serves all three: that of the page is 0, too.
    let sum = xxh3(&[&bytes[..at]]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
    check(&bytes);
});

fn check(bytes: &[u8]) {
    if let Some(manifest) = bug_free(Manifest::decode(bytes)) {
        let rows = manifest.packs.len() + manifest.segments.len();
        assert!(rows * 24 <= bytes.len(), "more rows than bytes");
        assert!(manifest.packs.iter().all(|pack| pack.number < manifest.next_number));
    }
    // A header is valid for one length of the file only, which the input gives.
    let length = bytes.get(40..48).map_or(0, |entries| {
        let entries = u64::from_le_bytes(entries.try_into().expect("eight bytes"));
        let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64);
        let groups = 64_u64 << bytes.get(48).map_or(0, |groups| groups % 27);
        pages.saturating_mul(PAGE_LENGTH as u64 + 8).saturating_add(PAGE_LENGTH as u64 + groups)
    });
    bug_free(SegmentHead::decode(bytes, length));
    assert!(SegmentHead::decode(bytes, length.wrapping_add(1)).is_err(), "two lengths of one file");
    if let Some(entries) = bug_free(decode_page(SEGMENT, PAGE, bytes)) {
        assert!((1..=ENTRIES_PER_PAGE).contains(&entries.len()) && bytes.len() == PAGE_LENGTH);
        assert!(entries.iter().all(|entry| entry.offset <= OFFSET_MAX));
    }
}
