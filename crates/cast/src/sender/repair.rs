//! Repair on request: for each chunk, how many repair symbols and which source symbols to send.
//!
//! Why the same loss is never repaired twice: a COUNT says how many symbols a receiver lacks *after all packets up to a
//! stated number*. Repair symbols that were sent after that packet, or will be sent, already help it. So the
//! target is an absolute number of repair symbols, `sent up to that packet + lacking`, and its maximum over all
//! receivers. Must never send a repair symbol twice before the chunk is sent from its start again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::coding::REPAIR_SYMBOLS;
use crate::session::SYMBOLS_MAX;

/// A first request waits this long for others about the same chunk, so that one answer serves all.
const GATHER: Duration = Duration::from_millis(6);
/// Number of chunks that are repaired at a time, one symbol each in turn, so that one lost batch does not hit one chunk alone.
const WINDOW: usize = 8;
/// Number of runs of repair symbols that are remembered per chunk. Older ones count as seen by all receivers.
const HISTORY_MAX: usize = 16;

/// The next symbol to send on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairSymbol {
    pub(crate) chunk: u32,
    pub(crate) symbol: u16,
    /// Whether it is the last symbol to repair of this chunk.
    pub(crate) last: bool,
}

#[derive(Debug, Default)]
struct ChunkRepair {
    sent: u16,
    target: u16,
    /// Pairs of a packet and the repair symbols sent up to it, ascending.
    history: VecDeque<(u64, u16)>,
    /// Source symbols to send again, one bit each.
    sources: [u64; SYMBOLS_MAX / 64],
    /// Number of source symbols that were named since the chunk was sent from its start.
    named: usize,
    /// The last packet that carried one of them.
    sources_packet: u64,
    due: Duration,
    queued: bool,
}

impl ChunkRepair {
    fn sent_up_to(&self, packet: u64) -> u16 {
        self.history.iter().rev().find(|(at, _)| *at <= packet).map_or(0, |(_, sent)| *sent)
    }

    fn next_source(&self) -> Option<u16> {
        let word = self.sources.iter().position(|word| *word != 0)?;
        Some((word * 64) as u16 + self.sources[word].trailing_zeros() as u16)
    }

    fn is_idle(&self) -> bool {
        self.sent >= self.target && self.sources.iter().all(|word| *word == 0)
    }
}

/// All repairs of a session.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    chunks: HashMap<u32, ChunkRepair>,
    queue: VecDeque<u32>,
    turn: usize,
}

impl Repairs {
    /// Processes a COUNT: a receiver that has seen all packets up to `seen` lacks `lacks` symbols of a chunk. Returns whether the
    /// plan has changed. Counts are ignored while named symbols of the chunk are in transit: these may be the missing ones, and a
    /// plan tells receivers when they have been sent.
    pub(crate) fn count(&mut self, now: Duration, chunk: u32, lacks: u16, seen: u64) -> bool {
        self.raise(now + GATHER, chunk, lacks, seen)
    }

    /// Plans repair symbols of a chunk that nobody requested, after those that were sent up to `seen`. They are due at once.
    pub(crate) fn unasked(&mut self, now: Duration, chunk: u32, symbols: u16, seen: u64) {
        self.raise(now, chunk, symbols, seen);
    }

    fn raise(&mut self, due: Duration, chunk: u32, lacks: u16, seen: u64) -> bool {
        if lacks == 0 {
            return false;
        }
        let repair = self.chunks.entry(chunk).or_default();
        if repair.next_source().is_some() || seen < repair.sources_packet {
            return false;
        }
        let target = repair.sent_up_to(seen).saturating_add(lacks).min(REPAIR_SYMBOLS as u16);
        if target <= repair.target {
            return false;
        }
        repair.target = target;
        self.enqueue(due, chunk);
        true
    }

