//! Senders that a receiver does not join: casts of another disk under the wanted name, and addresses that could not be joined.
//!
//! Owns the caller's decision about a cast ([`CastFilter`]). Anybody can announce anything, so every list is bounded, and an
//! entry ends by itself: none keeps the receiver from the right sender for ever.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::session::SessionId;
use crate::wire::announce::Announce;

/// A sender that could not be joined is not tried again for this long.
const AVOID: Duration = Duration::from_secs(2);
/// A join that failed after this time or later was slow.
const SLOW: Duration = Duration::from_secs(1);
/// After a slow join, all senders of that machine are avoided, at first for [`AVOID`], and twice as long after each further one, up to
/// this long: it may announce any number of senders that do not answer. Quick refusals cost nothing, and anybody can cause them by
/// announcing closed ports of a good machine.
const AVOID_MAX: Duration = Duration::from_secs(16);
/// A sender whose data is corrupt is not joined again for this long.
const DISTRUST: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are avoided at once.
const AVOIDED_MAX: usize = 64;
/// Maximum number of ignored senders that are reported.
pub(crate) const IGNORED_MAX: usize = 16;

type Check = dyn Fn(&Announce) -> Result<(), String> + Send + Sync;

/// Decides which casts of the wanted name may be joined. The default admits all whose addresses are of one family.
#[derive(Clone)]
pub struct CastFilter(Arc<Check>);

impl CastFilter {
    /// Makes a filter that admits a cast if `check` returns `Ok`; otherwise it returns the reason. It is called for every
    /// announcement that is heard while no cast is joined, so it must be fast, and must not change anything.
    pub fn new(check: impl Fn(&Announce) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn check(&self, announce: &Announce) -> Result<(), String> {
        announce.check_addresses()?;
        (self.0)(announce)
    }
}

impl Default for CastFilter {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl fmt::Debug for CastFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CastFilter")
    }
}

/// The senders that were not joined.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    ignored: Vec<SessionId>,
    /// The sender that is being joined, or is joined, if an announcement named it; and since when.
    current: Option<(SocketAddr, Duration)>,
    avoided: VecDeque<(SocketAddr, Duration)>,
    /// Machines that could not be joined, until when they are avoided, and for how long after the next failure.
    failed: VecDeque<(IpAddr, Duration, Duration)>,
}

impl Senders {
    /// Records that a cast is ignored. Returns whether to report it: each one is reported once, and not more than
    /// [`IGNORED_MAX`].
    pub(crate) fn ignore(&mut self, session: SessionId) -> bool {
        let is_new = self.ignored.len() < IGNORED_MAX && !self.ignored.contains(&session);
        if is_new {
            self.ignored.push(session);
        }
        is_new
    }

    /// Returns how many casts were ignored, at most [`IGNORED_MAX`].
    pub(crate) fn ignored(&self) -> usize {
        self.ignored.len()
    }

    /// Records that this sender is being joined.
    pub(crate) fn begin(&mut self, now: Duration, address: SocketAddr) {
        self.current = Some((address, now));
    }

    /// Forgets which sender is being joined, or is joined.
    pub(crate) fn forget(&mut self) {
        self.current = None;
    }

    /// Records that the sender could not be joined.
    pub(crate) fn fail(&mut self, now: Duration) {
        let Some((address, since)) = self.current.take() else { return };
        if now.saturating_sub(since) < SLOW {
            self.avoid(now, address, AVOID);
            return;
        }
        let machine = address.ip();
        let known = self.failed.iter().position(|(failed, ..)| *failed == machine);
        let time = known.and_then(|at| self.failed.remove(at)).map_or(AVOID, |(.., time)| time);
        if self.failed.len() >= AVOIDED_MAX {
            self.failed.pop_front();
        }
        self.failed.push_back((machine, now + time, (time * 2).min(AVOID_MAX)));
    }

