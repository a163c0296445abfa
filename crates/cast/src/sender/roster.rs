//! The receivers of a session: votes, free buffers, loss and results.
//!
//! A receiver votes on the pace while it reports and makes progress. It loses its vote if it is
//! far slower than the rest (see [`slowness`](super::slowness)), until the others hold all that they want. It also loses it after
//! two seconds of silence, or three of its intervals if that is longer; or after five seconds without a free buffer and without an
//! accepted chunk. The next chunk that it accepts restores the vote. It counts as lost after 30 seconds of silence (two if its
//! connection has ended) or five minutes without progress, or three intervals, and returns if it is heard before another one has its place. Their [`places`](super::places) are given by joins, and
//! [`binding`](super::binding) says which connections are theirs.
//!
//! Only [`spokesmen`](super::spokesmen) report often, so only their free buffers are counted. All others are assumed to have as many, until
//! they speak. A wrong guess costs symbols that are sent again. No step looks at all receivers: what is counted is counted when one
//! changes, and states by time are checked a few at a time. Must never let one receiver's datagram change another's state: it counts only with the key of its id, and once.

use std::collections::VecDeque;
use std::time::Duration;

use platter_image::Score;

use super::census::{Census, Standing};
use super::member::{Member, ReceiverState, ReceiverStatus};
use super::places::Places;
use super::slowness::Slowness;
use super::spokesmen::{SAMPLES, Spokesmen};
use super::timers::ReportTimers;
use crate::pacing::{LOSS_TOLERATED, Pacer};
use crate::wire::announce::FeedbackTimers;
use crate::wire::join::ReceiverResult;
use crate::wire::plan::{LEAST_FREE_UNKNOWN, SPOKESMEN_MAX};
use crate::wire::report::Report;

/// A receiver that has no free buffer and accepts no chunk for this long no longer slows the others.
pub(crate) const VOTE_STALL: Duration = Duration::from_secs(5);
/// A receiver that has lost its vote and makes no progress for this long is lost.
pub(crate) const LOST_STALL: Duration = Duration::from_secs(300);
/// A receiver that is silent for this long is lost.
pub(crate) const LOST_SILENCE: Duration = Duration::from_secs(30);
/// While receivers have not all become spokesmen, this share of the buffers of each spokesman is not counted on: others may have
/// somewhat fewer.
const RESERVE_SHARE: u32 = 8;
/// Number of started chunks that are remembered to compute free buffers. A receiver with more chunks in transit counts as full.
const BEGUN_MAX: usize = 4096;

/// All receivers that ever joined.
pub(crate) struct Roster {
    pub(super) places: Places,
    pub(super) census: Census,
    pub(super) spokesmen: Spokesmen,
    pub(super) timers: ReportTimers,
    pub(super) begun: VecDeque<u64>,
    /// The time for which the sender has waited for any receivers far slower than the rest, and when it last found one by that.
    pub(super) patience: Slowness,
    pub(super) slowed_at: Duration,
    /// For how long the sender had nothing to send lately, less the time in which it had.
    pub(super) idle: Duration,
    /// The next receiver whose silence is checked.
    pub(super) cursor: usize,
    pub(super) has_started: bool,
    pub(super) last_heard: Option<Duration>,
    pub(super) changed: bool,
    pub(super) ended: bool,
}

impl Roster {
    /// Makes an empty roster. The receivers' keys are derived from `key_of_keys`.
    pub(crate) fn new(key_of_keys: [u8; 32], has_join_key: bool) -> Self {
        let seed = u64::from_le_bytes(std::array::from_fn(|at| key_of_keys[at]));
        Self {
            places: Places::new(key_of_keys, has_join_key),
            census: Census::default(),
            spokesmen: Spokesmen::new(seed),
            timers: ReportTimers::new(),
            begun: VecDeque::new(),
            patience: Slowness::default(),
            slowed_at: Duration::ZERO,
            idle: Duration::ZERO,
            cursor: 0,
            has_started: false,
            last_heard: None,
            changed: false,
            ended: false,
        }
    }

