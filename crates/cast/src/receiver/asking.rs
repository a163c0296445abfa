//! What to request, and when.
//!
//! Symbols of a chunk are requested when the sender has evidently finished the chunk (a plan says so, or nothing of it has
//! arrived for a while), after a short random delay in which a plan may show that the repair is coming anyway. Unanswered
//! requests are repeated at growing intervals. Whole chunks are requested once when they become wanted, and again when the
//! sender says that it has nothing to send. Must never request so often that a sender is flooded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assembly::{Assembly, Slot};
use super::backoff::backoff;
use super::wants::{ChunkState, Wants};
use crate::coding::REPAIR_SYMBOLS;
use crate::random::Random;
use crate::wire::announce::FeedbackTimers;
use crate::wire::plan::Plan;
use crate::wire::request::{ITEMS_MAX, RequestItem};

/// Maximum time by which packets may be reordered.
const REORDER: Duration = Duration::from_millis(2);
/// Time until the first repetition of an unanswered request; it doubles each time.
const RETRY: Duration = Duration::from_millis(60);
/// Maximum number of doublings of [`RETRY`], which makes about two seconds.
const RETRY_DOUBLINGS: u32 = 5;
/// If nothing of a chunk arrives for this long, its missing symbols are requested even if no plan announced its end.
pub(crate) const STALL: Duration = Duration::from_millis(400);
/// After this many unanswered counts, symbols are requested by number.
const COUNTS_MAX: u32 = 4;
/// Maximum number of ranges of missing symbols that a request names for a chunk.
const RANGES_MAX: usize = 64;
/// Minimum interval between datagrams that request whole chunks.
const CHUNKS_INTERVAL: Duration = Duration::from_millis(2);
/// Minimum time until whole chunks are requested again.
const CHUNKS_AGAIN: Duration = Duration::from_millis(100);
/// A completely missed chunk is requested again after this time, until something of it arrives.
const MISSED_AGAIN: Duration = Duration::from_millis(200);
/// Maximum number of chunks recorded as completely missed. Further ones are requested at the end of the session.
const MISSED_MAX: usize = 4096;

/// The state of requesting.
pub(crate) struct Asking {
    random: Random,
    backoff: Duration,
    receivers: u32,
    /// The first chunk from which whole chunks are to be requested, and when.
    chunks_from: Option<(u32, Duration)>,
    chunks_asked_at: Duration,
    /// Chunks that were sent but of which nothing arrived: the announced end, and when to request (`None`: something arrived).
    missed: BTreeMap<u32, (u64, Option<Duration>)>,
}

impl Asking {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            backoff: Duration::ZERO,
            receivers: 1,
            chunks_from: None,
            chunks_asked_at: Duration::ZERO,
            missed: BTreeMap::new(),
        }
    }

    /// Starts a session.
    pub(crate) fn begin(&mut self) {
        self.missed.clear();
        self.chunks_from = None;
    }

    /// Takes the announced timers.
    pub(crate) fn set_backoff(&mut self, timers: FeedbackTimers) {
        self.backoff = Duration::from_micros(u64::from(timers.backoff_us_max)).min(Duration::from_secs(1));
        self.receivers = timers.receivers();
    }

    fn wait(&mut self) -> Duration {
        REORDER + backoff(&mut self.random, self.backoff, self.receivers)
    }

    /// Requests all wanted chunks of which nothing has arrived.
    pub(crate) fn ask_for_chunks(&mut self, now: Duration) {
        self.chunks_from = Some((0, now));
    }

    /// Requests a chunk from its start.
    pub(crate) fn ask_for_chunk(&mut self, now: Duration, chunk: u32) {
        self.missed.insert(chunk, (0, Some(now)));
    }

    /// Processes a plan. `joined_packet`: chunks that ended before it were not missed.
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
        if plan.pending == 0 {
            self.hurry(now, assembly);
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

    /// Requests missing symbols again soon, because the sender has nothing to send: it may have ignored requests before, if this
    /// receiver is far slower than others.
    fn hurry(&mut self, now: Duration, assembly: &mut Assembly) {
        for slot in assembly.slots_mut() {
            let is_due = slot.heeded_end > 0 && slot.attempts > 0 && now >= slot.asked_at + CHUNKS_AGAIN;
            if is_due {
                let wait = self.wait();
                slot.check_at = slot.check_at.min(now + wait);
                slot.attempts = slot.attempts.min(1);
            }
        }
    }

    /// Returns when the next request is due.
    pub(crate) fn next_deadline(&self, assembly: &Assembly) -> Option<Duration> {
        let slots = assembly.slots().iter().map(|slot| slot.check_at);
        let missed = self.missed.values().filter_map(|(_, at)| *at);
        slots.chain(missed).chain(self.chunks_from.map(|(_, at)| at)).min()
    }

    /// Returns the items of the request that is due now; empty if none is.
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

/// Requests the missing symbols of a slot, unless symbols are still arriving.
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
    slot.asked_at = now;
    slot.check_at = now + RETRY * 2u32.pow(slot.attempts.min(RETRY_DOUBLINGS));
    slot.attempts += 1;
}
