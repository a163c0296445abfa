//! Lines of the control socket of a process that serves disks: what parses must survive writing and parsing again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_live::read_control_line;

fuzz_target!(|input: &[u8]| {
    for line in input.split(|byte| *byte == b'\n') {
        for written in read_control_line(line).into_iter().flatten() {
            assert!(!written.contains('\n'), "a line within a line");
            let again = read_control_line(written.as_bytes());
            assert!(again.contains(&Some(written.clone())), "{written} is read otherwise");
        }
    }
});