    /// Changes a receiver, and counts the change.
    pub(super) fn change<R>(&mut self, index: usize, change: impl FnOnce(&mut Member) -> R) -> R {
        let member = &mut self.places.members[index];
        let before = Standing::of(member);
        let result = change(member);
        let after = Standing::of(member);
        if before != after {
            self.census.change(index, before, after);
        }
        result
    }

    /// Records that a receiver was heard. A silent one is then stalled, because it is behind, and regains its vote with the next
    /// chunk that it accepts. One that was lost for lack of progress needs progress to return.
    pub(crate) fn heard(&mut self, now: Duration, id: u32) {
        let Some(index) = self.places.index(id) else { return };
        self.last_heard = Some(now);
        let member = &mut self.places.members[index];
        member.status.heard_at = now;
        member.may_be_replaced = false;
        let is_back = match member.status.state {
            ReceiverState::Silent => true,
            ReceiverState::Lost(_) => {
                member.full_since.is_none_or(|since| now.saturating_sub(since) < LOST_STALL)
            }
            _ => false,
        };
        if is_back {
            // Before the start there is nothing to be behind with.
            let is_behind = self.has_started;
            self.change(index, |member| {
                member.status.state = if is_behind { ReceiverState::Stalled } else { ReceiverState::Active };
                member.is_replaced = false;
                member.full_since = is_behind.then_some(now);
            });
            self.changed = true;
        }
    }

    /// Processes a report. The caller has opened it, and checked that the packet exists.
    pub(crate) fn report(&mut self, now: Duration, report: &Report, pacer: &mut Pacer) {
        self.heard(now, report.receiver);
        let Some(index) = self.places.index(report.receiver) else { return };
        if report.seen_packet < self.places.members[index].seen_packet {
            return;
        }
        let progressed = self.change(index, |member| take_report(now, member, report, pacer.is_cut()));
        self.spokesmen.reported(index);
        self.judge_loss(now, index, report, pacer);
        if progressed {
            self.progressed(now, index);
        }
        let (begun, member) = (&self.begun, &self.places.members[index]);
        if member.votes() && is_limiting(begun, member) {
            self.spokesmen.limits(now, index, &mut self.places.members, |member| room_of(begun, member));
        }
    }
    /// Records that a receiver has seen the packet that its report names in the group. It may have seen it before it joined.
    pub(crate) fn hears(&mut self, report: &Report) {
        let Some(member) = self.places.get_mut(report.receiver) else { return };
        if !member.hears_group && report.seen_packet > member.joined_packet {
            member.hears_group = true;
            // What was lost before says nothing about the network.
            member.loss.skip_to(report.seen_packet, report.received);
        }
    }

    /// The receivers that joined last: of these, the sender waits for a proof that the group reaches them. Others joined earlier.
    fn last_joined(&self) -> impl Iterator<Item = &Member> {
        self.places.members.iter().rev().filter(|member| member.is_present()).take(SPOKESMEN_MAX)
    }

    /// Returns whether all receivers of which a proof is awaited have seen a packet in the group since they joined.
    pub(crate) fn all_hear(&self) -> bool {
        self.last_joined().all(|member| member.hears_group)
    }

    /// Returns which receivers report often; before the start, of which a proof is awaited.
    pub(crate) fn named(&self) -> Vec<u32> {
        let id_of = |index: usize| self.places.members[index].status.id;
        let mut named: Vec<u32> = if self.has_started {
            self.spokesmen.all().map(id_of).collect()
        } else {
            self.last_joined().filter(|member| !member.hears_group).map(|member| member.status.id).collect()
        };
        for id in self.spokesmen.doubted().iter().map(|(index, _)| id_of(*index)) {
            if named.len() < SPOKESMEN_MAX && !named.contains(&id) {
                named.push(id);
            }
        }
        named
    }

    /// Returns whether other receivers report often now than at the last call.
    pub(crate) fn take_named_changed(&mut self) -> bool {
        self.spokesmen.take_changed()
    }

