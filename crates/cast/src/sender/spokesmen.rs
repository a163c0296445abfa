//! The receivers that report often: chosen by the sender, and named by its plans.
//!
//! There are four kinds. A few *samples* stand for all: their paths decide the rate. Those that *limit* have the fewest free buffers. One that is far slower than the rest is *watched*, each in turn,
//! because it may keep up again. And a few whose connections have ended are *doubted* until they report, because they may have been killed. Owns the choice. Its work does not depend on the number of receivers. Must never name more
//! than [`SPOKESMEN_MAX`](crate::wire::plan::SPOKESMEN_MAX).

use std::collections::VecDeque;
use std::time::Duration;

use super::member::{Member, VOTE_SILENCE};
use crate::random::Random;

/// Number of receivers whose paths are read.
pub(super) const SAMPLES: usize = 3;
/// Number of receivers that limit, at most.
const LIMITING_MAX: usize = 3;
/// A receiver takes the place of another one among these if this share of its buffers fewer are free.
const WORSE_SHARE: u32 = 16;
/// How many receivers are looked at in a step to find a sample.
const TRIES: usize = 16;
/// How many are looked at before, at addresses without a sample; and when the samples are drawn.
const TRIES_ELSEWHERE: usize = 16;
const TRIES_AT_START: usize = 2048;
/// In a room of more members than this, some of them are drawn at random.
const SMALL_ROOM: usize = 16;
/// A receiver far slower than the rest is watched for this long, then the next one.
const WATCH: Duration = Duration::from_millis(1500);
/// It is watched for so many times as long if its loss is not known before.
const WATCHES_MAX: u32 = 4;
/// Number of receivers that are doubted at a time.
const DOUBTED_MAX: usize = 4;
/// A new spokesman counts at once if it has reported within this time.
const FRESH: Duration = Duration::from_millis(300);
/// Number of receivers that reported last and are remembered, and for how long.
pub(super) const RECENT_MAX: usize = 32;
const RECENT: Duration = Duration::from_secs(3);

/// The spokesmen, as indices of members.
#[derive(Debug)]
pub(super) struct Spokesmen {
    samples: Vec<usize>,
    limiting: Vec<usize>,
    watched: Option<(usize, Duration)>,
    doubted: Vec<(usize, Duration)>,
    /// Those to be doubted next.
    parted: VecDeque<usize>,
    random: Random,
    cursor: usize,
    changed: bool,
    /// Those that have reported last, each once.
    recent: VecDeque<usize>,
}

