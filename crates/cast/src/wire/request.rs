//! REQUEST, from a receiver to the sender: missing symbols, either counted (COUNT: any new repair symbols will do) or named
//! (CHUNKS, SYMBOLS: for late joins, deltas, and losses that the code cannot cover).
//!
//! It states the highest packet that the receiver has seen, so that the sender never repairs the same loss twice.

use super::format::{BODY_END_MAX, HEADER_BYTES, Header, Reader, begin, put_u48};

const COUNT: u8 = 1;
const CHUNKS: u8 = 2;
const SYMBOLS: u8 = 3;
/// Bytes before the items: receiver 4, packet 6, items 2.
const FIXED_BYTES: usize = 4 + 6 + 2;
/// Bytes of an item: kind 1, then two fields of 4.
const ITEM_BYTES: usize = 9;
/// Maximum number of items in a request.
pub(crate) const ITEMS_MAX: usize = (BODY_END_MAX - HEADER_BYTES - FIXED_BYTES) / ITEM_BYTES;

/// One requested item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestItem {
    /// This many more distinct symbols of the chunk.
    Count { chunk: u32, lacks: u16 },
    /// These chunks from their start.
    Chunks { first: u32, count: u32 },
    /// These source symbols of the chunk.
    Symbols { chunk: u32, first: u16, count: u16 },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) receiver: u32,
    /// The highest packet number received from the sender.
    pub(crate) seen_packet: u64,
    /// At most [`ITEMS_MAX`].
    pub(crate) items: Vec<RequestItem>,
}

impl Request {
    /// Encodes the datagram.
    pub(crate) fn write(&self, header: &Header, to: &mut Vec<u8>) {
        let items = &self.items[..self.items.len().min(ITEMS_MAX)];
        begin(to, header);
        to.extend_from_slice(&self.receiver.to_le_bytes());
        put_u48(to, self.seen_packet);
        to.extend_from_slice(&(items.len() as u16).to_le_bytes());
        for item in items {
            let (kind, first, second) = match *item {
                RequestItem::Count { chunk, lacks } => (COUNT, chunk, u32::from(lacks)),
                RequestItem::Chunks { first, count } => (CHUNKS, first, count),
                RequestItem::Symbols { chunk, first, count } => {
                    (SYMBOLS, chunk, u32::from(first) | u32::from(count) << 16)
                }
            };
            to.push(kind);
            to.extend_from_slice(&first.to_le_bytes());
            to.extend_from_slice(&second.to_le_bytes());
        }
    }

    /// Parses the bytes after the header. Skips items of unknown kinds.
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        let mut request = Self { receiver: reader.u32()?, seen_packet: reader.u48()?, items: Vec::new() };
        let count = usize::from(reader.u16()?);
        if count > ITEMS_MAX {
            return None;
        }
        for _ in 0..count {
            let (kind, first, second) = (reader.u8()?, reader.u32()?, reader.u32()?);
            match kind {
                COUNT => {
                    request.items.push(RequestItem::Count { chunk: first, lacks: second.min(0xffff) as u16 });
                }
                CHUNKS => request.items.push(RequestItem::Chunks { first, count: second }),
                SYMBOLS => request.items.push(RequestItem::Symbols {
                    chunk: first,
                    first: second as u16,
                    count: (second >> 16) as u16,
                }),
                _ => {}
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::MessageType;
    use super::*;

    #[test]
    fn all_kinds_of_items_round_trip() {
        let header = Header { message: MessageType::Request, session: 1, packet: 2, sent_us: 3 };
        let mut items = vec![
            RequestItem::Count { chunk: u32::MAX, lacks: u16::MAX },
            RequestItem::Chunks { first: 7, count: u32::MAX },
            RequestItem::Symbols { chunk: 9, first: 1023, count: 1 },
        ];
        items.resize(ITEMS_MAX, RequestItem::Count { chunk: 1, lacks: 2 });
        let request = Request { receiver: 5, seen_packet: 1 << 47, items };
        let mut bytes = Vec::new();
        request.write(&header, &mut bytes);
        assert!(bytes.len() <= BODY_END_MAX);
        assert_eq!(Request::parse(Header::parse(&bytes).unwrap().1), Some(request));
    }
}
