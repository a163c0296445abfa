//! Selects the next source symbol: a few requested chunks are sent at a time, one symbol of each in turn.
//!
//! Owns the sets of pending and active chunks. Directory and recipe chunks are sent first, because a new receiver cannot use
//! the others without them. The rest follow in a cycle from the current position. When one of the first has been sent again, another
//! chunk has its turn, so that requests for them cannot stop the cycle. Must never know who requested them.

use std::sync::Arc;

use crate::session::SYMBOL_BYTES;
use crate::wire::request::RequestItem;

/// Number of chunks that are sent at a time, one symbol of each in turn: a lost batch of 44 datagrams costs each at most 11 or 12
/// symbols (design: datagrams).
pub(crate) const ACTIVE_CHUNKS: usize = 4;
/// Number of pending chunks that are read ahead: 12 MiB, or 100 ms at 1 Gbit/s.
const AHEAD_CHUNKS: usize = 12;

struct Active {
    chunk: u32,
    bytes: Arc<[u8]>,
    next: u16,
}

/// The next source symbol to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceSymbol<'a> {
    pub(crate) chunk: u32,
    pub(crate) symbol: u16,
    /// At most a symbol; shorter at the end of the chunk.
    pub(crate) bytes: &'a [u8],
    /// Whether it is the last symbol of the chunk.
    pub(crate) last: bool,
}

/// The pending and active chunks, by wire number.
pub(crate) struct Schedule {
    pending: Vec<u64>,
    pending_count: u32,
    total: u32,
    /// Chunks below this number are sent first.
    first_end: u32,
    first_cursor: u32,
    cursor: u32,
    /// The chunk that was started last is one of those, and had been sent before.
    repeats_first: bool,
    /// For each chunk, the packet at which it was last started, plus one; 0 if never.
    begun: Vec<u64>,
    active: Vec<Active>,
    /// Whether the active chunk at `turn` has been sent completely and must be removed.
    ended: bool,
    turn: usize,
}

impl Schedule {
    /// Makes a schedule without pending chunks. The first `first_end` of the `total` chunks are sent first.
    pub(crate) fn new(total: u32, first_end: u32) -> Self {
        Self {
            pending: vec![0; (total as usize).div_ceil(64)],
            pending_count: 0,
            total,
            first_end,
            first_cursor: 0,
            cursor: first_end,
            repeats_first: false,
            begun: vec![0; total as usize],
            active: Vec::new(),
            ended: false,
            turn: 0,
        }
    }

    /// Marks chunks as pending for a receiver that has seen packets up to `seen`. Skips chunks that were started later: their
    /// symbols are still in transit to it. Looks at `most` chunks at most, and subtracts from it those that it has looked at.
    pub(crate) fn want(&mut self, first: u32, count: u32, seen: u64, most: &mut u32) {
        let end = first.saturating_add(count.min(*most)).min(self.total);
        *most -= end.saturating_sub(first);
        for chunk in first..end {
            let (word, bit) = (chunk as usize / 64, 1 << (chunk % 64));
            let on_its_way = self.begun[chunk as usize] > seen + 1 || self.is_active(chunk);
            if self.pending[word] & bit == 0 && !on_its_way {
                self.pending[word] |= bit;
                self.pending_count += 1;
            }
        }
    }

    /// Returns the number of chunks.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Drops all pending and active chunks.
    pub(crate) fn clear(&mut self) {
        self.pending.fill(0);
        self.pending_count = 0;
        self.active.clear();
        self.ended = false;
    }

    /// Returns the number of pending and active chunks.
    pub(crate) fn remaining(&self) -> u32 {
        self.pending_count + self.active.len() as u32 - u32::from(self.ended)
    }

    /// Returns whether a chunk is one of those that receivers need before the others.
    pub(crate) fn goes_first(&self, chunk: u32) -> bool {
        chunk < self.first_end
    }

