//! What to ask for, and when.
//!
//! A chunk is asked for when the sender has evidently finished with it (a plan says so, or nothing of it has come for a
//! while), after a short random wait in which a plan may show that the answer is coming anyway, and again in growing
//! intervals while it is not answered. Whole chunks are asked for once when they become wanted, and again when the
//! sender says that it has nothing to do. Must never ask so often that a lost sender is flooded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assembly::{Assembly, Slot};
use super::wants::{ChunkState, Wants};
use crate::coding::REPAIR_SYMBOLS;
use crate::random::Random;
use crate::wire::plan::Plan;
use crate::wire::request::{ITEMS_MAX, RequestItem};

/// Packets may overtake each other by that much.
const REORDER: Duration = Duration::from_millis(2);
/// Without an answer, the first repetition comes after this, the next after twice the time.
const RETRY: Duration = Duration::from_millis(60);
/// Doublings of [`RETRY`], at most: to about two seconds.
const RETRY_DOUBLINGS: u32 = 5;
/// A chunk of which nothing came for that long is looked at even if no plan told its end.
pub(crate) const STALL: Duration = Duration::from_millis(400);
/// After that many unanswered counts, symbols are asked for by name.
const COUNTS_MAX: u32 = 4;
/// Ranges of missing symbols named at once for a chunk.
const RANGES_MAX: usize = 64;
/// Datagrams that ask for whole chunks are that far apart.
const CHUNKS_INTERVAL: Duration = Duration::from_millis(2);
/// Whole chunks are not asked for again sooner.
const CHUNKS_AGAIN: Duration = Duration::from_millis(100);
/// A chunk that was missed wholly is asked for again after that, until something of it comes.
const MISSED_AGAIN: Duration = Duration::from_millis(200);
/// Chunks noted as missed wholly, at most; beyond, the end of the session finds them.
const MISSED_MAX: usize = 4096;

/// The times and lists of asking.
pub(crate) struct Asking {
    random: Random,
    backoff: Duration,
    /// From which chunk on whole chunks are to be asked for, and when.
    chunks_from: Option<(u32, Duration)>,
    chunks_asked_at: Duration,
    /// Chunks that were sent and of which nothing came: the end that was told, and when to ask (`None`: something came).
    missed: BTreeMap<u32, (u64, Option<Duration>)>,
}

