//! Key files of encrypted stores. The input is a file; what is read is written and read again without a change. No slot is opened:
//! that costs time and memory, within the limits that are checked here.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_encryption::{KEY_FILE_LENGTH_MAX, KeyFile, SLOTS_MAX};
use platter_fuzz::bug_free;

fuzz_target!(|input: &[u8]| {
    let Some(keys) = bug_free(KeyFile::decode(input)) else { return };
    assert!(input.len() as u64 <= KEY_FILE_LENGTH_MAX);
    let slots = keys.slots();
    assert!((1..=SLOTS_MAX).contains(&slots.len()) && keys.domain().is_encrypted());
    for slot in &slots {
        let cost = slot.argon2id;
        assert!(cost.memory_kib <= 1 << 20 && cost.passes <= 64 && (1..=16).contains(&cost.lanes));
        assert!(cost.memory_kib >= 8 * cost.lanes && cost.passes >= 1);
    }
    let again = KeyFile::decode(&keys.encode().expect("it was read")).expect("it was written by us");
    assert_eq!(again, keys);
});
