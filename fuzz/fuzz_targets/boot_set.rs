//! Boot sets. The input is a boot set as it is transferred. It is parsed unchanged, again with the ids of its parts
//! corrected, and with every text that parses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::bug_free;
use platter_image::{BlockId, Kind};
use platter_records::{BOOT_SET_BLOCKS_MAX, BootSet};

const HEAD_LENGTH: usize = 12;
const PART_LENGTH_MAX: usize = 8 + 1985 * 33;

fuzz_target!(|input: &[u8]| {
    check(input);
    check(&with_names(input.to_vec()));
});

fn check(bytes: &[u8]) {
    let Some((id, set)) = bug_free(BootSet::decode_unnamed(bytes)) else { return };
    let count = set.pages.len() + set.blocks.len();
    assert!(count <= BOOT_SET_BLOCKS_MAX && count * 33 <= bytes.len());
    assert_eq!(set.pages[0].id, set.record.score.0);
    assert_eq!(BootSet::decode(&id, bytes).expect("it was one"), set);
    // Its text may have another form: then it is another boot set with the same contents.
    if let Ok(encoded) = set.encode() {
        let (again, found) = BootSet::decode_unnamed(&encoded.to_bytes()).expect("what was made is one");
        assert_eq!((again, found), (encoded.id, set));
    }
}

/// Sets the ids of its parts, as far as it has parts.
fn with_names(mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(head) = bytes.first_chunk::<HEAD_LENGTH>() else { return bytes };
    let parts = usize::from(u16::from_le_bytes([head[6], head[7]]));
    let text = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let Some(names) = HEAD_LENGTH.checked_add(text).filter(|names| *names <= bytes.len()) else {
        return bytes;
    };
    let start = names + parts * BlockId::LEN;
    for part in 0..parts {
        let from = start + part * PART_LENGTH_MAX;
        let to = (from + PART_LENGTH_MAX).min(bytes.len());
        if from >= to {
            break;
        }
        let name = BlockId::of(Kind::BootSet, &bytes[from..to]);
        bytes[names + part * BlockId::LEN..][..BlockId::LEN].copy_from_slice(&name.0);
    }
    bytes
}
