//! DATA, from the sender to the group: one symbol of one chunk. Source symbols are numbered from 0, repair symbols from
//! [`SYMBOLS_MAX`](crate::session::SYMBOLS_MAX).
//!
//! This is the hot path of both sides: data is written to and read from the batch in place. Must never allocate.

use super::format::{HEADER_BYTES, Header, Reader, TAG_BYTES};
use crate::session::SYMBOL_BYTES;

/// Length of a data datagram without a tag in bytes: header 18, chunk 4, symbol 2, symbol data 1408.
pub(crate) const DATA_BYTES: usize = HEADER_BYTES + 4 + 2 + SYMBOL_BYTES;

/// Length of a whole data datagram in bytes.
pub(crate) const SEALED_DATA_BYTES: usize = DATA_BYTES + TAG_BYTES;

/// A received symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'a> {
    pub(crate) chunk: u32,
    pub(crate) symbol: u16,
    pub(crate) bytes: &'a [u8; SYMBOL_BYTES],
}

impl<'a> Data<'a> {
    /// Appends a datagram without its tag. `bytes` is at most a symbol; a shorter one (the end of a chunk) is padded with zeros.
    pub(crate) fn append(header: &Header, chunk: u32, symbol: u16, bytes: &[u8], to: &mut Vec<u8>) {
        let mut front = [0; HEADER_BYTES];
        header.write(&mut front);
        let end = to.len() + DATA_BYTES;
        to.extend_from_slice(&front);
        to.extend_from_slice(&chunk.to_le_bytes());
        to.extend_from_slice(&symbol.to_le_bytes());
        to.extend_from_slice(&bytes[..bytes.len().min(SYMBOL_BYTES)]);
        to.resize(end, 0);
    }

    /// Parses the bytes after the header.
    pub(crate) fn parse(mut reader: Reader<'a>) -> Option<Self> {
        let chunk = reader.u32()?;
        let symbol = reader.u16()?;
        let bytes = reader.rest().try_into().ok()?;
        Some(Self { chunk, symbol, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::MessageType;
    use super::*;

    #[test]
    fn a_short_symbol_is_padded_and_other_lengths_are_refused() {
        let header = Header { message: MessageType::Data, session: 1, packet: 2, sent_us: 3 };
        let mut bytes = b"before".to_vec();
        Data::append(&header, 70_000, 1025, b"abc", &mut bytes);
        assert_eq!(bytes.len(), 6 + DATA_BYTES);
        let (_, rest) = Header::parse(&bytes[6..]).unwrap();
        let data = Data::parse(rest).unwrap();
        assert_eq!((data.chunk, data.symbol), (70_000, 1025));
        assert_eq!(&data.bytes[..5], b"abc\0\0");
        let (_, short) = Header::parse(&bytes[6..bytes.len() - 1]).unwrap();
        assert!(Data::parse(short).is_none());
    }
}