    /// Returns what to announce about reports.
    pub(crate) fn timers(&self) -> FeedbackTimers {
        self.timers.timers(SAMPLES)
    }

    /// Records that data is sent from now on: what was measured before says nothing about the path.
    pub(crate) fn start(&mut self, now: Duration) {
        self.has_started = true;
        self.spokesmen.begin(now, &mut self.places.members, self.census.voting);
    }

    /// Restores the vote of a receiver that has accepted a chunk, if it has space.
    fn progressed(&mut self, now: Duration, index: usize) {
        let member = &mut self.places.members[index];
        member.full_since = None;
        if matches!(member.status.state, ReceiverState::Stalled | ReceiverState::Lost(_)) {
            let has_room = room_of(&self.begun, member) > 0;
            self.change(index, |member| {
                member.status.state = if has_room { ReceiverState::Active } else { ReceiverState::Stalled };
                member.slowness.restart();
                member.is_replaced = false;
                member.full_since = (!has_room).then_some(now);
            });
            self.changed = true;
        }
    }

    /// Returns whether a receiver is far slower than the rest.
    pub(crate) fn is_slow(&self, id: u32) -> bool {
        self.places.get(id).is_some_and(|member| member.status.state == ReceiverState::Slow)
    }

    /// Processes the result of an admitted receiver.
    pub(crate) fn result(&mut self, now: Duration, id: u32, result: ReceiverResult, score: Score) {
        let Some(index) = self.places.index(id) else { return };
        self.last_heard = Some(now);
        self.change(index, |member| take_result(now, member, result, score));
        (self.changed, self.ended) = (true, true);
    }

    /// Records that a chunk starts at this packet. It will need a buffer at every receiver.
    pub(crate) fn chunk_begins(&mut self, packet: u64) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.pop_front();
        }
        self.begun.push_back(packet);
    }

    /// Returns the voting spokesmen whose reports count.
    fn counted(&self) -> impl Iterator<Item = &Member> {
        let spokesmen = self.spokesmen.all().map(|index| &self.places.members[index]);
        spokesmen.filter(|member| member.votes() && member.naming.is_fresh)
    }

    /// Returns whether a voting receiver is no spokesman.
    pub(super) fn has_others(&self) -> bool {
        let named = self.spokesmen.all().filter(|index| self.places.members[*index].votes()).count();
        self.census.voting > named
    }

    /// Returns how many chunks may start before some voting receiver runs out of buffers, as far as is known.
    pub(crate) fn room(&self) -> u32 {
        let has_others = self.has_others();
        self.counted().map(|member| space_of(&self.begun, member, has_others)).min().unwrap_or(u32::MAX)
    }

    /// Returns the free buffers of the receiver with the fewest, as far as is known.
    pub(crate) fn least_free(&self) -> u32 {
        self.counted().map(|member| room_of(&self.begun, member)).min().unwrap_or(LEAST_FREE_UNKNOWN)
    }

    /// Returns the number of receivers that take part.
    pub(crate) fn present(&self) -> usize {
        self.census.present
    }

    /// Returns when a receiver was last heard or finished.
    pub(crate) fn last_heard(&self) -> Option<Duration> {
        self.last_heard
    }

    /// Returns the status of all receivers, except those that were replaced after a restart.
    pub(crate) fn statuses(&self) -> Vec<ReceiverStatus> {
        self.places
            .members
            .iter()
            .filter(|member| !member.is_replaced)
            .map(|member| member.status.clone())
            .collect()
    }

    /// Returns whether a receiver has finished or left since the last call.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Returns whether a state has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Takes the numbers of a report. Returns whether the receiver has accepted a chunk since the one before.
