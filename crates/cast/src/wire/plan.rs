//! PLAN, from the sender to the group: which chunks were sent completely, how much repair of each is planned, how much is
//! left to send, which receivers report often, and how much space the sender counts on.
//!
//! It tells receivers that they may request missing symbols of a finished chunk, and which requests are unnecessary because
//! planned repair covers them. It is repeated a few times, because it may be lost. A receiver with less space than the sender counts on
//! speaks up.

use super::format::{BODY_END_MAX, HEADER_BYTES, Header, Reader, begin, put_u48};

/// Bytes before the lists: pending 4, last packet 6, number of entries 2, number of spokesmen 2, least free buffers 4.
const FIXED_BYTES: usize = 4 + 6 + 2 + 2 + 4;
/// Bytes of an entry: chunk 4, end packet 6, repair sent 2, repair planned 2.
const ENTRY_BYTES: usize = 14;
/// Maximum number of spokesmen in a plan.
pub(crate) const SPOKESMEN_MAX: usize = 16;
/// The sender does not know how many free buffers any receiver has.
pub(crate) const LEAST_FREE_UNKNOWN: u32 = u32::MAX;
/// Maximum number of entries in a plan.
pub(crate) const ENTRIES_MAX: usize =
    (BODY_END_MAX - HEADER_BYTES - FIXED_BYTES - SPOKESMEN_MAX * 4) / ENTRY_BYTES;

/// The progress of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    pub(crate) chunk: u32,
    /// All planned symbols of this chunk were sent before this packet number.
    pub(crate) end_packet: u64,
    /// Number of repair symbols sent so far, which is the index of the next one.
    pub(crate) repair_sent: u16,
    /// Number of repair symbols that will have been sent when the planned repair is done.
    pub(crate) repair_planned: u16,
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Chunks that are pending or being sent; 0 means that the sender waits for requests.
    pub(crate) pending: u32,
    /// Number of the last data packet.
    pub(crate) last_data_packet: u64,
    /// At most [`ENTRIES_MAX`].
    pub(crate) entries: Vec<PlanEntry>,
    /// The number of free buffers that the sender counts on at the worst receiver that it knows of.
    pub(crate) least_free: u32,
    /// Receivers that report often; at most [`SPOKESMEN_MAX`].
    pub(crate) spokesmen: Vec<u32>,
}

impl Plan {
    /// Encodes the datagram.
    pub(crate) fn write(&self, header: &Header, to: &mut Vec<u8>) {
        let entries = &self.entries[..self.entries.len().min(ENTRIES_MAX)];
        let spokesmen = &self.spokesmen[..self.spokesmen.len().min(SPOKESMEN_MAX)];
        begin(to, header);
        to.extend_from_slice(&self.pending.to_le_bytes());
        put_u48(to, self.last_data_packet);
        to.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        to.extend_from_slice(&(spokesmen.len() as u16).to_le_bytes());
        to.extend_from_slice(&self.least_free.to_le_bytes());
        for entry in entries {
            to.extend_from_slice(&entry.chunk.to_le_bytes());
            put_u48(to, entry.end_packet);
            to.extend_from_slice(&entry.repair_sent.to_le_bytes());
            to.extend_from_slice(&entry.repair_planned.to_le_bytes());
        }
        for receiver in spokesmen {
            to.extend_from_slice(&receiver.to_le_bytes());
        }
    }

    /// Parses the bytes after the header.
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        let pending = reader.u32()?;
        let last_data_packet = reader.u48()?;
        let entry_count = usize::from(reader.u16()?);
        let spokesmen_count = usize::from(reader.u16()?);
        if entry_count > ENTRIES_MAX || spokesmen_count > SPOKESMEN_MAX {
            return None;
        }
        let least_free = reader.u32()?;
        let mut plan = Self { pending, last_data_packet, least_free, ..Self::default() };
        for _ in 0..entry_count {
            plan.entries.push(PlanEntry {
                chunk: reader.u32()?,
                end_packet: reader.u48()?,
                repair_sent: reader.u16()?,
                repair_planned: reader.u16()?,
            });
        }
        for _ in 0..spokesmen_count {
            plan.spokesmen.push(reader.u32()?);
        }
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::MessageType;
    use super::*;

    #[test]
    fn the_largest_plan_round_trips() {
        let header = Header { message: MessageType::Plan, session: 1, packet: 2, sent_us: 3 };
        let entry = |chunk| PlanEntry { chunk, end_packet: 1 << 40, repair_sent: 3, repair_planned: 256 };
        let plan = Plan {
            pending: 5,
            last_data_packet: 1 << 47,
            entries: (0..ENTRIES_MAX as u32).map(entry).collect(),
            least_free: LEAST_FREE_UNKNOWN,
            spokesmen: (0..SPOKESMEN_MAX as u32).collect(),
        };
        let mut bytes = Vec::new();
        plan.write(&header, &mut bytes);
        assert!(bytes.len() <= BODY_END_MAX);
        assert_eq!(Plan::parse(Header::parse(&bytes).unwrap().1), Some(plan));
        let (_, cut) = Header::parse(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(Plan::parse(cut), None);
    }
}