    /// Returns what a request asks for among the chunks that receivers need before the others.
    pub(crate) fn first_of(&self, item: &RequestItem) -> Option<RequestItem> {
        match *item {
            RequestItem::Chunks { first, count } => {
                let count = count.min(self.first_end.saturating_sub(first));
                (count > 0).then_some(RequestItem::Chunks { first, count })
            }
            RequestItem::Count { chunk, .. } | RequestItem::Symbols { chunk, .. } => {
                self.goes_first(chunk).then_some(*item)
            }
        }
    }

    /// Returns whether a chunk was ever started.
    pub(crate) fn has_begun(&self, chunk: u32) -> bool {
        self.begun.get(chunk as usize).is_some_and(|packet| *packet > 0)
    }

    /// Returns whether a chunk is being sent.
    pub(crate) fn is_active(&self, chunk: u32) -> bool {
        self.active.iter().any(|active| active.chunk == chunk)
    }

    /// Returns the next chunk to start, if another one may start. Call it before each [`Schedule::next`].
    pub(crate) fn candidate(&mut self) -> Option<u32> {
        self.drop_ended();
        if self.active.len() >= ACTIVE_CHUNKS {
            return None;
        }
        self.upcoming().next()
    }

    /// Starts a chunk at packet number `packet`.
    pub(crate) fn begin(&mut self, chunk: u32, bytes: Arc<[u8]>, packet: u64) {
        let (word, bit) = (chunk as usize / 64, 1 << (chunk % 64));
        if self.pending[word] & bit != 0 {
            self.pending[word] &= !bit;
            self.pending_count -= 1;
        }
        if self.goes_first(chunk) {
            self.first_cursor = chunk + 1;
        } else {
            self.cursor = chunk + 1;
        }
        self.repeats_first = self.goes_first(chunk) && self.has_begun(chunk);
        self.begun[chunk as usize] = packet + 1;
        self.active.push(Active { chunk, bytes, next: 0 });
    }