    /// Processes a SYMBOLS request: a receiver that has seen packets up to `seen` lacks these of the chunk's `symbols` source
    /// symbols. Returns false if so many of them were named before that the whole chunk is to be sent again, in its turn: otherwise
    /// a receiver could have the same symbols sent for ever.
    pub(crate) fn sources(
        &mut self,
        now: Duration,
        chunk: u32,
        range: (u16, u16),
        symbols: usize,
        seen: u64,
    ) -> bool {
        let first = usize::from(range.0).min(symbols);
        let end = (first + usize::from(range.1)).min(symbols);
        if first >= end {
            return true;
        }
        let repair = self.chunks.entry(chunk).or_default();
        if seen < repair.sources_packet {
            return true;
        }
        let mut are_too_many = false;
        for symbol in first..end {
            let (word, bit) = (symbol / 64, 1 << (symbol % 64));
            let is_new = repair.sources[word] & bit == 0;
            if is_new && repair.named >= symbols {
                are_too_many = true;
                break;
            }
            repair.sources[word] |= bit;
            repair.named += usize::from(is_new);
        }
        if !repair.is_idle() {
            self.enqueue(now + GATHER, chunk);
        }
        !are_too_many
    }

    /// Returns whether something of a chunk is still to be repaired.
    pub(crate) fn is_open(&self, chunk: u32) -> bool {
        self.chunks.get(&chunk).is_some_and(|repair| !repair.is_idle())
    }

    fn enqueue(&mut self, due: Duration, chunk: u32) {
        if let Some(repair) = self.chunks.get_mut(&chunk)
            && !repair.queued
        {
            repair.queued = true;
            repair.due = due;
            self.queue.push_back(chunk);
        }
    }

    /// Drops the repair of a chunk that is sent from its start again. Its repair symbols then count from 0.
    pub(crate) fn restart(&mut self, chunk: u32) {
        if self.chunks.remove(&chunk).is_some() {
            self.queue.retain(|queued| *queued != chunk);
        }
    }

    /// Drops all repairs, because no receiver is left.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the next symbol to send, among chunks that are due and in memory (`has`). It counts as sent with packet number
    /// `packet`.
    pub(crate) fn next(
        &mut self,
        now: Duration,
        packet: u64,
        has: impl Fn(u32) -> bool,
    ) -> Option<RepairSymbol> {
        let window = self.queue.len().min(WINDOW);
        for step in 0..window {
            let position = (self.turn + step) % window;
            let chunk = self.queue[position];
            let Some(repair) = self.chunks.get_mut(&chunk) else { continue };
            if repair.due > now || !has(chunk) {
                continue;
            }
            let symbol = match repair.next_source() {
                Some(source) => {
                    repair.sources[usize::from(source) / 64] &= !(1 << (source % 64));
                    repair.sources_packet = packet;
                    source
                }
                None => {
                    repair.sent += 1;
                    repair.record(packet);
                    SYMBOLS_MAX as u16 + repair.sent - 1
                }
            };
            let last = repair.is_idle();
            if last {
                repair.queued = false;
                self.queue.remove(position);
                self.turn = position;
            } else {
                self.turn = position + 1;
            }
            return Some(RepairSymbol { chunk, symbol, last });
        }
        None
    }

    /// Returns the chunks whose contents are needed next.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().take(WINDOW).copied()
    }

    /// Returns whether nothing is to be repaired.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns when the first repair becomes due, which may be in the past.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.upcoming().filter_map(|chunk| self.chunks.get(&chunk)).map(|repair| repair.due).min()
    }

    /// Returns how many repair symbols of a chunk were sent, and how many are planned in total.
    pub(crate) fn state(&self, chunk: u32) -> (u16, u16) {
        self.chunks.get(&chunk).map_or((0, 0), |repair| (repair.sent, repair.target.max(repair.sent)))
    }
}

