//! The nodes that ask for a cast of the hoard, and whether they are enough. Pure: the caller passes the time.
//!
//! A node asks several times a second until it is told to fetch, or where to join. A node that has not asked lately is gone.

use std::time::{Duration, Instant};

use platter_net::Family;

use super::subject::SubjectId;

/// How long a node waits for others. Nodes learn of a revision within about a second of each other.
const WINDOW: Duration = Duration::from_secs(3);
/// A node that has not asked for this long does not ask any more.
const SILENT: Duration = Duration::from_secs(2);
/// Most nodes that are gathered at once; further ones fetch.
const NODES_MAX: usize = 4096;

/// A cast that nodes may ask for: its subject, and the family in which they can receive it.
type CastId = (SubjectId, Family);

/// The decision about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Enough nodes ask. All of them have at least this revision.
    Start { since: u64 },
    /// Others may ask as well.
    Wait,
    /// There are too few.
    Fetch,
}

#[derive(Debug)]
struct Asking {
    cast: CastId,
    node: String,
    since: u64,
    first: Instant,
    last: Instant,
}

/// The nodes that wait for others.
#[derive(Debug, Default)]
pub(super) struct Gathering(Vec<Asking>);

impl Gathering {
    /// Decides about a node that lacks the subject of `cast` and has revision `since`. A cast needs `nodes_min` of them; 0: there is none.
    pub(super) fn ask(
        &mut self,
        nodes_min: usize,
        (cast, node, since): (CastId, &str, u64),
        now: Instant,
    ) -> Verdict {
        let passed = |from: Instant| now.saturating_duration_since(from);
        self.0.retain(|asking| passed(asking.last) < SILENT);
        if nodes_min == 0 {
            return Verdict::Fetch;
        }
        match self.0.iter_mut().position(|asking| asking.cast == cast && asking.node == node) {
            Some(at) if passed(self.0[at].first) >= WINDOW => {
                self.0.swap_remove(at);
                return Verdict::Fetch;
            }
            Some(at) => self.0[at].last = now,
            None if self.0.len() >= NODES_MAX => return Verdict::Fetch,
            None => self.0.push(Asking { cast, node: node.to_owned(), since, first: now, last: now }),
        }
        let same = self.0.iter().filter(|asking| asking.cast == cast);
        let since = same.clone().map(|asking| asking.since).min().unwrap_or(0);
        if same.count() < nodes_min {
            return Verdict::Wait;
        }
        self.0.retain(|asking| asking.cast != cast);
        Verdict::Start { since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CastId = ([1; 32], Family::Ipv4);
    const B: CastId = ([2; 32], Family::Ipv4);

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn a_cast_starts_when_enough_nodes_ask_for_the_same_at_the_same_time() {
        let (mut gathering, start) = (Gathering::default(), Instant::now());
        let mut ask = |cast, node: &str, since, time| gathering.ask(3, (cast, node, since), start + ms(time));
        assert_eq!(ask(A, "one", 7, 0), Verdict::Wait);
        assert_eq!(ask(A, "one", 7, 250), Verdict::Wait, "it counts once");
        assert_eq!(ask(A, "two", 4, 300), Verdict::Wait);
        assert_eq!(ask(B, "three", 7, 400), Verdict::Wait, "it lacks another revision");
        let other_family = (A.0, Family::Ipv6);
        assert_eq!(
            ask(other_family, "four", 7, 500),
            Verdict::Wait,
            "it could not receive the cast of these"
        );
        assert_eq!(ask(A, "three", 6, 1000), Verdict::Start { since: 4 }, "the oldest one");
        assert_eq!(ask(A, "four", 7, 1001), Verdict::Wait, "they are counted anew");
        assert_eq!(ask(B, "two", 7, 1002), Verdict::Wait);
    }

    #[test]
    fn too_few_nodes_fetch_after_a_while() {
        let (mut gathering, start) = (Gathering::default(), Instant::now());
        let mut ask = |node: &str, time| gathering.ask(3, (A, node, 0), start + ms(time));
        for time in (0..3000).step_by(250) {
            assert_eq!(ask("one", time), Verdict::Wait);
        }
        assert_eq!(ask("two", 2900), Verdict::Wait);
        assert_eq!(ask("one", 3000), Verdict::Fetch);
        assert_eq!(ask("three", 3001), Verdict::Wait, "the first one waits no more");
        assert_eq!(ask("four", 3002), Verdict::Start { since: 0 });
    }

    #[test]
    fn nodes_that_have_gone_do_not_count() {
        let (mut gathering, start) = (Gathering::default(), Instant::now());
        let mut ask = |node: &str, time| gathering.ask(2, (A, node, 0), start + ms(time));
        assert_eq!(ask("one", 0), Verdict::Wait);
        assert_eq!(ask("two", 2000), Verdict::Wait);
        assert_eq!(ask("one", 2100), Verdict::Start { since: 0 }, "it asks again");
    }

    #[test]
    fn casts_can_be_disabled_and_one_node_can_be_enough() {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        assert_eq!(gathering.ask(0, (A, "one", 0), now), Verdict::Fetch);
        assert_eq!(gathering.ask(1, (A, "one", 5), now), Verdict::Start { since: 5 });
    }
}
