//! RESUME, from a receiver to the sender: this connection is mine. It is a datagram of the receiver, in a message of the reliable channel,
//! so that it is protected as those are: by the receiver's key and a packet number that counts once.
//!
//! It has a type of its own. Otherwise whoever sees a report could send it over his connection before it arrives.

use super::format::{Header, Reader, begin};

/// A receiver's claim to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    pub(crate) receiver: u32,
}

impl Resume {
    /// Encodes the datagram.
    pub(crate) fn write(&self, header: &Header, to: &mut Vec<u8>) {
        begin(to, header);
        to.extend_from_slice(&self.receiver.to_le_bytes());
    }

    /// Parses the bytes after the header. Later versions may append fields.
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        Some(Self { receiver: reader.u32()? })
    }
}
