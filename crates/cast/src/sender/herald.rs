//! When to send announcements and plans. A plan says what was sent and what will be sent.
//!
//! Owns the list of news and its repetition. Plans follow data, at most one every [`PLAN_PACKETS`] datagrams, so they
//! cost under 2 % and mostly far less, because they are short. Without data they are sent at growing intervals.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wire::plan::{ENTRIES_MAX, PlanEntry};

/// Interval between announcements: what a late receiver waits for one, at most.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// The same if the rate is limited to less than [`ANNOUNCE_OFTEN_RATE`]: announcements of up to 1.4 KB are not paced, and go to
/// two groups.
const ANNOUNCE_INTERVAL_SLOW: Duration = Duration::from_millis(500);
/// See [`ANNOUNCE_INTERVAL_SLOW`], in bits per second.
const ANNOUNCE_OFTEN_RATE: u64 = 10_000_000;
/// If there is news, a plan is sent after this many data datagrams.
const PLAN_PACKETS: u64 = 64;
/// Without news, a plan follows data after this time: it names the spokesmen and the space that the sender counts on.
const PLAN_INTERVAL: Duration = Duration::from_millis(50);
/// How often a change of these is told at once.
const HURRIED_REPEATS: u32 = 4;
/// How often each news is sent while data is sent. At 20 % loss, one in 400,000 is missed completely and requested at the
/// end.
const NEWS_REPEATS: u32 = 8;
/// Without data, the first plan is sent after the minimum, the next ones after doubled intervals up to the maximum.
const IDLE_INTERVAL_MIN: Duration = Duration::from_millis(8);
const IDLE_INTERVAL_MAX: Duration = Duration::from_millis(256);

/// News for plans, and when to send them.
pub(crate) struct Herald {
    announce_at: Duration,
    news: VecDeque<(PlanEntry, u32)>,
    packets_since_plan: u64,
    /// Plans that are due after the next data, however soon.
    hurried: u32,
    plan_at: Duration,
    idle_at: Duration,
    idle_interval: Duration,
}

impl Herald {
    pub(crate) fn new() -> Self {
        Self {
            announce_at: Duration::ZERO,
            news: VecDeque::new(),
            packets_since_plan: 0,
            hurried: 0,
            plan_at: Duration::ZERO,
            idle_at: Duration::ZERO,
            idle_interval: IDLE_INTERVAL_MIN,
        }
    }

    /// Returns whether an announcement is due, and then counts it as sent. `ceiling`: the maximum rate, in bits per second.
    pub(crate) fn take_announcement(&mut self, now: Duration, ceiling: u64) -> bool {
        let due = now >= self.announce_at;
        if due {
            let is_often = ceiling >= ANNOUNCE_OFTEN_RATE;
            self.announce_at = now + if is_often { ANNOUNCE_INTERVAL } else { ANNOUNCE_INTERVAL_SLOW };
        }
        due
    }

    /// Adds news about a chunk. Replaces older news about it.
    pub(crate) fn tell(&mut self, entry: PlanEntry) {
        self.news.retain(|(known, _)| known.chunk != entry.chunk);
        if self.news.len() >= ENTRIES_MAX {
            self.news.pop_front();
        }
        self.news.push_back((entry, 0));
    }

    /// Removes the news about a chunk that is sent from its start again.
    pub(crate) fn forget(&mut self, chunk: u32) {
        self.news.retain(|(known, _)| known.chunk != chunk);
    }

    /// Records that a data datagram was sent.
    pub(crate) fn data_sent(&mut self, now: Duration) {
        self.packets_since_plan += 1;
        self.idle_interval = IDLE_INTERVAL_MIN;
        self.idle_at = now + IDLE_INTERVAL_MIN;
    }

    /// Has the next plan sent at once if there is no data.
    pub(crate) fn wake(&mut self, now: Duration) {
        self.idle_interval = IDLE_INTERVAL_MIN;
        self.idle_at = now;
    }

    /// Has the next plan sent soon, because the spokesmen or the space that the sender counts on have changed.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.hurried = HURRIED_REPEATS;
        self.idle_interval = IDLE_INTERVAL_MIN;
        self.idle_at = self.idle_at.min(now + IDLE_INTERVAL_MIN);
    }

    /// Returns the news to send now, if a plan is due. `idle`: there is no data to send.
    pub(crate) fn take_plan(&mut self, now: Duration, idle: bool) -> Option<Vec<PlanEntry>> {
        let fresh = self.news.iter().any(|(_, told)| *told < NEWS_REPEATS);
        let is_late = self.hurried > 0 || now >= self.plan_at;
        let behind_data = (fresh || is_late) && self.packets_since_plan >= PLAN_PACKETS;
        let ending = idle && self.packets_since_plan > 0;
        let by_itself = idle && now >= self.idle_at;
        if !(behind_data || ending || by_itself) {
            return None;
        }
        self.packets_since_plan = 0;
        self.hurried = self.hurried.saturating_sub(1);
        self.plan_at = now + PLAN_INTERVAL;
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

    /// Returns when to send something although there is no data.
    pub(crate) fn next_deadline(&self, idle: bool) -> Duration {
        if idle { self.idle_at.min(self.announce_at) } else { self.announce_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_rarer_at_low_rates() {
        let mut herald = Herald::new();
        let mut count = |ceiling, from: u64| {
            let seconds = (from * 1000..(from + 1) * 1000).map(Duration::from_millis);
            seconds.filter(|now| herald.take_announcement(*now, ceiling)).count()
        };
        assert_eq!(count(ANNOUNCE_OFTEN_RATE, 0), 10);
        assert_eq!(count(ANNOUNCE_OFTEN_RATE - 1, 1), 2);
    }

    #[test]
    fn plans_follow_data_and_become_rarer_when_idle() {
        let mut herald = Herald::new();
        let now = Duration::from_secs(1);
        let entry = PlanEntry { chunk: 1, end_packet: 2, repair_sent: 0, repair_planned: 0 };
        herald.data_sent(now);
        herald.tell(entry);
        assert_eq!(herald.take_plan(now, false), None);
        assert_eq!(herald.take_plan(now, true), Some(vec![entry]), "the end of the data is sent at once");
        assert_eq!(herald.take_plan(now, true), None);
        let plans =
            (0..10_000).filter(|ms| herald.take_plan(now + Duration::from_millis(*ms), true).is_some());
        assert_eq!(plans.count(), 43);
        for packet in 0..2000 {
            herald.data_sent(now);
            let told = herald.take_plan(now, false).is_some();
            assert!(!told, "packet {packet}: there is no news");
        }
    }
}
