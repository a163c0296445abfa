//! What the roster decides about receivers: which are silent, stalled, lost or far slower than the rest, and what their paths show.
//!
//! A receiver is compared with those that reported within the last seconds. In a large room these are a cross-section, because every
//! receiver reports now and then. Must never look at more than a few receivers in a step, except when slow ones get their turn.

use std::time::Duration;

use super::member::{Member, ReceiverState, VOTE_SILENCE};
use super::path::of_most;
use super::roster::{LOST_SILENCE, LOST_STALL, Roster, VOTE_STALL, is_limiting, room_of, space_of};
use super::slowness::{BUSY_PERCENT_MAX, LOSS_FAR, LossVerdict, Others};
use super::spokesmen::RECENT_MAX;
use crate::congestion::Reading;
use crate::pacing::{LOSS_TOLERATED, Pacer};
use crate::wire::report::Report;

/// Number of receivers whose silence is checked in a step.
const CHECKED_MAX: usize = 256;
/// A spokesman remains one for this long.
const NAMED_MIN: Duration = Duration::from_secs(1);
/// Slow receivers are served if the sender has had nothing to send for this long, in sum, because nobody else needs much. Other time
/// reduces the sum, so that requests now and then do not keep them waiting.
const IDLE_MAX: Duration = Duration::from_millis(500);
/// The sum is at most so many times as much.
const IDLE_SUM_MAX: u32 = 2;

/// What the sender has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Something to send.
    Some,
    /// Chunks for which a receiver has no buffer, and nothing else.
    Waits,
    Nothing,
}

impl Roster {
    /// Processes the loss in a report of a spokesman: cuts the rate if it is too high, except if this receiver is far slower than the
    /// rest.
    pub(super) fn judge_loss(&mut self, now: Duration, index: usize, report: &Report, pacer: &mut Pacer) {
        if !self.spokesmen.contains(index) {
            return;
        }
        let member = &mut self.places.members[index];
        // Datagrams that were overtaken look lost in the newest report, but not in the one before it.
        let Some((seen, received)) = member.path.latest() else { return };
        if std::mem::take(&mut member.naming.skips_loss) {
            member.loss.restart(seen, received);
            return;
        }
        let has_queue = member.path.has_queue();
        match member.status.state {
            ReceiverState::Slow => {
                member.loss.report(seen, received, false);
                if member.slowness.keeps_up(now, member.keeps_up()) {
                    // It gets what it missed, and its vote with the next chunk that it accepts.
                    self.change(index, |member| {
                        member.status.state = ReceiverState::Stalled;
                        member.full_since = Some(now);
                    });
                    self.changed = true;
                }
            }
            ReceiverState::Active => {
                let Some((excess, samples)) = member.loss.report(seen, received, true) else { return };
                let others = match excess > LOSS_TOLERATED {
                    true => self.others_losses(now, index),
                    false => Others::default(),
                };
                match self.places.members[index].slowness.lost((excess, samples), has_queue, others) {
                    LossVerdict::Tolerated => {}
                    LossVerdict::Cut => pacer.cut(now, excess),
                    LossVerdict::Slow => self.set_slow(index),
                }
            }
            // Loss while it is behind or gone says nothing about the network.
            _ => member.loss.skip_to(report.seen_packet, report.received),
        }
    }

    /// Compares the voting receivers that have reported lately, except this one. `is_able` returns whether one could take more, if that is
    /// known; `None` leaves it out. In a large room, receivers that have spoken up because they limit are left out too: compared with
    /// the others that report, they are too many.
    fn others(
        &self,
        now: Duration,
        index: usize,
        is_able: impl Fn(usize, &Member) -> Option<Option<bool>>,
    ) -> Others {
        let is_large = self.census.voting > RECENT_MAX;
        let samples = self.spokesmen.samples();
        let mut others = Others::default();
        for at in self.spokesmen.recent(now, &self.places.members).filter(|at| *at != index) {
            let member = &self.places.members[at];
            let has_spoken_up = is_large && !samples.contains(&at) && is_limiting(&self.begun, member);
            if member.votes()
                && !has_spoken_up
                && let Some(is_able) = is_able(at, member)
            {
                others.add(is_able);
            }
        }
        others
    }

    /// Compares the losses of the others that have been measured, or will soon be.
    fn others_losses(&self, now: Duration, index: usize) -> Others {
        self.others(now, index, |at, member| match member.loss.excess() {
            Some(excess) => Some(Some(excess <= LOSS_TOLERATED)),
            None => self.spokesmen.contains(at).then_some(None),
        })
    }