fn take_report(now: Duration, member: &mut Member, report: &Report, is_cut: bool) -> bool {
    let progressed = report.done_chunks > member.status.done_chunks;
    (member.naming.reported_at, member.naming.is_fresh) = (now, true);
    member.seen_packet = report.seen_packet;
    member.status.free_chunks = report.free_chunks;
    member.status.done_chunks = report.done_chunks;
    member.status.wanted_chunks = report.wanted_chunks;
    member.status.repaired = u64::from(report.repaired);
    member.waiting_chunks = report.waiting_chunks;
    member.busy_percent = report.busy_percent;
    if report.wanted_chunks > 0 {
        let is_lossy = is_cut || member.loss.excess().is_some_and(|excess| excess > LOSS_TOLERATED);
        let Report { busy_percent, waiting_chunks, stage, .. } = *report;
        member.status.bottleneck =
            Some(member.bottlenecks.add(busy_percent, waiting_chunks, stage, is_lossy));
    }
    member.path.report(now, report);
    if progressed {
        member.progressed_at = now;
    }
    progressed
}

/// Takes the result of a receiver.
fn take_result(now: Duration, member: &mut Member, result: ReceiverResult, score: Score) {
    member.status.heard_at = now;
    member.is_replaced = false;
    member.status.repaired = result.repaired;
    member.status.state = match &result.outcome {
        Ok(verified) if *verified == score => {
            member.status.done_chunks = member.status.wanted_chunks;
            member.status.bottleneck = member.bottlenecks.most();
            ReceiverState::Done(result)
        }
        Ok(verified) => {
            ReceiverState::Failed(format!("the receiver verified {verified}, but {score} was cast"))
        }
        Err(reason) => ReceiverState::Failed(reason.clone()),
    };
}

/// Returns how many chunks may start before a receiver runs out of buffers, if others may have a few less.
pub(super) fn space_of(begun: &VecDeque<u64>, member: &Member, has_others: bool) -> u32 {
    let reserve = if has_others { member.buffers / RESERVE_SHARE } else { 0 };
    room_of(begun, member).saturating_sub(reserve)
}

/// Returns whether a receiver has so few free buffers that it may limit the others.
pub(super) fn is_limiting(begun: &VecDeque<u64>, member: &Member) -> bool {
    room_of(begun, member) <= member.buffers.div_ceil(2)
}

/// Returns how many chunks may start before a receiver runs out of buffers.
pub(super) fn room_of(begun: &VecDeque<u64>, member: &Member) -> u32 {
    let on_their_way = begun.len() - begun.partition_point(|packet| *packet <= member.seen_packet);
    member.status.free_chunks.saturating_sub(on_their_way as u32)
}

#[cfg(test)]
mod tests {
    use super::super::verdicts::Work;
    use super::*;
    use crate::stage::Bottleneck;
    use platter_image::BlockId;
    use std::net::IpAddr;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn join(roster: &mut Roster, connection: u64, buffers: u32) -> (u32, [u8; 32]) {
        let who = ("a".to_owned(), IpAddr::from([10, 0, 0, 1]));
        roster.join(Duration::ZERO, connection, who, buffers, 0).unwrap()
    }

    fn advance(roster: &mut Roster, at: u64) {
        let _ = roster.advance(seconds(at), Duration::ZERO, Work::Some);
    }

    fn result_of(outcome: Result<Score, String>) -> ReceiverResult {
        ReceiverResult { outcome, bytes_written: 0, duration_ms: 0, symbols: 0, repaired: 0, duplicates: 0 }
    }

    fn admits(roster: &Roster, id: u32) -> bool {
        roster.places.get(id).is_some_and(Member::is_admitted)
    }