    /// Records that the sender was joined.
    pub(crate) fn succeed(&mut self) {
        if let Some((address, _)) = self.current {
            self.failed.retain(|(failed, ..)| *failed != address.ip());
        }
    }

    /// Records that the sender's data is corrupt.
    pub(crate) fn distrust(&mut self, now: Duration) {
        if let Some((address, _)) = self.current.take() {
            self.avoid(now, address, DISTRUST);
        }
    }

    /// Records that this address should not be joined for some time.
    fn avoid(&mut self, now: Duration, address: SocketAddr, time: Duration) {
        self.avoided.retain(|(avoided, until)| *avoided != address && now < *until);
        if self.avoided.len() >= AVOIDED_MAX {
            self.avoided.pop_front();
        }
        self.avoided.push_back((address, now + time));
    }

    pub(crate) fn avoids(&self, now: Duration, address: SocketAddr) -> bool {
        self.avoided.iter().any(|(avoided, until)| *avoided == address && now < *until)
            || self.failed.iter().any(|(failed, until, _)| *failed == address.ip() && now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sender_is_reported_once_and_the_lists_are_bounded() {
        let mut senders = Senders::default();
        let reported = (0..1000u32).filter(|number| {
            let mut session = SessionId([0; 16]);
            session.0[..4].copy_from_slice(&(number / 2).to_le_bytes());
            senders.ignore(session)
        });
        assert_eq!(reported.count(), IGNORED_MAX);
        assert_eq!(senders.ignored(), IGNORED_MAX);
    }

    /// Joins this sender, which fails after a time.
    fn fail(senders: &mut Senders, now: Duration, address: SocketAddr, time: Duration) {
        senders.begin(now - time, address);
        senders.fail(now);
    }

    #[test]
    fn a_silent_machine_is_avoided_with_all_its_senders_and_longer_each_time() {
        let mut senders = Senders::default();
        let address = |host, port| SocketAddr::from(([10, 0, 0, host], port));
        let (rogue, mut now) = (address(1, 1), Duration::from_secs(9));
        for seconds in [2, 4, 8, 16, 16] {
            fail(&mut senders, now, rogue, SLOW);
            let last = now + Duration::from_millis(seconds * 1000 - 1);
            assert!(senders.avoids(last, address(1, 5)) && !senders.avoids(last, address(2, 1)), "{seconds}");
            now += Duration::from_secs(seconds);
            assert!(!senders.avoids(now, address(1, 1)));
        }
        senders.begin(now, rogue);
        senders.succeed();
        fail(&mut senders, now, rogue, SLOW);
        assert!(!senders.avoids(now + AVOID, rogue));
        for host in 0..1000u32 {
            fail(&mut senders, now, SocketAddr::new(IpAddr::from(host.to_be_bytes()), 1), SLOW);
        }
        assert_eq!(senders.failed.len(), AVOIDED_MAX);
    }

    #[test]
    fn a_quick_refusal_does_not_discredit_the_machine() {
        let mut senders = Senders::default();
        let (now, address) = (Duration::from_secs(9), |port| SocketAddr::from(([10, 0, 0, 1], port)));
        (0..1000).for_each(|port| fail(&mut senders, now, address(port), SLOW - Duration::from_millis(1)));
        assert!(senders.avoids(now, address(999)) && !senders.avoids(now, address(1000)));
        assert!(!senders.avoids(now + AVOID, address(999)));
    }

    #[test]
    fn an_address_is_avoided_for_a_while() {
        let mut senders = Senders::default();
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let now = Duration::from_secs(9);
        senders.avoid(now, address(1), AVOID);
        assert!(senders.avoids(now, address(1)) && !senders.avoids(now, address(2)));
        assert!(!senders.avoids(now + AVOID, address(1)));
        (0..1000).for_each(|port| senders.avoid(now, address(port), AVOID));
        assert_eq!(senders.avoided.len(), AVOIDED_MAX);
    }
}
