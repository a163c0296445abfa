//! OPEN, the first message of every connection, from the receiver: which session at the sender's port the connection is for.
//!
//! Casts of one process share a port, so whoever accepts a connection reads this message, and hands the rest of the stream to that cast.
//! It is readable, as the session is in every datagram.

use super::format::{Reader, VERSION};
use super::join::JoinMessage;
use crate::session::SessionId;

const OPEN: u8 = 16;

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// The first 4 bytes of the session's id. `None`: not known, so the one session of that port.
    pub session: Option<u32>,
}

impl Opening {
    /// Length of the message with its length field.
    pub const BYTES: usize = 10;

    /// For a connection to this session.
    pub fn to_session(session: &SessionId) -> Self {
        Self { session: Some(session.short()) }
    }

    /// Encodes the length and the message.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut to = [0; Self::BYTES];
        to[..4].copy_from_slice(&(Self::BYTES as u32 - 4).to_le_bytes());
        (to[4], to[5]) = (VERSION, OPEN);
        to[6..].copy_from_slice(&self.session.unwrap_or(0).to_le_bytes());
        to
    }

    /// Parses the first bytes of a connection. `None`: it is for something else.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? as usize != Self::BYTES - 4 || reader.u8()? != VERSION || reader.u8()? != OPEN {
            return None;
        }
        let session = reader.u32()?;
        Some(Self { session: (session != 0).then_some(session) })
    }

    /// The answer to a connection that no session takes: REFUSED with this reason, and its length.
    pub fn refusal(reason: &str) -> Vec<u8> {
        JoinMessage::Refused { reason: reason.into() }.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_round_trips_and_nothing_else_is_one() {
        for session in [None, Some(1), Some(u32::MAX)] {
            let opening = Opening { session };
            assert_eq!(Opening::parse(&opening.to_bytes()), Some(opening));
        }
        let bytes = Opening { session: Some(7) }.to_bytes();
        assert_eq!(bytes, [6, 0, 0, 0, 1, 16, 7, 0, 0, 0]);
        for (position, value) in [(0, 5), (0, 7), (3, 1), (4, 2), (5, 1), (5, 17)] {
            let mut other = bytes;
            other[position] = value;
            assert_eq!(Opening::parse(&other), None, "byte {position} = {value}");
        }
    }
}
