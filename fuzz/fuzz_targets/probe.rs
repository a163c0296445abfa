//! Datagrams and messages to both state machines of a probe. The input is a list of steps: a new datagram or message, or one that a
//! machine sent before, with edits, and mostly with a valid tag; between steps the clock advances and both machines are polled. Whatever
//! comes, they send no more than the series, and the probe ends. A bit of the first byte chooses a probe with a join key.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{ADDRESS, ProbePair, edits};

/// Most steps taken from an input.
const STEPS_MAX: usize = 64;
/// Connections to the sender: that of the receiver that joined is 1.
const CONNECTIONS: u8 = 4;

fuzz_target!(|input: &[u8]| {
    let mut pair = ProbePair::joined(input.first().is_some_and(|what| what & 32 != 0));
    let mut rest = input;
    for _ in 0..STEPS_MAX {
        let Some((step, after)) = rest.split_first_chunk::<4>() else { break };
        let [what, which, time, length] = *step;
        let (body, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        pair.now += Duration::from_millis(u64::from(time) * 8);
        pair.settle();
        let is_message = what & 2 != 0;
        let said = if is_message { &pair.messages } else { &pair.datagrams };
        let mut bytes = match what & 1 == 0 || said.is_empty() {
            true => body.to_vec(),
            false => edited(&said[usize::from(which) % said.len()], body),
        };
        let connection = u64::from(which % CONNECTIONS);
        if is_message {
            if what & 4 == 0 {
                pair.tell_receiver(&bytes);
            }
            if what & 8 == 0 {
                pair.sender.handle_message(connection, ADDRESS, &bytes);
            }
        } else {
            if what & 16 == 0 {
                pair.retag(&mut bytes);
            }
            if what & 4 == 0 {
                pair.deliver(&bytes);
            }
            if what & 8 == 0 {
                pair.sender.handle_datagram(&bytes);
            }
        }
        if what & 64 != 0 {
            pair.sender.handle_disconnect(connection);
        }
    }
    pair.end();
});

fn edited(said: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = said.to_vec();
    for edit in edits(body) {
        let span = bytes.len().max(1);
        edit.apply(&mut bytes, edit.place % span);
    }
    bytes
}
