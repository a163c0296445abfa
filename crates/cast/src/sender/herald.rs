//! When the sender speaks of itself: announcements, and plans of what was sent and what is coming.
//!
//! Owns the list of news and its repetition. Plans ride behind data (every [`PLAN_PACKETS`] datagrams at most, so they
//! cost under 2 %, mostly far less as they are short) and go out by themselves, ever more seldom, when there is none.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wire::plan::{ENTRIES_MAX, PlanEntry};

/// Announcements are that far apart.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// A plan goes out behind that many data datagrams if there is news.
const PLAN_PACKETS: u64 = 64;
/// Each news is told that often while data flows: at 20 % loss one in 400,000 is missed by all, and asked for at the
/// end.
const NEWS_REPEATS: u32 = 8;
/// Without data, plans go out this soon, then in twice the time, up to the maximum.
const IDLE_INTERVAL_MIN: Duration = Duration::from_millis(8);
const IDLE_INTERVAL_MAX: Duration = Duration::from_millis(256);

/// News and their times.
pub(crate) struct Herald {
    announce_at: Duration,
    news: VecDeque<(PlanEntry, u32)>,
    packets_since_plan: u64,
    idle_at: Duration,
    idle_interval: Duration,
}

impl Herald {
    pub(crate) fn new() -> Self {
        Self {
            announce_at: Duration::ZERO,
            news: VecDeque::new(),
            packets_since_plan: 0,
            idle_at: Duration::ZERO,
            idle_interval: IDLE_INTERVAL_MIN,
        }
    }

    /// Whether an announcement is due; then it counts as made.
    pub(crate) fn take_announcement(&mut self, now: Duration) -> bool {
        let due = now >= self.announce_at;
        if due {
            self.announce_at = now + ANNOUNCE_INTERVAL;
        }
        due
    }

    /// There is news of a chunk.
    pub(crate) fn tell(&mut self, entry: PlanEntry) {
        self.news.retain(|(known, _)| known.chunk != entry.chunk);
        if self.news.len() >= ENTRIES_MAX {
            self.news.pop_front();
        }
        self.news.push_back((entry, 0));
    }

    /// Chunks that begin anew are no news any more.
    pub(crate) fn forget(&mut self, chunk: u32) {
        self.news.retain(|(known, _)| known.chunk != chunk);
    }

    /// A data datagram left: the line is not idle.
    pub(crate) fn data_sent(&mut self, now: Duration) {
        self.packets_since_plan += 1;
        self.idle_interval = IDLE_INTERVAL_MIN;
        self.idle_at = now + IDLE_INTERVAL_MIN;
    }

    /// The news to tell now, if a plan is due. `idle`: there is no data to send.
    pub(crate) fn take_plan(&mut self, now: Duration, idle: bool) -> Option<Vec<PlanEntry>> {
        let fresh = self.news.iter().any(|(_, told)| *told < NEWS_REPEATS);
        let behind_data = fresh && self.packets_since_plan >= PLAN_PACKETS;
        let ending = idle && self.packets_since_plan > 0;
        let by_itself = idle && now >= self.idle_at;
        if !(behind_data || ending || by_itself) {
            return None;
        }
        self.packets_since_plan = 0;
        if by_itself {
            self.idle_interval = (self.idle_interval * 2).min(IDLE_INTERVAL_MAX);
        }
        self.idle_at = now + self.idle_interval;
        let mut entries = Vec::new();
        for (entry, told) in &mut self.news {
            if idle || *told < NEWS_REPEATS {
                *told += 1;
                entries.push(*entry);
            }
        }
        Some(entries)
    }

    /// When to wake up although there is no data.
    pub(crate) fn next_deadline(&self, idle: bool) -> Duration {
        if idle { self.idle_at.min(self.announce_at) } else { self.announce_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_follow_data_and_thin_out_when_idle() {
        let mut herald = Herald::new();
        let now = Duration::from_secs(1);
        let entry = PlanEntry { chunk: 1, end_packet: 2, repair_sent: 0, repair_planned: 0 };
        herald.data_sent(now);
        herald.tell(entry);
        assert_eq!(herald.take_plan(now, false), None);
        assert_eq!(herald.take_plan(now, true), Some(vec![entry]), "the end of the data is told at once");
        assert_eq!(herald.take_plan(now, true), None);
        let plans =
            (0..10_000).filter(|ms| herald.take_plan(now + Duration::from_millis(*ms), true).is_some());
        assert_eq!(plans.count(), 43);
        for packet in 0..2000 {
            herald.data_sent(now);
            let told = herald.take_plan(now, false).is_some();
            assert!(!told, "packet {packet}: nothing is new");
        }
    }
}
