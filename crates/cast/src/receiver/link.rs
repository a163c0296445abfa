//! The connection of a joined receiver: whether there is one, and when to connect again.
//!
//! The sender may close it at any time. Must never be tried again at once when the last one was of no use.

use std::time::Duration;

use crate::random::Random;

/// The pause after a connection over which nothing was answered, at first and at most. A random part of it is added, because many
/// receivers may have lost their connections at the same moment.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Connected, and the sender knows whose it is.
    Open,
    Closed,
    Connecting,
    /// Connected at this time; the sender has to greet first.
    Greeting(Duration),
}

/// The connection.
#[derive(Debug)]
pub(super) struct Link {
    state: State,
    /// When to connect again, if it is closed.
    again_at: Duration,
    /// The pause after the next end; `None` if the connection has been of use.
    pause: Option<Duration>,
    random: Random,
}

impl Link {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: State::Closed, again_at: Duration::ZERO, pause: None, random: Random::new(seed) }
    }

    /// Handles that the session was joined over the connection.
    pub(super) fn opened(&mut self) {
        (self.state, self.pause) = (State::Open, None);
    }

    /// Handles that the connection is there again.
    pub(super) fn connected(&mut self, now: Duration) {
        self.state = State::Greeting(now);
    }

    /// Handles that the sender was told whose connection it is.
    pub(super) fn resumed(&mut self) {
        self.state = State::Open;
    }

    /// Handles an answer of the sender.
    pub(super) fn answered(&mut self) {
        self.pause = None;
    }

    /// Handles that the connection has ended, or could not be made.
    pub(super) fn ended(&mut self, now: Duration) {
        let pause = self.pause.unwrap_or_default();
        let spread = Duration::from_nanos(self.random.below(pause.as_nanos() as u64));
        self.again_at = now + pause + spread;
        self.pause = Some((pause * 2).clamp(PAUSE_MIN, PAUSE_MAX));
        self.state = State::Closed;
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn awaits_greeting(&self) -> bool {
        matches!(self.state, State::Greeting(_))
    }

    /// Returns whether to connect now, and then counts it as begun.
    pub(super) fn connects(&mut self, now: Duration) -> bool {
        let is_due = self.state == State::Closed && now >= self.again_at;
        if is_due {
            self.state = State::Connecting;
        }
        is_due
    }

    /// Returns whether the sender has not greeted for so long. The connection must be closed then.
    pub(super) fn is_ignored(&mut self, now: Duration, patience: Duration) -> bool {
        let is_ignored = matches!(self.state, State::Greeting(since) if now >= since + patience);
        if is_ignored {
            self.state = State::Connecting;
        }
        is_ignored
    }

    /// Returns when to connect if there is something to say from this time on, or when the sender has been silent for too long.
    pub(super) fn next_deadline(&self, says_at: Duration, patience: Duration) -> Option<Duration> {
        match self.state {
            State::Closed => Some(self.again_at.max(says_at)),
            State::Greeting(since) => Some(since + patience),
            State::Open | State::Connecting => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_connections_are_tried_less_and_less_often() {
        let mut link = Link::new(1);
        let mut now = Duration::from_secs(9);
        link.opened();
        link.ended(now);
        assert!(link.connects(now), "the first time, at once");
        let mut times = Vec::new();
        while times.len() < 9 {
            link.connected(now);
            link.resumed();
            link.ended(now);
            let at = link.next_deadline(Duration::ZERO, PAUSE_MAX).unwrap();
            assert!(!link.connects(at - Duration::from_nanos(1)));
            assert!(link.connects(at));
            times.push(at - now);
            now = at;
        }
        assert!(times[0] >= PAUSE_MIN && times[0] < PAUSE_MIN * 2, "{times:?}");
        assert!(times[8] >= PAUSE_MAX && times[8] < PAUSE_MAX * 2, "{times:?}");
        link.answered();
        link.ended(now);
        assert!(link.connects(now));
    }

    #[test]
    fn a_sender_that_does_not_greet_is_not_waited_for() {
        let (mut link, now) = (Link::new(1), Duration::from_secs(9));
        link.connected(now);
        assert!(link.awaits_greeting() && !link.is_open());
        assert_eq!(link.next_deadline(Duration::ZERO, PAUSE_MAX), Some(now + PAUSE_MAX));
        assert!(!link.is_ignored(now, PAUSE_MAX) && link.is_ignored(now + PAUSE_MAX, PAUSE_MAX));
        assert!(!link.is_ignored(now + PAUSE_MAX, PAUSE_MAX), "it is told once");
        assert!(!link.connects(now + PAUSE_MAX), "not before the driver has closed it");
    }
}
