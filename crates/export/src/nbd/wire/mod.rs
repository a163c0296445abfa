//! The bytes of NBD, as its protocol document says (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>):
//! fixed newstyle negotiation, simple and structured replies. All numbers are big-endian.
//!
//! Owns every constant of the protocol. Parsers take received bytes of capped length, and must never trust a length
//! inside.

mod handshake;
mod transmission;

#[cfg(test)]
mod golden;

pub use handshake::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, GREETING, INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT,
    INFO_NAME, NAME_BYTES_MAX, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OptionHeader, OptionRequest, ReplyKind,
    option_reply,
};
pub use transmission::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, CHUNK_HEADER_BYTES, ChunkKind, Command, CommandFlags, ErrorNumber,
    PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, Request, STATE_DATA, STATE_ZERO, chunk_header, error_chunk,
    simple_reply, transmission_flags,
};

/// Splits a big-endian number off the front of `bytes`; `None` when there are too few.
fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*number))
}

/// As [`take_u32`].
fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_be_bytes(*number))
}

/// As [`take_u32`].
fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_be_bytes(*number))
}

/// The part of a text that the protocol allows to send.
pub fn first_part(text: &str) -> &str {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