impl ChunkRepair {
    /// Records that `packet` carries the latest repair symbol. Consecutive symbols without a large gap share one record.
    fn record(&mut self, packet: u64) {
        match self.history.back_mut() {
            Some((at, sent)) if self.sent == *sent + 1 && packet - *at <= 2 * WINDOW as u64 => {
                (*at, *sent) = (packet, self.sent);
            }
            _ => self.history.push_back((packet, self.sent)),
        }
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(1);

    fn drain(repairs: &mut Repairs, packet: &mut u64) -> Vec<u16> {
        let mut symbols = Vec::new();
        while let Some(next) = repairs.next(LATER * 9, *packet, |_| true) {
            symbols.push(next.symbol);
            *packet += 1;
        }
        symbols
    }

    #[test]
    fn receivers_share_the_repair_of_the_largest_loss() {
        let mut repairs = Repairs::default();
        let mut packet = 100;
        for lacks in [3, 5, 2] {
            repairs.count(Duration::ZERO, 7, lacks, 99);
        }
        assert_eq!(repairs.next(Duration::ZERO, packet, |_| true), None, "it waits for other requests first");
        assert_eq!(drain(&mut repairs, &mut packet), [1024, 1025, 1026, 1027, 1028]);
        assert!(!repairs.count(LATER, 7, 5, 99), "the same loss");
        assert_eq!(drain(&mut repairs, &mut packet), []);
        assert!(repairs.count(LATER, 7, 2, 104), "it lacks more after seeing the repair");
        assert_eq!(drain(&mut repairs, &mut packet), [1029, 1030]);
    }

    #[test]
    fn unasked_repair_waits_for_nobody() {
        let mut repairs = Repairs::default();
        repairs.unasked(LATER, 7, 2, 99);
        assert!(repairs.next(LATER, 100, |_| true).is_some());
        assert!(!repairs.count(LATER, 7, 2, 99), "it is coming");
        assert!(repairs.next(LATER, 101, |_| true).is_some_and(|next| next.last));
    }

    #[test]
    fn after_256_repair_symbols_source_symbols_are_sent() {
        let mut repairs = Repairs::default();
        let mut packet = 1;
        repairs.count(Duration::ZERO, 1, 1000, 0);
        assert_eq!(drain(&mut repairs, &mut packet).len(), REPAIR_SYMBOLS);
        assert!(!repairs.count(LATER, 1, 9, packet));
        repairs.sources(LATER, 1, (60, 6), 65, packet);
        assert_eq!(drain(&mut repairs, &mut packet), [60, 61, 62, 63, 64]);
        repairs.sources(LATER, 1, (60, 6), 65, packet - 3);
        assert_eq!(drain(&mut repairs, &mut packet), [], "requested before it could see them");
        repairs.sources(LATER, 2, (0, 300), 700, packet);
        assert!(!repairs.count(LATER, 2, 200, packet), "300 are in transit");
    }

    #[test]
    fn so_many_symbols_are_named_as_a_chunk_has() {
        let (mut repairs, mut packet) = (Repairs::default(), 1);
        assert!(repairs.sources(LATER, 1, (0, 40), 65, u64::MAX));
        assert!(repairs.sources(LATER, 1, (0, 45), 65, u64::MAX), "40 of them are waiting");
        assert_eq!(drain(&mut repairs, &mut packet).len(), 45);
        assert!(!repairs.sources(LATER, 1, (0, 45), 65, u64::MAX));
        assert_eq!(drain(&mut repairs, &mut packet).len(), 20);
        assert!(!repairs.sources(LATER, 1, (0, 1), 65, u64::MAX));
        repairs.restart(1);
        assert!(repairs.sources(LATER, 1, (0, 65), 65, u64::MAX));
        assert!(!repairs.count(LATER, 2, 0, packet) && repairs.sources(LATER, 3, (9, 9), 5, packet));
        assert_eq!(repairs.chunks.len(), 1, "nothing is remembered of nothing");
    }

    #[test]
    fn chunks_take_turns() {
        let mut repairs = Repairs::default();
        for chunk in [1, 2, 3] {
            repairs.count(Duration::ZERO, chunk, 2, 0);
        }
        let order: Vec<u32> =
            std::iter::from_fn(|| repairs.next(LATER, 1, |_| true)).map(|next| next.chunk).collect();
        assert_eq!(order, [1, 2, 3, 1, 2, 3]);
        assert!(repairs.is_empty());
    }
}
