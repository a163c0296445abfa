//! Sessions and mounts that move to another process: what parses must survive writing and parsing again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_export::decode_session;
use platter_export::fuse::FuseState;
use platter_export::nbd::NbdState;
use platter_export::ninep::NinepState;

fuzz_target!(|input: &[u8]| {
    let text = match decode_session(input) {
        Ok((_, rest)) => rest.state,
        Err(_) => String::from_utf8_lossy(input).into_owned(),
    };
    if let Ok(state) = NbdState::from_text(&text) {
        assert_eq!(NbdState::from_text(&state.to_text().unwrap()).unwrap(), state);
    }
    if let Ok(state) = NinepState::from_text(&text) {
        assert_eq!(NinepState::from_text(&state.to_text().unwrap()).unwrap(), state);
    }
    if let Ok(state) = FuseState::from_text(&text) {
        assert_eq!(FuseState::from_text(&state.to_text().unwrap()).unwrap(), state);
    }
});
