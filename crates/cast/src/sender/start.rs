//! When the first data is sent: enough receivers take part, and they have joined the multicast group.
//!
//! A receiver joins the group when it is welcomed, and switches need time to learn of it. So the sender sends empty plans to the group
//! until the receivers that joined last have reported that they saw one: up to 16, because those that joined earlier are known to the
//! switches longer. A receiver that never does holds the others for [`SETTLE`] after the last join,
//! and all joins together for at most [`SETTLES_MAX`] times that. Must never count an announcement as seen in the group: those
//! also go to the discovery group.

use std::time::Duration;

/// Time between the last join and the first data, if a receiver has not reported a plan before.
const SETTLE: Duration = Duration::from_millis(100);
/// Joins delay the first data by at most this many times [`SETTLE`], from when everything else is ready.
const SETTLES_MAX: u32 = 5;
/// The first plan is sent this long after a join: before, its receiver cannot have joined the group.
const PLAN_DELAY: Duration = Duration::from_millis(2);
/// Interval between plans.
const PLAN_INTERVAL: Duration = Duration::from_millis(10);

/// What the first data waits for.
#[derive(Debug, Default)]
pub(super) struct Start {
    joined_at: Duration,
    /// Since when enough receivers take part.
    ready_at: Option<Duration>,
    plan_at: Duration,
    /// The packet numbers of the plans, ascending.
    plans: Vec<u64>,
}

impl Start {
    /// Handles a join.
    pub(super) fn joined(&mut self, now: Duration) {
        self.joined_at = now;
        self.plan_at = self.plan_at.min(now + PLAN_DELAY);
    }

    /// Records whether enough receivers take part.
    pub(super) fn set_ready(&mut self, now: Duration, is_ready: bool) {
        if is_ready && self.ready_at.is_none() {
            self.plan_at = self.joined_at + PLAN_DELAY;
            self.plans.clear();
        }
        self.ready_at = is_ready.then(|| self.ready_at.unwrap_or(now));
    }

    /// When the first data is sent, whatever receivers report; `None` if there are not enough.
    fn latest(&self) -> Option<Duration> {
        self.ready_at.map(|ready_at| (self.joined_at + SETTLE).min(ready_at + SETTLE * SETTLES_MAX))
    }

    /// Returns whether to start now. `all_hear`: all receivers of which a proof is awaited have reported a plan.
    pub(super) fn is_due(&self, now: Duration, all_hear: bool) -> bool {
        self.latest().is_some_and(|latest| all_hear || now >= latest)
    }

    /// Returns whether a plan is due, and then counts it as sent.
    pub(super) fn takes_plan(&mut self, now: Duration) -> bool {
        let is_due = self.ready_at.is_some() && now >= self.plan_at;
        if is_due {
            self.plan_at = now + PLAN_INTERVAL;
        }
        is_due
    }

    /// Records that a plan was sent with this number.
    pub(super) fn planned(&mut self, packet: u64) {
        self.plans.push(packet);
    }

    /// Returns whether this packet was a plan.
    pub(super) fn is_plan(&self, packet: u64) -> bool {
        self.plans.binary_search(&packet).is_ok()
    }

    /// Returns when to look again, if anything is ready.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.latest().map(|latest| latest.min(self.plan_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn joins_cannot_put_the_start_off_without_end() {
        let mut start = Start::default();
        let mut at = ms(1000);
        start.joined(at);
        assert!(!start.is_due(at + ms(500), true), "others are awaited");
        start.set_ready(at, true);
        while !start.is_due(at, false) {
            at += ms(90);
            start.joined(at);
            start.set_ready(at, true);
            assert!(at < ms(1600), "{at:?}");
        }
        assert_eq!(start.latest(), Some(ms(1500)));
    }

    #[test]
    fn plans_follow_joins_until_all_hear_them() {
        let mut start = Start::default();
        start.joined(ms(50));
        assert!(!start.takes_plan(ms(60)), "others are awaited");
        start.set_ready(ms(60), true);
        let mut packet = 7;
        let mut sent = Vec::new();
        for at in 60..90 {
            if at == 75 {
                start.joined(ms(75));
            }
            if start.takes_plan(ms(at)) {
                start.planned(packet);
                sent.push(at);
                packet += 2;
            }
        }
        assert_eq!(sent, [60, 70, 77, 87]);
        assert!(start.is_plan(9) && !start.is_plan(8));
        assert_eq!(start.next_deadline(), Some(ms(97)));
        assert!(!start.is_due(ms(174), false) && start.is_due(ms(175), false) && start.is_due(ms(90), true));
    }
}
