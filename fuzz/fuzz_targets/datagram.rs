//! Datagrams to both state machines of a cast in progress. The input is a list of steps: a new datagram, or one that a
//! machine sent before, with edits, and mostly with a valid tag, as if a receiver or the sender had lied; between steps the clock advances and both machines are polled.
//! A bit of the first byte chooses a cast with a join key, whose datagrams are encrypted after the edits.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{CastPair, EDIT_LENGTH, edits};

/// Most steps taken from an input.
const STEPS_MAX: usize = 64;
/// Edits are limited to the first bytes, which hold the fields.
const FRONT: usize = 96;

fuzz_target!(|input: &[u8]| {
    let mut pair = CastPair::joined(input.first().is_some_and(|what| what & 32 != 0));
    let mut rest = input;
    for _ in 0..STEPS_MAX {
        let Some((step, after)) = rest.split_first_chunk::<4>() else { break };
        let [what, which, time, length] = *step;
        let (body, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        pair.now += Duration::from_micros(u64::from(time).pow(2) * 20);
        let mut datagram = if what & 1 == 0 { body.to_vec() } else { edited(&pair, which, body) };
        if what & 16 == 0 {
            pair.retag(&mut datagram);
        }
        if what & 2 == 0 {
            pair.receiver.handle_datagram(pair.now, &datagram);
        }
        if what & 4 == 0 {
            pair.sender.handle_datagram(pair.now, &datagram);
        }
        if what & 8 == 0 {
            pair.settle(false);
        }
    }
    pair.now += Duration::from_secs(6);
    pair.settle(false);
});

/// A datagram that was sent before, with edits; truncated if bytes are left for a length.
fn edited(pair: &CastPair, which: u8, body: &[u8]) -> Vec<u8> {
    let mut datagram = pair.said[usize::from(which) % pair.said.len()].clone();
    for edit in edits(body) {
        let span = if edit.place < 1 << 15 { FRONT } else { datagram.len() };
        edit.apply(&mut datagram, edit.place % span);
    }
    if let [low, high] = body[body.len() / EDIT_LENGTH * EDIT_LENGTH..] {
        datagram.truncate(usize::from(low) | usize::from(high) << 8);
    }
    datagram
}