    /// Returns whether a receiver that lacks a large part of a chunk may be far slower than the rest, so that the rest should not wait
    /// for its repair. It then becomes a spokesman, so that its loss is soon known.
    pub(crate) fn may_be_slow(&mut self, now: Duration, id: u32) -> bool {
        let Some(index) = self.places.index(id) else { return false };
        let member = &self.places.members[index];
        if !member.votes() || self.census.voting < 2 {
            return false;
        }
        if self.spokesmen.contains(index) {
            return match member.loss.excess().filter(|_| !member.naming.skips_loss) {
                Some(excess) => {
                    let others = self.others_losses(now, index);
                    excess > LOSS_FAR && (others.are_able() || others.are_unknown())
                }
                // It says nothing about its loss.
                None if member.naming.reported_at <= member.naming.named_at => true,
                None => now < member.naming.named_at + NAMED_MIN,
            };
        }
        let begun = &self.begun;
        self.spokesmen.limits(now, index, &mut self.places.members, |member| room_of(begun, member));
        true
    }

    /// Returns what most samples show about the path since the last call. `packet` is the last one that was sent.
    pub(crate) fn read_path(&mut self, now: Duration, packet: u64) -> Option<Reading> {
        let members = &mut self.places.members;
        let samples = self.spokesmen.samples().iter();
        of_most(samples.filter_map(|index| members[*index].path.read(now, packet)).collect())
    }

    /// Starts new samples of loss, because the rate was cut: loss before the cut says nothing about the rate after it.
    pub(crate) fn restart_samples(&mut self) {
        for index in self.spokesmen.all() {
            let member = &mut self.places.members[index];
            if member.votes() {
                member.path.latest().inspect(|(seen, received)| member.loss.skip_to(*seen, *received));
            }
        }
    }

    pub(super) fn set_slow(&mut self, index: usize) {
        self.change(index, |member| {
            member.status.state = ReceiverState::Slow;
            member.slowness.restart();
            member.full_since = None;
        });
        self.changed = true;
    }

    /// Finds receivers that hold the others: the sender waited for their buffers during this time, while most others have space
    /// and are not busy.
    fn judge_waiting(&mut self, now: Duration, time: Duration, is_waiting: bool) {
        let has_others = self.has_others();
        // One after another, many slow receivers of a large room would hold it for long.
        let is_impatient = self.census.voting > RECENT_MAX && self.patience.is_over();
        let mut held_any = false;
        let voting: Vec<usize> =
            self.spokesmen.all().filter(|index| self.places.members[*index].votes()).collect();
        let holds = |roster: &Self, member: &Member| {
            is_waiting && member.naming.is_fresh && space_of(&roster.begun, member, has_others) == 0
        };
        for index in voting {
            let is_held = holds(self, &self.places.members[index]);
            let are_able = is_held && {
                let is_able = |at: usize, member: &Member| {
                    let holds = self.spokesmen.contains(at) && holds(self, member);
                    Some(Some(!holds && member.busy_percent <= BUSY_PERCENT_MAX))
                };
                self.others(now, index, is_able).are_able()
            };
            held_any |= are_able;
            let waited = self.places.members[index].slowness.waited(time, are_able);
            if waited || (are_able && is_impatient) {
                self.set_slow(index);
                self.slowed_at = now;
            }
        }
        self.patience.waited(time, held_any);
    }

    /// Returns when a receiver was last found far slower than the rest because the sender waited for it.
    pub(crate) fn slowed_at(&self) -> Duration {
        self.slowed_at
    }

    /// Gives slow receivers a vote when no other receiver needs anything. Returns whether there were any.
    #[must_use]
    fn serve_slow(&mut self) -> bool {
        if self.census.voting > 0 && self.idle < IDLE_MAX {
            return false;
        }
        let slow = self.census.slow.clone();
        for index in &slow {
            self.change(*index, |member| {
                member.status.state = ReceiverState::Active;
                member.slowness.restart();
            });
        }
        self.changed |= !slow.is_empty();
        !slow.is_empty()
    }

    /// Updates states by time: receivers that are silent, make no progress or are far slower than the rest lose their vote, and
    /// later some count as lost. `work` is what the sender had to do during the last `time`. Returns whether slow receivers are
    /// served from now on.
    #[must_use]
    pub(crate) fn advance(&mut self, now: Duration, time: Duration, work: Work) -> bool {
        self.timers.update(now, self.census.present);
        self.advance_states(now);
        self.judge_waiting(now, time, work == Work::Waits);
        self.idle = match work {
            Work::Nothing => (self.idle + time).min(IDLE_MAX * IDLE_SUM_MAX),
            Work::Some | Work::Waits => self.idle.saturating_sub(time),
        };
        let is_served = self.serve_slow();
        let begun = &self.begun;
        let is_limiting =
            |member: &Member| is_limiting(begun, member) || now < member.naming.named_at + NAMED_MIN;
        let (voting, slow) = (self.census.voting, &self.census.slow);
        self.spokesmen.update(now, &mut self.places.members, voting, slow, is_limiting);
        is_served
    }

