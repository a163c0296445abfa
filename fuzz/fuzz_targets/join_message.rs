//! The reliable channel: a byte stream cut into messages, and the messages given to both machines; and what a port reads of a stream or datagram.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_cast::{MESSAGE_BYTES_MAX, MessageBuffer, Opening, session_of};
use platter_fuzz::{ADDRESS, CastPair};

fuzz_target!(|input: &[u8]| {
    let Some((choices, stream)) = input.split_first() else { return };
    if let Some(first) = stream.first_chunk()
        && let Some(opening) = Opening::parse(first)
    {
        assert_eq!(opening.to_bytes(), *first);
    }
    let _ = session_of(stream);
    let messages = cut(stream, stream.len());
    assert_eq!(
        cut(stream, usize::from(choices >> 3) + 1),
        messages,
        "pieces of another size, other messages"
    );
    let total: usize = messages.iter().map(|message| message.len() + 4).sum();
    assert!(total <= stream.len());
    let mut pair =
        if choices & 1 == 0 { CastPair::apart(choices & 4 != 0) } else { CastPair::joined(choices & 4 != 0) };
    if choices & 2 != 0 {
        pair.receiver.handle_connected(pair.now);
    }
    for (number, message) in messages.iter().enumerate() {
        pair.sender.handle_message(pair.now, number as u64 % 3, ADDRESS, message);
        pair.receiver.handle_message(pair.now, message);
        pair.settle(false);
    }
    // A joined receiver goes on without its connection, and may use another one.
    pair.sender.handle_disconnect(0);
    pair.receiver.handle_disconnected(pair.now);
    pair.settle(false);
    pair.receiver.handle_connected(pair.now);
    pair.settle(false);
});

/// The messages in a stream that arrives in pieces of this size, up to the first that is too long.
fn cut(stream: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let (mut buffer, mut messages) = (MessageBuffer::default(), Vec::new());
    for bytes in stream.chunks(piece.max(1)) {
        let goes_on = buffer.push(bytes);
        while let Some(message) = buffer.next_message() {
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            messages.push(message);
        }
        if !goes_on {
            break;
        }
    }
    messages
}