    #[test]
    fn free_buffers_account_for_chunks_in_transit() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        assert_eq!(roster.room(), u32::MAX);
        let (id, _) = join(&mut roster, 1, 4);
        join(&mut roster, 2, 9);
        for packet in [10, 20, 30] {
            roster.chunk_begins(packet);
        }
        assert_eq!(roster.room(), 1);
        let report = Report { receiver: id, seen_packet: 25, free_chunks: 2, ..Report::default() };
        roster.report(seconds(1), &report, &mut pacer);
        assert_eq!(roster.room(), 1, "two accepted, one in transit");
        roster.chunk_begins(40);
        assert_eq!((roster.room(), roster.least_free()), (0, 0));
    }

    #[test]
    fn silent_receivers_lose_their_vote_and_then_are_lost() {
        let mut roster = Roster::new([1; 32], false);
        roster.start(Duration::ZERO);
        let (id, _) = join(&mut roster, 1, 0);
        assert_eq!(roster.room(), 0);
        advance(&mut roster, 2);
        assert_eq!(roster.room(), u32::MAX);
        roster.heard(seconds(3), id);
        assert_eq!(roster.room(), u32::MAX, "it may be far behind");
        advance(&mut roster, 33);
        assert_eq!(roster.present(), 0);
        roster.disconnected(seconds(0), 1);
        assert!(admits(&roster, id), "it may return");
    }

    #[test]
    fn full_receivers_lose_their_vote_until_they_accept_a_chunk() {
        let mut roster = Roster::new([1; 32], false);
        roster.start(Duration::ZERO);
        let mut pacer = Pacer::new(1_000_000);
        let (id, _) = join(&mut roster, 1, 1);
        roster.chunk_begins(10);
        let mut report = |roster: &mut Roster, at: u64, free_chunks, done_chunks, seen_packet| {
            let numbers =
                Report { free_chunks, done_chunks, seen_packet, wanted_chunks: 9, ..Report::default() };
            roster.report(seconds(at), &Report { receiver: id, ..numbers }, &mut pacer);
            advance(roster, at);
            (roster.room(), roster.statuses()[0].state.clone())
        };
        for at in 0..5 {
            assert_eq!(report(&mut roster, at, 0, 0, 10), (0, ReceiverState::Active), "second {at}");
        }
        assert_eq!(report(&mut roster, 5, 0, 0, 10), (u32::MAX, ReceiverState::Stalled));
        assert_eq!(
            report(&mut roster, 6, 1, 0, 10),
            (u32::MAX, ReceiverState::Stalled),
            "a free buffer is no progress"
        );
        roster.chunk_begins(20);
        assert_eq!(
            report(&mut roster, 7, 1, 1, 10),
            (u32::MAX, ReceiverState::Stalled),
            "it is still behind"
        );
        assert_eq!(report(&mut roster, 8, 2, 2, 20), (2, ReceiverState::Active));
        // A free buffer without an accepted chunk does not count.
        for at in 9..14 {
            assert_eq!(
                report(&mut roster, at, 1 - (at % 2) as u32, 2, 20).1,
                ReceiverState::Active,
                "second {at}"
            );
        }
        assert_eq!(report(&mut roster, 14, 1, 2, 20).1, ReceiverState::Stalled);
        for at in 15..309 {
            assert_eq!(report(&mut roster, at, 0, 2, 20).1, ReceiverState::Stalled, "second {at}");
        }
        let lost = report(&mut roster, 309, 0, 2, 20).1;
        assert_eq!(lost, ReceiverState::Lost("no progress for 300 s".into()));
        assert_eq!(report(&mut roster, 310, 1, 2, 20).1, lost, "it is heard, but still without progress");
        assert_eq!(report(&mut roster, 311, 1, 3, 20).1, ReceiverState::Active);
    }

    #[test]
    fn a_receiver_that_everybody_waits_for_is_lost_until_it_makes_progress() {
        let mut roster = Roster::new([1; 32], false);
        roster.start(Duration::ZERO);
        let mut pacer = Pacer::new(1_000_000);
        let (id, _) = join(&mut roster, 1, 4);
        let mut report = |roster: &mut Roster, at: u64, done_chunks| {
            let numbers = Report { free_chunks: 4, done_chunks, wanted_chunks: 9, ..Report::default() };
            roster.report(seconds(at), &Report { receiver: id, ..numbers }, &mut pacer);
            let _ = roster.advance(seconds(at), seconds(1), Work::Nothing);
            roster.statuses()[0].state.clone()
        };
        for at in 0..300 {
            assert_eq!(report(&mut roster, at, 0), ReceiverState::Active, "second {at}");
        }
        let lost = report(&mut roster, 300, 0);
        assert_eq!(lost, ReceiverState::Lost("no progress for 300 s".into()));
        for at in 301..700 {
            assert_eq!(report(&mut roster, at, 0), lost, "second {at}");
        }
        assert_eq!(report(&mut roster, 700, 1), ReceiverState::Active);
    }

    #[test]
    fn no_number_that_a_receiver_says_is_too_high() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=8).map(|at| join(&mut roster, at, u32::MAX).0).collect();
        roster.start(Duration::ZERO);
        advance(&mut roster, 1);
        let samples = roster.named();
        let others: Vec<u32> = ids.into_iter().filter(|id| !samples.contains(id)).collect();
        for id in &others {
            let most = Report {
                wanted_chunks: u32::MAX,
                repaired: u32::MAX,
                received: u64::MAX,
                ..load(*id, u32::MAX, 0, 255)
            };
            roster.report(seconds(1), &most, &mut pacer);
            assert!(roster.may_be_slow(seconds(1), *id));
        }
        advance(&mut roster, 2);
        assert_eq!(roster.least_free(), u32::MAX);
    }

    #[test]
    fn samples_are_of_several_machines() {
        for seed in 1..20 {
            let mut roster = Roster::new([seed; 32], false);
            for at in 1..=100_u8 {
                let machine = if at > 90 { at } else { 1 };
                let who = ("a".to_owned(), IpAddr::from([10, 0, 0, machine]));
                roster.join(Duration::ZERO, at.into(), who, 4, 0).unwrap();
            }
            roster.start(Duration::ZERO);
            let of_one = roster.named().iter().filter(|id| **id <= 90).count();
            assert!(roster.named().len() == 3 && of_one <= 1, "seed {seed}: {of_one}");
        }
        // Others join later.
        let mut roster = Roster::new([1; 32], false);
        roster.start(Duration::ZERO);
        for at in 1..=9_u8 {
            let who = ("a".to_owned(), IpAddr::from([10, 0, 0, if at > 3 { at } else { 1 }]));
            roster.join(Duration::ZERO, at.into(), who, 4, 0).unwrap();
        }
        advance(&mut roster, 1);
        advance(&mut roster, 1);
        assert!(roster.named().iter().filter(|id| **id <= 3).count() <= 1, "{:?}", roster.named());
    }

    /// Reports of receiver `id`, whose buffers are free or hold chunks for its sink.
    fn load(id: u32, free_chunks: u32, waiting_chunks: u32, busy_percent: u8) -> Report {
        let seen_packet = 1000;
        Report {
            receiver: id,
            seen_packet,
            free_chunks,
            waiting_chunks,
            busy_percent,
            wanted_chunks: 90,
            ..Report::default()
        }
    }

    #[test]
    fn a_receiver_that_holds_most_others_loses_its_vote_until_they_have_all() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=4).map(|at| join(&mut roster, at, 8).0).collect();
        let tick = Duration::from_millis(25);
        let slow = |roster: &Roster| roster.statuses()[0].state == ReceiverState::Slow;
        // All are busy: the first one is not far slower than the rest.
        for (id, free) in ids.iter().zip([0, 1, 2, 3]) {
            roster.report(seconds(1), &load(*id, free, 8 - free, 95), &mut pacer);
        }
        (0..40).for_each(|_| assert!(!roster.advance(seconds(1), tick, Work::Waits)));
        assert!(!slow(&roster) && roster.room() == 0);
        for id in &ids[1..] {
            roster.report(seconds(1), &load(*id, 8, 0, 30), &mut pacer);
        }
        (0..3).for_each(|_| assert!(!roster.advance(seconds(1), tick, Work::Waits)));
        assert!(slow(&roster) && roster.is_slow(ids[0]) && roster.room() == 8);
        // The others hold all that they want, although two of them have not written it.
        for (id, (done, waiting)) in ids[1..].iter().zip([(90, 0), (84, 6), (89, 1)]) {
            let report = Report { done_chunks: done, ..load(*id, 8 - waiting, waiting, 30) };
            roster.report(seconds(2), &report, &mut pacer);
        }
        assert!(roster.advance(seconds(2), tick, Work::Some));
        assert!(!slow(&roster) && roster.room() == 0);
        assert!(
            !roster.advance(seconds(2), tick, Work::Waits) && !slow(&roster),
            "nobody else needs anything"
        );
    }

    #[test]
    fn few_receivers_of_many_are_spokesmen_and_those_with_the_fewest_buffers_among_them() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=40).map(|at| join(&mut roster, at, 64).0).collect();
        roster.start(Duration::ZERO);
        advance(&mut roster, 1);
        let samples = roster.named();
        assert!(samples.len() == 3 && samples != ids[..3], "they are drawn: {samples:?}");
        for (id, free) in ids[10..].iter().zip(1..) {
            roster.report(seconds(1), &load(*id, free, 0, 30), &mut pacer);
        }
        advance(&mut roster, 1);
        let named = roster.named();
        assert_eq!((named.len(), &named[3..]), (6, &ids[10..13]));
        assert_eq!((roster.least_free(), roster.room()), (1, 0), "an eighth is kept for others");
        // They have space again.
        for id in &ids {
            roster.report(seconds(2), &load(*id, 64, 0, 30), &mut pacer);
        }
        advance(&mut roster, 3);
        assert_eq!((roster.named(), roster.least_free()), (samples.clone(), 64));
        // A sample finishes.
        roster.result(
            seconds(3),
            samples[0],
            result_of(Ok(Score(BlockId([1; 32])))),
            Score(BlockId([1; 32])),
        );
        advance(&mut roster, 3);
        assert!(roster.named().len() == 3 && !roster.named().contains(&samples[0]));
        assert_eq!(roster.present(), 39);
    }

    #[test]
    fn a_receiver_that_reports_rarely_is_not_silent() {
        let mut roster = Roster::new([1; 32], false);
        (1..=200).for_each(|at| _ = join(&mut roster, at, 64));
        roster.start(Duration::ZERO);
        (1..25).for_each(|at| advance(&mut roster, at));
        let states: Vec<_> = roster.statuses().into_iter().map(|status| status.state).collect();
        let silent = states.iter().filter(|state| **state == ReceiverState::Silent).count();
        // Spokesmen have to report often: three of them are found silent every two seconds.
        assert!((3..=36).contains(&silent), "{silent}");
        assert!(states.iter().all(|state| matches!(state, ReceiverState::Silent | ReceiverState::Active)));
        (25..40).for_each(|at| advance(&mut roster, at));
        assert_eq!(roster.present(), 0);
    }

    #[test]
    fn receivers_that_hold_the_others_in_turn_for_a_short_time_keep_their_votes() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=6).map(|at| join(&mut roster, at, 8).0).collect();
        for tick in 0..1000u64 {
            // The first two are full for 28 % of the time each, and never at once.
            let holder = match tick % 25 {
                0..7 => Some(ids[0]),
                7..14 => Some(ids[1]),
                _ => None,
            };
            for id in &ids {
                let free = if Some(*id) == holder { 0 } else { 8 };
                roster.report(Duration::from_millis(tick * 5), &load(*id, free, 8 - free, 30), &mut pacer);
            }
            let (now, time) = (Duration::from_millis(tick * 5), Duration::from_millis(5));
            let work = if holder.is_some() { Work::Waits } else { Work::Some };
            assert!(!roster.advance(now, time, work));
            assert!(ids.iter().all(|id| !roster.is_slow(*id)), "tick {tick}");
        }
    }

    #[test]
    fn a_slow_receiver_that_keeps_up_returns() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=2).map(|at| join(&mut roster, at, 8).0).collect();
        let mut received = 0;
        for packet in 1..=4 {
            for (id, part) in [(ids[1], 1000), (ids[0], 250)] {
                received += u64::from(part == 250) * 275;
                let received = if part == 250 { received } else { packet * 1100 };
                let report = Report { seen_packet: packet * 1100, received, ..load(id, 8, 0, 30) };
                roster.report(seconds(1), &report, &mut pacer);
            }
        }
        assert_eq!(roster.statuses()[0].state, ReceiverState::Slow);
        assert_eq!(roster.statuses()[0].bottleneck, Some(Bottleneck::Network));
        assert_eq!(pacer.rate(), 1_000_000, "the rate is not cut");
        let mut report = |roster: &mut Roster, at: u64, packet: u64, arrived: u64, done_chunks| {
            received += arrived;
            let report = Report { seen_packet: packet, received, done_chunks, ..load(ids[0], 8, 0, 30) };
            roster.report(seconds(at), &report, &mut pacer);
            roster.statuses()[0].state.clone()
        };
        assert_eq!(report(&mut roster, 2, 5600, 1200, 0), ReceiverState::Slow);
        assert_eq!(
            report(&mut roster, 3, 6800, 1200, 0),
            ReceiverState::Slow,
            "loss is known a report later"
        );
        assert_eq!(report(&mut roster, 4, 8000, 1200, 0), ReceiverState::Stalled, "it gets what it missed");
        assert_eq!(report(&mut roster, 5, 8100, 100, 1), ReceiverState::Active);
    }

    #[test]
    fn a_receiver_is_served_however_long_it_was_slow() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=2).map(|at| join(&mut roster, at, 8).0).collect();
        roster.start(Duration::ZERO);
        roster.set_slow(0);
        for at in 1..400 {
            // Its buffers are full of parts of chunks.
            for (id, free) in ids.iter().zip([0, 8]) {
                roster.report(seconds(at), &load(*id, free, 0, 30), &mut pacer);
            }
            advance(&mut roster, at);
            assert!(roster.is_slow(ids[0]), "second {at}");
        }
        roster.report(seconds(400), &Report { done_chunks: 90, ..load(ids[1], 8, 0, 30) }, &mut pacer);
        for at in 400..404 {
            roster.report(seconds(at), &load(ids[0], 0, 0, 30), &mut pacer);
            advance(&mut roster, at);
            assert_eq!(roster.statuses()[0].state, ReceiverState::Active, "second {at}");
        }
    }

    #[test]
    fn before_the_start_nobody_is_behind() {
        let mut roster = Roster::new([1; 32], false);
        let (id, _) = join(&mut roster, 1, 4);
        advance(&mut roster, 2);
        assert_eq!(roster.statuses()[0].state, ReceiverState::Silent);
        for at in 3..400 {
            roster.heard(seconds(at), id);
            advance(&mut roster, at);
            assert_eq!(roster.statuses()[0].state, ReceiverState::Active, "second {at}");
        }
    }

    #[test]
    fn the_loss_of_a_lost_receiver_says_nothing() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let ids: Vec<u32> = (1..=2).map(|at| join(&mut roster, at, 8).0).collect();
        roster.start(Duration::ZERO);
        advance(&mut roster, 1);
        roster.change(0, |member| {
            member.status.state = ReceiverState::Lost("no progress".into());
            member.full_since = Some(Duration::ZERO);
        });
        for step in 1..20 {
            let report = Report { seen_packet: step * 1100, received: step * 275, ..load(ids[0], 8, 0, 30) };
            roster.report(seconds(LOST_STALL.as_secs() + step), &report, &mut pacer);
            assert!(matches!(roster.statuses()[0].state, ReceiverState::Lost(_)), "step {step}");
        }
        assert_eq!(pacer.rate(), 1_000_000);
    }

    #[test]
    fn a_wrong_score_is_a_failure() {
        let mut roster = Roster::new([1; 32], false);
        let (id, _) = join(&mut roster, 1, 1);
        let result = result_of(Ok(Score(BlockId([1; 32]))));
        roster.result(seconds(1), id, result, Score(BlockId([2; 32])));
        assert!(matches!(roster.statuses()[0].state, ReceiverState::Failed(_)));
    }
}
