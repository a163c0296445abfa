//! REPORT, from a receiver to the sender: free buffers, progress and loss, for flow and rate control.

use super::format::{Header, Reader, begin, put_u48};
use crate::stage::SinkStage;

const DECODING: u8 = 1;
const DISK: u8 = 2;

/// A report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) receiver: u32,
    /// The highest packet number received from the sender.
    pub(crate) seen_packet: u64,
    /// Send time of that packet, and the microseconds since it arrived. They yield the round trip time on the sender's clock.
    pub(crate) echo_us: u32,
    pub(crate) echo_delay_us: u32,
    /// Number of packets of this session received since the join, of any type.
    pub(crate) received: u64,
    /// Number of free chunk buffers.
    pub(crate) free_chunks: u32,
    /// Content chunks that the sink has accepted, and that are wanted so far.
    pub(crate) done_chunks: u32,
    pub(crate) wanted_chunks: u32,
    /// Symbols restored from repair symbols so far.
    pub(crate) repaired: u32,
    /// Complete chunks that the sink has not accepted yet.
    pub(crate) waiting_chunks: u32,
    /// Share of the time in which the sink had something to do, and the stage that took longest.
    pub(crate) busy_percent: u8,
    pub(crate) stage: SinkStage,
}

impl Report {
    /// Encodes the datagram.
    pub(crate) fn write(&self, header: &Header, to: &mut Vec<u8>) {
        begin(to, header);
        to.extend_from_slice(&self.receiver.to_le_bytes());
        put_u48(to, self.seen_packet);
        to.extend_from_slice(&self.echo_us.to_le_bytes());
        to.extend_from_slice(&self.echo_delay_us.to_le_bytes());
        put_u48(to, self.received);
        for value in [self.free_chunks, self.done_chunks, self.wanted_chunks, self.repaired] {
            to.extend_from_slice(&value.to_le_bytes());
        }
        to.extend_from_slice(&self.waiting_chunks.to_le_bytes());
        to.push(self.busy_percent);
        to.push(match self.stage {
            SinkStage::Decoding => DECODING,
            SinkStage::Disk => DISK,
        });
    }

    /// Parses the bytes after the header. Later versions may append fields; earlier ones end before the load of the sink.
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        Some(Self {
            receiver: reader.u32()?,
            seen_packet: reader.u48()?,
            echo_us: reader.u32()?,
            echo_delay_us: reader.u32()?,
            received: reader.u48()?,
            free_chunks: reader.u32()?,
            done_chunks: reader.u32()?,
            wanted_chunks: reader.u32()?,
            repaired: reader.u32()?,
            waiting_chunks: reader.u32().unwrap_or(0),
            busy_percent: reader.u8().unwrap_or(0).min(100),
            stage: if reader.u8() == Some(DECODING) { SinkStage::Decoding } else { SinkStage::Disk },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::MessageType;
    use super::*;

    #[test]
    fn it_round_trips() {
        let header = Header { message: MessageType::Report, session: 1, packet: 2, sent_us: 3 };
        let report = Report {
            receiver: 1,
            seen_packet: 3,
            echo_us: 4,
            echo_delay_us: 5,
            received: 6,
            free_chunks: 7,
            done_chunks: 8,
            wanted_chunks: 9,
            repaired: 10,
            waiting_chunks: 11,
            busy_percent: 12,
            stage: SinkStage::Decoding,
        };
        let mut bytes = Vec::new();
        report.write(&header, &mut bytes);
        assert_eq!(Report::parse(Header::parse(&bytes).unwrap().1), Some(report));
        let parse = |length: usize| Report::parse(Header::parse(&bytes[..length]).unwrap().1);
        let without_load = Report { waiting_chunks: 0, busy_percent: 0, stage: SinkStage::Disk, ..report };
        assert_eq!(parse(bytes.len() - 6), Some(without_load));
        assert_eq!(parse(bytes.len() - 7), None);
    }
}
