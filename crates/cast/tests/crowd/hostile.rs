//! A receiver that joined and then lies: in reports, in requests, or with forged datagrams of the sender.

use std::time::Duration;

use super::super::simulated::{Random, retag};
use super::{REPORT, REQUEST};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// It has no free buffer, all, or more than there can be, in turn; and sees nothing.
    Reports,
    /// It lacks most of some chunks.
    Requests,
    /// It sends plans in the sender's name: everybody is to report, nothing is pending; and symbols to a few receivers.
    Forges,
}

/// Number of receivers that a forged plan names.
pub const FORGED_NAMES: u32 = 4;

/// One of them.
pub struct Hostile {
    lie: Lie,
    random: Random,
    /// The keys of its own datagrams and of the sender's.
    keys: Option<([u8; 32], [u8; 32])>,
    receiver: [u8; 4],
    session: [u8; 4],
    packet: u64,
    seen: [u8; 6],
    speaks_at: Duration,
    /// Lies that are left.
    left: u32,
}

impl Hostile {
    pub fn new(seed: u64) -> Self {
        let lie = [Lie::Reports, Lie::Requests, Lie::Forges][seed as usize % 3];
        let left = 200;
        let (keys, receiver, session, seen) = (None, [0; 4], [0; 4], [0; 6]);
        Self {
            lie,
            random: Random(seed | 1),
            keys,
            receiver,
            session,
            packet: 0,
            seen,
            speaks_at: Duration::ZERO,
            left,
        }
    }

    /// Learns its keys.
    pub fn welcomed(&mut self, welcome: &[u8], keys: ([u8; 32], [u8; 32])) {
        self.keys = Some(keys);
        self.receiver.copy_from_slice(&welcome[6..10]);
    }

    /// Sees what its honest machine would have sent.
    pub fn saw(&mut self, datagram: &[u8]) {
        self.session.copy_from_slice(&datagram[4..8]);
    }

    /// Sees the newest datagram of the sender.
    pub fn saw_sent(&mut self, datagram: &[u8]) {
        self.seen.copy_from_slice(&datagram[8..14]);
    }

    fn header(&mut self, kind: u8, packet: u64) -> Vec<u8> {
        let mut bytes = vec![1, kind, 0, 0];
        bytes.extend(self.session);
        bytes.extend(&packet.to_le_bytes()[..6]);
        bytes.extend([0; 4]);
        bytes
    }

    /// Returns what it sends to the sender now.
    pub fn speak(&mut self, now: Duration, chunks: u32) -> Option<Vec<u8>> {
        let (own, _) = self.keys.filter(|_| self.session != [0; 4])?;
        if now < self.speaks_at || self.left == 0 || self.lie == Lie::Forges {
            return None;
        }
        self.speaks_at = now + Duration::from_millis(if self.lie == Lie::Reports { 10 } else { 300 });
        self.left -= 1;
        self.packet += 1;
        let kind = if self.lie == Lie::Reports { REPORT } else { REQUEST };
        let mut bytes = self.header(kind, self.packet);
        bytes.extend(self.receiver);
        bytes.extend(self.seen);
        if self.lie == Lie::Reports {
            bytes.extend((self.random.next() as u32).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&self.random.next().to_le_bytes()[..6]);
            let free = match self.left % 100 {
                0 => 9,
                50 => u32::MAX,
                _ => 0,
            };
            for value in [free, self.left % 7, chunks, 0, 0] {
                bytes.extend(value.to_le_bytes());
            }
            bytes.extend([0, 2]);
        } else {
            bytes.extend(1u16.to_le_bytes());
            bytes.push(1);
            bytes.extend(((self.random.next() as u32) % chunks + 1).to_le_bytes());
            bytes.extend(255u32.to_le_bytes());
        }
        retag(&mut bytes, &own);
        Some(bytes)
    }

    /// Returns a datagram in the sender's name, and whether all receivers get it.
    pub fn forge(&mut self, now: Duration) -> Option<(Vec<u8>, bool)> {
        let (_, sender) = self.keys.filter(|_| self.session != [0; 4])?;
        if now < self.speaks_at || self.left == 0 || self.lie != Lie::Forges {
            return None;
        }
        self.speaks_at = now + Duration::from_millis(100);
        self.left -= 1;
        let mut packet = [0; 8];
        packet[..6].copy_from_slice(&self.seen);
        // The next numbers, which the sender has not used yet. Much higher ones would look like loss to all receivers.
        let packet = u64::from_le_bytes(packet) + 1 + self.random.next() % 4;
        let is_plan = !self.left.is_multiple_of(20);
        let mut bytes = self.header(if is_plan { 3 } else { 2 }, packet);
        if is_plan {
            bytes.extend([0; 10]);
            bytes.extend([0, 0, FORGED_NAMES as u8, 0, 0xff, 0xff, 0xff, 0xff]);
            (0..FORGED_NAMES)
                .for_each(|_| bytes.extend(((self.random.next() as u32) % 10_000).to_le_bytes()));
        } else {
            bytes.extend(((self.random.next() as u32) % 8 + 1).to_le_bytes());
            bytes.extend([1, 0]);
            bytes.extend((0..super::SYMBOL_BYTES).map(|_| self.random.next() as u8));
        }
        retag(&mut bytes, &sender);
        Some((bytes, is_plan))
    }
}