    /// Checks all spokesmen, and a few members in turn.
    fn advance_states(&mut self, now: Duration) {
        // Before the start, nobody is asked.
        if self.has_started {
            self.spokesmen.doubt(now, &self.places.members);
        }
        let doubted = self.spokesmen.doubted().iter().map(|(index, _)| *index);
        let first: Vec<usize> = self.spokesmen.all().chain(doubted).collect();
        for index in first {
            self.advance_state(now, index);
        }
        let count = self.places.members.len();
        for _ in 0..count.min(CHECKED_MAX) {
            self.cursor = (self.cursor + 1) % count;
            self.advance_state(now, self.cursor);
        }
    }

    /// How silent a receiver is.
    fn silence_of(&self, now: Duration, index: usize) -> Silence {
        let member = &self.places.members[index];
        let heard_at = member.status.heard_at;
        let lasts = self.timers.silent_for(now, heard_at);
        // A spokesman has to report whatever others do, and whatever else it says. Before the start, plans do not name it.
        let must_report = self.has_started && self.spokesmen.contains(index);
        let is_missed_since = |last: Duration| {
            must_report && now.saturating_sub(last.max(member.naming.named_at)) >= VOTE_SILENCE
        };
        let is_unheard = lasts >= VOTE_SILENCE.max(self.timers.silence()) || is_missed_since(heard_at);
        let doubted = self.spokesmen.doubted().iter().find(|(doubted, _)| *doubted == index);
        let is_killed = match doubted {
            Some((_, since)) => member.may_be_killed() && now.saturating_sub(*since) >= VOTE_SILENCE,
            None => member.parted_at.is_some() && is_unheard,
        };
        Silence { lasts, is_silent: is_unheard || is_missed_since(member.naming.reported_at), is_killed }
    }

    /// Returns for how long a receiver has had no free buffer, or has been behind, without progress.
    fn stall_of(&mut self, now: Duration, index: usize) -> Duration {
        let member = &mut self.places.members[index];
        let knows_room = member.naming.is_fresh && self.spokesmen.contains(index);
        let is_full = member.status.state == ReceiverState::Stalled
            || (knows_room && (member.full_since.is_some() || room_of(&self.begun, member) == 0));
        // A slow one's buffers may be full of parts of chunks until it is served.
        let can_stall = self.has_started && member.status.state != ReceiverState::Slow;
        let is_stalled = is_full && can_stall && !member.has_all();
        member.full_since = is_stalled.then(|| member.full_since.unwrap_or(now));
        member.full_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn advance_state(&mut self, now: Duration, index: usize) {
        if !self.places.members[index].is_present() {
            return;
        }
        let (silence, stall) = (self.silence_of(now, index), self.stall_of(now, index));
        let allowed = self.timers.silence();
        let member = &self.places.members[index];
        // The sender has nothing to do but to wait for it.
        let is_awaited = self.idle >= IDLE_MAX && !member.holds_all();
        let without_progress = now.saturating_sub(member.progressed_at);
        let is_stuck = is_awaited
            && member.status.state == ReceiverState::Active
            && without_progress >= LOST_STALL.max(allowed);
        // It may well have finished, and not be able to say so.
        let has_all = if member.has_all() { ", but it had received everything" } else { "" };
        let lost = |reason: String| ReceiverState::Lost(reason + has_all);
        let lost_after =
            |time: Duration| ReceiverState::Lost(format!("no progress for {} s", time.as_secs()));
        let next = match member.status.state {
            _ if silence.lasts >= LOST_SILENCE.max(allowed) => {
                let lasts = now.saturating_sub(member.status.heard_at);
                lost(format!("silent for {} s", lasts.as_secs()))
            }
            _ if silence.is_killed => lost("the connection ended, and it is silent".to_owned()),
            ReceiverState::Stalled if stall >= LOST_STALL.max(allowed) => lost_after(stall),
            ReceiverState::Active if is_stuck => lost_after(without_progress),
            ReceiverState::Active if silence.is_silent => ReceiverState::Silent,
            ReceiverState::Active if stall >= VOTE_STALL => ReceiverState::Stalled,
            _ => return,
        };
        self.change(index, |member| {
            member.is_replaced |= silence.is_killed && member.may_be_replaced;
            if is_stuck {
                // It needs progress to return.
                let since = member.full_since.map_or(member.progressed_at, |it| it.min(member.progressed_at));
                member.full_since = Some(since);
            }
            member.status.state = next;
        });
        self.changed = true;
    }
}

/// How silent a receiver is.
struct Silence {
    /// For how long it has not been heard, although it had to report.
    lasts: Duration,
    /// It has no vote.
    is_silent: bool,
    /// Its connection has ended, and it was not heard since: its process was probably killed.
    is_killed: bool,
}
