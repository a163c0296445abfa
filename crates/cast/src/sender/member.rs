//! One receiver of a session: its state, and what its reports say.
//!
//! Owns what can be said about a receiver without looking at the others. Must never decide anything that needs them.

use std::net::IpAddr;
use std::time::Duration;

use super::path::Path;
use super::slowness::Slowness;
use crate::pacing::{LOSS_TOLERATED, LossMeter};
use crate::stage::{Bottleneck, Bottlenecks};
use crate::wire::join::ReceiverResult;
use crate::wire::protection::{DatagramKey, ReplayWindow};

/// A receiver that is silent for this long no longer slows the others.
pub(super) const VOTE_SILENCE: Duration = Duration::from_secs(2);

/// What arrives for so long after the end of a connection may have been sent before it.
const ON_THE_WAY: Duration = Duration::from_millis(300);

/// State of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// Receiving.
    Active,
    /// Receiving, but silent for two seconds, or for longer in a large room: it no longer slows the others.
    Silent,
    /// Receiving, but without a free buffer or behind, and without progress since: it does not slow the others.
    Stalled,
    /// Receiving what it can, far slower than the others: it does not slow them, and gets the rest when they have all.
    Slow,
    /// Finished, with the right score.
    Done(ReceiverResult),
    /// It reported a failure, or finished with a wrong score.
    Failed(String),
    /// It left without a result, was silent for 30 seconds (two when its connection has ended), or made no progress for five minutes;
    /// each is longer in a large room.
    Lost(String),
}

/// How absent a receiver is that may have been restarted, most absent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// It failed, or is lost and has no connection.
    Ended,
    /// It is lost, and its connection exists.
    Lost,
    Silent,
    /// It has no connection. Most such receivers just do not need one.
    Unconnected,
}

/// The status of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverStatus {
    /// Its number in this session.
    pub id: u32,
    /// The name that it gave itself.
    pub name: String,
    /// Its state.
    pub state: ReceiverState,
    /// Content chunks that its sink has accepted.
    pub done_chunks: u32,
    /// Content chunks that it wants, as far as known; 0 before it knows the chunk table.
    pub wanted_chunks: u32,
    /// Free chunk buffers in its last report.
    pub free_chunks: u32,
    /// Symbols that it restored from repair symbols.
    pub repaired: u64,
    /// What limits it, or mostly limited it if it has finished; `None` until it is known.
    pub bottleneck: Option<Bottleneck>,
    /// Time since the start of the cast at which it joined.
    pub joined_at: Duration,
    /// Time since the start of the cast at which it finished or was last heard.
    pub heard_at: Duration,
}

/// A receiver of the session.
pub(super) struct Member {
    pub(super) status: ReceiverStatus,
    pub(super) key: DatagramKey,
    pub(super) window: ReplayWindow,
    /// The address from which it joined.
    pub(super) address: IpAddr,
    /// Whether a receiver with the same name and address joined after it was gone or failed. That one replaces it in the status.
    pub(super) is_replaced: bool,
    /// Whether a receiver with the same name and address joined while this one had no connection. If it is not heard again, it was
    /// restarted, and is replaced.
    pub(super) may_be_replaced: bool,
    /// Its connection, while there is one.
    pub(super) connection: Option<u64>,
    /// When its connection ended, if it has none.
    pub(super) parted_at: Option<Duration>,
    /// It has said that it leaves.
    pub(super) has_left: bool,
    /// The last packet that was sent before it joined.
    pub(super) joined_packet: u64,
    /// Whether it has seen a later one in the group, as far as the sender had to know.
    pub(super) hears_group: bool,
    pub(super) seen_packet: u64,
    pub(super) loss: LossMeter,
    pub(super) path: Path,
    pub(super) buffers: u32,
    /// Complete chunks that wait for its sink, and the share of the time in which some do.
    pub(super) waiting_chunks: u32,
    pub(super) busy_percent: u8,
    pub(super) slowness: Slowness,
    pub(super) bottlenecks: Bottlenecks,
    /// When it last accepted a chunk, or joined.
    pub(super) progressed_at: Duration,
    /// Since when it has had no free buffer for the next chunk and accepted none.
    pub(super) full_since: Option<Duration>,
    pub(super) naming: Naming,
}

/// When a receiver was named a spokesman, and whether its reports are recent enough to count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    /// When it reported last, or joined.
    pub(super) reported_at: Duration,
    /// When it was last named.
    pub(super) named_at: Duration,
    /// What it reported counts. Otherwise it has not reported since it was named.
    pub(super) is_fresh: bool,
    /// The loss before its next report says nothing.
    pub(super) skips_loss: bool,
}

impl Naming {
    /// Starts with what a JOIN says.
    pub(super) fn joined(now: Duration) -> Self {
        Self { reported_at: now, named_at: now, is_fresh: true, skips_loss: false }
    }
}

impl Member {
    pub(super) fn is_present(&self) -> bool {
        use ReceiverState::{Active, Silent, Slow, Stalled};
        matches!(self.status.state, Active | Silent | Stalled | Slow)
    }

    /// Returns whether its messages count: it takes part, or is lost and may return.
    pub(super) fn is_admitted(&self) -> bool {
        let given_up = matches!(self.status.state, ReceiverState::Lost(_));
        self.is_present() || (given_up && !self.has_left)
    }

    /// Returns whether its connection has ended, and it was not heard since: its process may have been killed.
    pub(super) fn may_be_killed(&self) -> bool {
        let is_unheard = |parted_at| self.status.heard_at <= parted_at + ON_THE_WAY;
        self.is_present() && self.parted_at.is_some_and(is_unheard)
    }

    /// Returns whether another receiver may have its place: it does not take part any more, and has no connection.
    pub(super) fn is_gone(&self) -> bool {
        self.connection.is_none() && !self.is_present()
    }

    /// Ranks receivers that may have been restarted. The most absent one is replaced first. `None` if it was evidently not restarted.
    pub(super) fn absence(&self, now: Duration, silence: Duration) -> Option<Absence> {
        let is_silent = now.saturating_sub(self.status.heard_at) >= silence;
        match self.status.state {
            ReceiverState::Failed(_) => Some(Absence::Ended),
            ReceiverState::Lost(_) if self.connection.is_none() => Some(Absence::Ended),
            ReceiverState::Lost(_) => Some(Absence::Lost),
            _ if !self.is_present() => None,
            _ if is_silent => Some(Absence::Silent),
            _ => self.connection.is_none().then_some(Absence::Unconnected),
        }
    }

    /// Returns whether it has accepted all that it wants.
    pub(super) fn has_all(&self) -> bool {
        self.status.wanted_chunks > 0 && self.status.done_chunks == self.status.wanted_chunks
    }

    /// Returns whether it holds all that it wants, in buffers if its sink is not ready yet. Its free buffers then do not matter.
    pub(super) fn holds_all(&self) -> bool {
        let held = self.status.done_chunks.saturating_add(self.waiting_chunks);
        self.status.wanted_chunks > 0 && held >= self.status.wanted_chunks
    }

    pub(super) fn votes(&self) -> bool {
        self.status.state == ReceiverState::Active && !self.holds_all()
    }

    /// Returns whether its network is known to lose no more than usual, and its sink is not behind.
    pub(super) fn keeps_up(&self) -> bool {
        self.loss.excess().is_some_and(|excess| excess <= LOSS_TOLERATED)
            && self.waiting_chunks <= self.buffers / 4
    }
}