    /// Returns the next symbol of the active chunks.
    pub(crate) fn next(&mut self) -> Option<SourceSymbol<'_>> {
        self.drop_ended();
        if self.active.is_empty() {
            return None;
        }
        self.turn %= self.active.len();
        let position = self.turn;
        let active = &mut self.active[position];
        let start = usize::from(active.next) * SYMBOL_BYTES;
        let end = (start + SYMBOL_BYTES).min(active.bytes.len());
        let symbol = active.next;
        active.next += 1;
        self.ended = end == active.bytes.len();
        if !self.ended {
            self.turn += 1;
        }
        let active = &self.active[position];
        Some(SourceSymbol { chunk: active.chunk, symbol, bytes: &active.bytes[start..end], last: self.ended })
    }

    /// Returns the pending chunks in the order in which they will start, up to the read-ahead limit.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        let cursor = self.cursor.clamp(self.first_end, self.total);
        let first = [self.first_cursor..self.first_end, 0..self.first_cursor];
        let rest = [cursor..self.total, self.first_end..cursor];
        let order = if self.repeats_first { [rest, first] } else { [first, rest] };
        let order = order.into_iter().flatten();
        order.flat_map(|range| self.pending_in(range.start, range.end)).take(AHEAD_CHUNKS)
    }

    /// Removes the chunk that has been sent completely, once its last symbol is no longer borrowed.
    fn drop_ended(&mut self) {
        if self.ended {
            self.active.remove(self.turn);
            self.ended = false;
        }
    }

    fn pending_in(&self, start: u32, end: u32) -> impl Iterator<Item = u32> + '_ {
        let mut position = start;
        std::iter::from_fn(move || {
            while position < end {
                let rest = self.pending[position as usize / 64] >> (position % 64);
                if rest == 0 {
                    position = (position / 64 + 1) * 64;
                    continue;
                }
                position += rest.trailing_zeros();
                if position >= end {
                    return None;
                }
                position += 1;
                return Some(position - 1);
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(schedule: &mut Schedule, packet: &mut u64) -> Vec<(u32, u16)> {
        let mut sent = Vec::new();
        loop {
            while let Some(chunk) = schedule.candidate() {
                schedule.begin(chunk, vec![1; SYMBOL_BYTES + 1].into(), *packet);
            }
            let Some(symbol) = schedule.next() else { return sent };
            sent.push((symbol.chunk, symbol.symbol));
            *packet += 1;
        }
    }

    #[test]
    fn a_request_looks_at_a_limited_number_of_chunks() {
        let mut schedule = Schedule::new(200, 3);
        let mut most = 200;
        schedule.want(190, u32::MAX, 0, &mut most);
        assert_eq!((schedule.remaining(), most), (10, 190));
        schedule.want(300, u32::MAX, 0, &mut most);
        schedule.want(0, 100, 0, &mut most);
        schedule.want(0, u32::MAX, 0, &mut most);
        assert_eq!((schedule.remaining(), most), (110, 0), "90 of the last request were requested before");
        schedule.want(100, 50, 0, &mut most);
        assert_eq!(schedule.remaining(), 110);
    }

    #[test]
    fn it_interleaves_chunks_and_sends_everything_once() {
        let mut schedule = Schedule::new(200, 3);
        schedule.want(0, u32::MAX, 0, &mut 200);
        assert_eq!(schedule.remaining(), 200);
        let sent = run(&mut schedule, &mut 1);
        assert_eq!(sent[..4], [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(sent[4..8], [(0, 1), (1, 1), (2, 1), (3, 1)].map(|pair| pair));
        let mut sorted = sent.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), sent.len()), (400, 400));
        assert_eq!(schedule.remaining(), 0);
    }

    #[test]
    fn a_new_receiver_gets_the_recipe_first_and_then_the_cycle_continues() {
        let mut schedule = Schedule::new(100, 2);
        schedule.want(10, 80, 0, &mut 200);
        let bytes: Arc<[u8]> = vec![1; 10].into();
        for packet in 1..40 {
            let chunk = schedule.candidate().unwrap();
            schedule.begin(chunk, Arc::clone(&bytes), packet);
            schedule.next();
        }
        schedule.want(0, 100, 39, &mut 200);
        let order: Vec<u32> = std::iter::from_fn(|| {
            let chunk = schedule.candidate()?;
            schedule.begin(chunk, Arc::clone(&bytes), 50);
            schedule.next();
            Some(chunk)
        })
        .collect();
        assert_eq!(order[..4], [0, 1, 49, 50]);
        assert_eq!(order[order.len() - 1], 47, "48 was in transit when it was requested");
    }

    #[test]
    fn requests_for_the_first_chunks_do_not_stop_the_cycle() {
        let mut schedule = Schedule::new(100, 8);
        schedule.want(0, 100, 0, &mut 200);
        let mut order = Vec::new();
        for packet in 1..40 {
            let chunk = schedule.candidate().unwrap();
            schedule.begin(chunk, vec![1; 10].into(), packet);
            schedule.next();
            order.push(chunk);
            schedule.want(0, 8, packet, &mut 200);
        }
        assert_eq!(order[..12], [0, 1, 2, 3, 4, 5, 6, 7, 0, 8, 1, 9]);
        let of_cycle = order[8..].iter().filter(|chunk| **chunk >= 8).count();
        assert_eq!(of_cycle, 15, "{order:?}");
    }

    #[test]
    fn a_slow_receiver_gets_only_what_must_come_first() {
        let schedule = Schedule::new(10, 3);
        let chunks = |first, count| RequestItem::Chunks { first, count };
        assert_eq!(schedule.first_of(&chunks(1, 9)), Some(chunks(1, 2)));
        assert_eq!(schedule.first_of(&chunks(3, u32::MAX)), None);
        let count = |chunk| RequestItem::Count { chunk, lacks: 5 };
        assert_eq!((schedule.first_of(&count(2)), schedule.first_of(&count(3))), (Some(count(2)), None));
    }

    #[test]
    fn a_chunk_in_transit_is_not_sent_again() {
        let mut schedule = Schedule::new(10, 0);
        schedule.want(4, 1, 0, &mut 200);
        let mut packet = 100;
        run(&mut schedule, &mut packet);
        schedule.want(4, 1, 99, &mut 200);
        assert_eq!(schedule.remaining(), 0);
        schedule.want(4, 1, 101, &mut 200);
        assert_eq!(schedule.remaining(), 1);
    }
}