impl Spokesmen {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            samples: Vec::new(),
            limiting: Vec::new(),
            watched: None,
            doubted: Vec::new(),
            parted: VecDeque::new(),
            random: Random::new(seed),
            cursor: 0,
            changed: false,
            recent: VecDeque::new(),
        }
    }

    /// Returns all spokesmen except those that are doubted, each once.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let limiting = self.limiting.iter().filter(|index| !self.samples.contains(index));
        let watched = self.watched.iter().map(|(index, _)| index);
        self.samples.iter().chain(limiting).chain(watched).copied()
    }

    /// Returns those whose paths are read.
    pub(super) fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// Handles that the connection of a receiver has ended.
    pub(super) fn parted(&mut self, index: usize) {
        if !self.parted.contains(&index) {
            self.parted.push_back(index);
        }
    }

    /// Returns those that are doubted, each once, and since when.
    pub(super) fn doubted(&self) -> &[(usize, Duration)] {
        &self.doubted
    }

    /// Doubts a few receivers whose connections have ended, until they are heard.
    pub(super) fn doubt(&mut self, now: Duration, members: &[Member]) {
        let before = self.doubted.len();
        self.doubted.retain(|(index, _)| members[*index].may_be_killed());
        self.changed |= before != self.doubted.len();
        while self.doubted.len() < DOUBTED_MAX
            && let Some(index) = self.parted.pop_front()
        {
            let is_known = self.doubted.iter().any(|(known, _)| *known == index);
            if members[index].may_be_killed() && !is_known {
                self.doubted.push((index, now));
                self.changed = true;
            }
        }
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.all().any(|known| known == index)
    }

    /// Returns whether the spokesmen have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns the receivers that have reported within the last few seconds: a cross-section of a large room, or all of a small one.
    pub(super) fn recent<'a>(
        &'a self,
        now: Duration,
        members: &'a [Member],
    ) -> impl Iterator<Item = usize> + 'a {
        let recent = self.recent.iter().rev().copied();
        recent.take_while(move |index| now.saturating_sub(members[*index].naming.reported_at) <= RECENT)
    }

    /// Adds a receiver that has reported.
    pub(super) fn reported(&mut self, index: usize) {
        if let Some(position) = self.recent.iter().position(|known| *known == index) {
            self.recent.remove(position);
        } else if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(index);
    }

    /// Forgets a receiver whose place is given to another one.
    pub(super) fn forget(&mut self, index: usize) {
        self.samples.retain(|known| *known != index);
        self.limiting.retain(|known| *known != index);
        self.recent.retain(|known| *known != index);
        self.doubted.retain(|(known, _)| *known != index);
        self.watched.take_if(|(known, _)| *known == index);
    }

    fn name(&mut self, now: Duration, index: usize, members: &mut [Member]) {
        if self.contains(index) {
            return;
        }
        let member = &mut members[index];
        member.path.skip();
        let naming = &mut member.naming;
        naming.named_at = now;
        if now.saturating_sub(naming.reported_at) > FRESH {
            (naming.is_fresh, naming.skips_loss) = (false, true);
        }
        self.changed = true;
    }

    /// Makes a voting receiver a sample, if one is missing.
    pub(super) fn add_sample(&mut self, now: Duration, index: usize, members: &mut [Member]) {
        if self.samples.len() < SAMPLES && members[index].votes() && !self.samples.contains(&index) {
            self.name(now, index, members);
            self.samples.push(index);
        }
    }

    /// Returns whether a sample has the address of this receiver: many receivers of one machine must not decide for all.
    fn has_sample_of(&self, index: usize, members: &[Member]) -> bool {
        self.samples.iter().any(|sample| members[*sample].address == members[index].address)
    }

    /// Names a voting receiver because it limits, or may be far slower than the rest, if it does so more than another one. `room` returns
    /// how many chunks one can take.
    pub(super) fn limits(
        &mut self,
        now: Duration,
        index: usize,
        members: &mut [Member],
        room: impl Fn(&Member) -> u32,
    ) {
        if self.limiting.contains(&index) {
            return;
        }
        if self.limiting.len() >= LIMITING_MAX {
            let least = (0..self.limiting.len()).max_by_key(|at| room(&members[self.limiting[*at]]));
            // Not for a small difference, so that they do not change all the time.
            let most = room(&members[index]).saturating_add(members[index].buffers / WORSE_SHARE);
            let Some(at) = least.filter(|at| room(&members[self.limiting[*at]]) > most) else {
                return;
            };
            self.limiting.remove(at);
        }
        self.name(now, index, members);
        self.limiting.push(index);
    }

    /// Draws the samples anew: not those that joined first.
    pub(super) fn begin(&mut self, now: Duration, members: &mut [Member], voting: usize) {
        self.samples.clear();
        self.cursor = self.random.below(members.len().max(1) as u64) as usize;
        for member in members.iter_mut() {
            member.path.skip();
            // Nobody had more to say than the join has told.
            member.naming.reported_at = now;
        }
        self.add_samples(now, members, voting, TRIES_AT_START);
    }

    /// Returns the next receiver that may become a sample: in a large room at random; if few are left, or the room is small, in turn.
    fn candidate(&mut self, number: usize, members: usize) -> usize {
        match number % 2 {
            0 if members > SMALL_ROOM => self.random.below(members as u64) as usize,
            _ => {
                self.cursor = (self.cursor + 1) % members;
                self.cursor
            }
        }
    }

    /// Replaces a sample that has the address of another one, if a receiver elsewhere is found.
    fn spread_samples(&mut self, now: Duration, members: &mut [Member]) {
        let address = |index: &usize| members[*index].address;
        let is_double =
            |at: &usize| self.samples[..*at].iter().any(|it| address(it) == address(&self.samples[*at]));
        let Some(at) = (1..self.samples.len()).find(is_double) else { return };
        for number in 0..TRIES_ELSEWHERE {
            let index = self.candidate(number, members.len());
            if members[index].votes() && !self.has_sample_of(index, members) {
                self.samples.remove(at);
                self.changed = true;
                return self.add_sample(now, index, members);
            }
        }
    }

    fn add_samples(&mut self, now: Duration, members: &mut [Member], voting: usize, elsewhere: usize) {
        let tries = if members.is_empty() { 0 } else { elsewhere + TRIES };
        for number in 0..tries {
            if self.samples.len() >= SAMPLES.min(voting) {
                break;
            }
            let index = self.candidate(number, members.len());
            // If no other machine is found soon, those of one have to do.
            if number >= elsewhere || !self.has_sample_of(index, members) {
                self.add_sample(now, index, members);
            }
        }
    }

    /// Drops spokesmen that no longer vote or limit, and finds others. `voting` is the number of all that vote, `slow` those that are far
    /// slower than the rest.
    pub(super) fn update(
        &mut self,
        now: Duration,
        members: &mut [Member],
        voting: usize,
        slow: &[usize],
        is_limiting: impl Fn(&Member) -> bool,
    ) {
        let before = self.samples.len() + self.limiting.len();
        self.samples.retain(|index| members[*index].votes());
        self.limiting.retain(|index| members[*index].votes() && is_limiting(&members[*index]));
        self.changed |= before != self.samples.len() + self.limiting.len();
        self.add_samples(now, members, voting, TRIES_ELSEWHERE);
        self.spread_samples(now, members);
        self.watch(now, members, slow);
    }

    fn watch(&mut self, now: Duration, members: &mut [Member], slow: &[usize]) {
        let ends = |(index, since): &(usize, Duration)| {
            let member = &members[*index];
            // It may return soon, or at a low rate its loss is not known yet.
            let is_calm =
                member.slowness.is_calm() && now.saturating_sub(member.naming.reported_at) < VOTE_SILENCE;
            let is_open = is_calm || (member.loss.excess().is_none() && now < *since + WATCH * WATCHES_MAX);
            !slow.contains(index) || (slow.len() > 1 && now >= *since + WATCH && !is_open)
        };
        let before = self.watched.take_if(|watched| ends(watched)).map(|(index, _)| index);
        if self.watched.is_none() && !slow.is_empty() {
            let at = before.and_then(|before| slow.iter().position(|index| *index == before));
            let next = slow[at.map_or(0, |at| (at + 1) % slow.len())];
            self.name(now, next, members);
            self.watched = Some((next, now));
        }
        self.changed |= before.is_some();
    }
}
