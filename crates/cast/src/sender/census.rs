//! How many receivers take part, vote, or are far slower than the rest, counted when one changes.
//!
//! So no step of the sender has to look at all of them.

use super::member::{Member, ReceiverState};

/// What is counted of one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    is_present: bool,
    votes: bool,
    is_slow: bool,
}

impl Standing {
    pub(super) fn of(member: &Member) -> Self {
        let is_slow = member.status.state == ReceiverState::Slow;
        Self { is_present: member.is_present(), votes: member.votes(), is_slow }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) present: usize,
    pub(super) voting: usize,
    /// The indices of those that are far slower than the rest.
    pub(super) slow: Vec<usize>,
}

impl Census {
    /// Counts all.
    pub(super) fn of(members: &[Member]) -> Self {
        let mut census = Self::default();
        let nobody = Standing { is_present: false, votes: false, is_slow: false };
        for (index, member) in members.iter().enumerate() {
            census.change(index, nobody, Standing::of(member));
        }
        census
    }

    /// Counts the change of one.
    pub(super) fn change(&mut self, index: usize, before: Standing, after: Standing) {
        self.present = self.present + usize::from(after.is_present) - usize::from(before.is_present);
        self.voting = self.voting + usize::from(after.votes) - usize::from(before.votes);
        match (before.is_slow, after.is_slow) {
            (false, true) => self.slow.push(index),
            (true, false) => self.slow.retain(|slow| *slow != index),
            _ => {}
        }
    }
}