impl Asking {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            backoff: Duration::ZERO,
            chunks_from: None,
            chunks_asked_at: Duration::ZERO,
            missed: BTreeMap::new(),
        }
    }

    /// A session begins: its backoff.
    pub(crate) fn begin(&mut self, backoff_us_max: u32) {
        self.backoff = Duration::from_micros(u64::from(backoff_us_max)).min(Duration::from_secs(1));
        self.missed.clear();
        self.chunks_from = None;
    }

    fn wait(&mut self) -> Duration {
        REORDER + Duration::from_nanos(self.random.below(self.backoff.as_nanos() as u64))
    }

    /// Chunks became wanted: ask for all of which nothing is here.
    pub(crate) fn ask_for_chunks(&mut self, now: Duration) {
        self.chunks_from = Some((0, now));
    }

    /// One chunk must come again from its start.
    pub(crate) fn ask_for_chunk(&mut self, now: Duration, chunk: u32) {
        self.missed.insert(chunk, (0, Some(now)));
    }

    /// Heeds a plan. `joined_packet`: what ended before it is not ours to miss.
    pub(crate) fn heed(
        &mut self,
        now: Duration,
        plan: &Plan,
        wants: &Wants,
        assembly: &mut Assembly,
        joined_packet: u64,
        has_room: bool,
    ) {
        for entry in &plan.entries {
            match wants.state(entry.chunk) {
                ChunkState::Filling(slot) => {
                    let wait = self.wait();
                    let Some(slot) = assembly.slots_mut().get_mut(slot as usize) else { continue };
                    slot.repair_sent = slot.repair_sent.max(entry.repair_sent);
                    if entry.end_packet <= slot.heeded_end {
                        continue;
                    }
                    slot.heeded_end = entry.end_packet;
                    slot.attempts = 0;
                    let coming = usize::from(entry.repair_planned.saturating_sub(entry.repair_sent));
                    let covered = coming >= slot.lacks();
                    slot.check_at = now + if covered { RETRY * 2 } else { wait };
                }
                ChunkState::Wanted if entry.end_packet > joined_packet && has_room => {
                    let known = self.missed.get(&entry.chunk).map_or(0, |(end, _)| *end);
                    if entry.end_packet > known && self.missed.len() < MISSED_MAX {
                        let at = now + self.wait();
                        self.missed.insert(entry.chunk, (entry.end_packet, Some(at)));
                    }
                }
                _ => {}
            }
        }
        let idle = plan.pending == 0 && has_room;
        if idle
            && wants.has_unheld()
            && self.chunks_from.is_none()
            && now >= self.chunks_asked_at + CHUNKS_AGAIN
        {
            self.chunks_from = Some((0, now + self.wait()));
        }
    }

    /// When the next request is due.
    pub(crate) fn next_deadline(&self, assembly: &Assembly) -> Option<Duration> {
        let slots = assembly.slots().iter().map(|slot| slot.check_at);
        let missed = self.missed.values().filter_map(|(_, at)| *at);
        slots.chain(missed).chain(self.chunks_from.map(|(_, at)| at)).min()
    }

    /// The items of the request that is due now; empty when none is.
    pub(crate) fn take_items(
        &mut self,
        now: Duration,
        wants: &Wants,
        assembly: &mut Assembly,
    ) -> Vec<RequestItem> {
        let mut items = Vec::new();
        for slot in assembly.slots_mut() {
            if items.len() + RANGES_MAX > ITEMS_MAX {
                return items;
            }
            if slot.check_at <= now {
                ask_for_slot(now, slot, &mut items);
            }
        }
        for (chunk, (_, at)) in &mut self.missed {
            if items.len() < ITEMS_MAX && at.is_some_and(|at| at <= now) {
                let still = wants.state(*chunk) == ChunkState::Wanted;
                *at = still.then_some(now + MISSED_AGAIN);
                if still {
                    items.push(RequestItem::Chunks { first: *chunk, count: 1 });
                }
            }
        }
        self.take_chunk_items(now, wants, &mut items);
        items
    }

    fn take_chunk_items(&mut self, now: Duration, wants: &Wants, items: &mut Vec<RequestItem>) {
        let Some((mut from, at)) = self.chunks_from else { return };
        if at > now {
            return;
        }
        while items.len() < ITEMS_MAX {
            let Some(run) = wants.next_unheld(from) else {
                self.chunks_from = None;
                self.chunks_asked_at = now;
                return;
            };
            items.push(RequestItem::Chunks { first: run.start, count: run.end - run.start });
            from = run.end;
        }
        self.chunks_from = Some((from, now + CHUNKS_INTERVAL));
    }
}

/// Asks for what a slot lacks, unless symbols are still coming.
fn ask_for_slot(now: Duration, slot: &mut Slot, items: &mut Vec<RequestItem>) {
    let unheeded = slot.heeded_end == 0;
    if unheeded && now < slot.symbol_at + STALL {
        slot.check_at = slot.symbol_at + STALL;
        return;
    }
    let lacks = slot.lacks();
    let reach = REPAIR_SYMBOLS.saturating_sub(usize::from(slot.repair_sent));
    if lacks <= reach && slot.attempts < COUNTS_MAX {
        items.push(RequestItem::Count { chunk: slot.chunk, lacks: lacks as u16 });
    } else {
        let mut left = lacks as u16;
        for (first, missing) in slot.missing(RANGES_MAX) {
            let count = missing.min(left);
            left -= count;
            if count > 0 {
                items.push(RequestItem::Symbols { chunk: slot.chunk, first, count });
            }
        }
    }
    slot.check_at = now + RETRY * 2u32.pow(slot.attempts.min(RETRY_DOUBLINGS));
    slot.attempts += 1;
}
