//! Packs and version records. The input is a pack, parsed unchanged and again with its three checksums corrected; bytes
//! after a record's magic are parsed as a record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{ReadOnly, bug_free, xxh3};
use platter_pack::{read_directory, read_listed, read_rows};
use platter_records::{PackId, StoreId, VersionRecord};

/// Bytes of the header and of the trailer; the last eight are a checksum of the others.
const FIXED_LENGTH: usize = 64;
/// Fewest bytes that a frame and a block take in a footer.
const ROW_LENGTH: usize = 24;
const ID_LENGTH: usize = 32;

fuzz_target!(|input: &[u8]| {
    if input.starts_with(b"PLvr") || !input.starts_with(b"PLpk") {
        check_record(input);
        return;
    }
    let mut bytes = input.to_vec();
    check_pack(&bytes);
    make_checksums_right(&mut bytes);
    check_pack(&bytes);
});

fn check_record(input: &[u8]) {
    let Some(record) = bug_free(VersionRecord::decode(input)) else { return };
    // The text may have many forms; its contents must survive.
    if let Some(encoded) = bug_free(record.encode()) {
        assert_eq!(VersionRecord::decode(&encoded).expect("written by us"), record);
    }
    assert!(record.number > 0);
}

fn check_pack(bytes: &[u8]) {
    let Some(header) = bytes.get(..FIXED_LENGTH) else { return };
    let id = |at: usize| -> [u8; 16] { header[at..at + 16].try_into().expect("sixteen bytes") };
    let (pack, store) = (PackId(id(16)), StoreId(id(32)));
    let file = ReadOnly(bytes.to_vec());
    let outline = bug_free(read_rows(&file, pack, store));
    let Some(directory) = bug_free(read_directory(&file, pack, store)) else { return };
    let (rows, mut ids_at) = outline.expect("the directory is right");
    assert_eq!(rows, directory.frames);
    let mut stored = Vec::new();
    for row in rows {
        let (address, blocks) = (row.address(0), row.blocks as usize);
        bug_free(read_listed(&file, address, (ids_at, blocks), row.whole_length(), &mut stored));
        ids_at += (blocks * ID_LENGTH) as u64;
    }
    let accounted = directory.frames() * ROW_LENGTH + directory.blocks() * ID_LENGTH;
    assert!(accounted + 2 * FIXED_LENGTH <= bytes.len(), "more rows than bytes");
    assert!(directory.frames() <= directory.blocks(), "a frame without blocks");
    let mut other = store;
    other.0[0] ^= 1;
    assert!(read_directory(&file, pack, other).is_err(), "a pack of another store");
}

/// Sets the checksums of header, footer and trailer to those of the bytes.
fn make_checksums_right(bytes: &mut [u8]) {
    if bytes.len() < 2 * FIXED_LENGTH {
        return;
    }
    let trailer_at = bytes.len() - FIXED_LENGTH;
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
    let (start, length) = (field(trailer_at + 8), field(trailer_at + 16));
    if let Some(footer) = bytes.get(start..start.saturating_add(length)) {
        let sum = xxh3(&[footer]);
        bytes[trailer_at + 32..trailer_at + 40].copy_from_slice(&sum.to_le_bytes());
    }
    for at in [0, trailer_at] {
        let sum = xxh3(&[&bytes[at..at + 56]]);
        bytes[at + 56..at + 64].copy_from_slice(&sum.to_le_bytes());
    }
}
