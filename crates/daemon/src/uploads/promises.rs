//! Promises: which blocks uploads under way were asked to send and have not sent yet. Another upload that has such a block need not
//! send it, too, so captures of related disks at the same time bring each block once.
//!
//! A promise is broken when its upload ends, when its client is silent or gone, or after [`PROMISE_KEPT`]; in the last case nobody relies
//! on that upload again. Whoever relies on a promise learns that before it publishes. Never decides who may use a block: only uploads that may read everything take part.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use platter_image::BlockId;

use super::activity::Activity;
use crate::config::{PROMISE_KEPT, PROMISES_MAX};

/// All promises of an origin.
#[derive(Debug, Default)]
pub(super) struct Promises(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    promises: HashMap<BlockId, Promise>,
    /// When those that no longer count were last removed.
    purged: Option<Instant>,
}

#[derive(Debug)]
struct Promise {
    /// Of the upload that made it. The upload alone holds it, so it is gone with the upload.
    by: Weak<Activity>,
    since: Instant,
}

/// Who sends a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The upload that asks.
    Send,
    /// Another one.
    Promised,
}

impl Promise {
    /// Returns whether it may still be kept.
    fn counts(&self, now: Instant) -> bool {
        let Some(by) = self.by.upgrade() else { return false };
        if now.saturating_duration_since(self.since) >= PROMISE_KEPT {
            by.end();
        }
        by.may_send(now)
    }
}

impl Promises {
    /// Decides whether the upload with this activity sends a block that the store needs. If so, it has promised that. A promise that is
    /// repeated counts from its first time.
    pub(super) fn ask(&self, id: &BlockId, asker: &Arc<Activity>, now: Instant) -> Answer {
        let mut table = self.0.lock();
        if let Some(promise) = table.promises.get(id) {
            let is_own = std::ptr::eq(promise.by.as_ptr(), Arc::as_ptr(asker));
            match (is_own, promise.counts(now)) {
                (true, _) => return Answer::Send,
                (false, true) => return Answer::Promised,
                (false, false) => {}
            }
        }
        let is_full = table.promises.len() >= PROMISES_MAX;
        if is_full && table.purged.is_none_or(|time| now.saturating_duration_since(time) >= PROMISE_KEPT) {
            table.promises.retain(|_, promise| promise.counts(now));
            table.purged = Some(now);
        }
        if table.promises.len() < PROMISES_MAX {
            table.promises.insert(*id, Promise { by: Arc::downgrade(asker), since: now });
        }
        Answer::Send
    }

    /// These blocks were sent.
    pub(super) fn keep(&self, ids: impl Iterator<Item = BlockId>) {
        let mut table = self.0.lock();
        ids.for_each(|id| drop(table.promises.remove(&id)));
    }

    /// Returns whether an upload may still send this block.
    pub(super) fn is_promised(&self, id: &BlockId, now: Instant) -> bool {
        self.0.lock().promises.get(id).is_some_and(|promise| promise.counts(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::UPLOAD_STALE;

    const ID: BlockId = BlockId([7; 32]);

    fn two(now: Instant) -> [Arc<Activity>; 2] {
        [Arc::new(Activity::new(now)), Arc::new(Activity::new(now))]
    }

    /// Seconds after the start.
    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_promise_is_broken_by_its_time_even_if_it_is_repeated() {
        let (promises, start) = (Promises::default(), Instant::now());
        let [first, second] = two(start);
        assert_eq!(promises.ask(&ID, &first, start), Answer::Send);
        for tenth in (0..300).step_by(100) {
            let now = after(start, f64::from(tenth) / 10.0);
            first.note(None, now);
            assert_eq!(promises.ask(&ID, &first, now), Answer::Send);
            assert_eq!(promises.ask(&ID, &second, now), Answer::Promised);
            assert!(promises.is_promised(&ID, now));
        }
        let late = start + PROMISE_KEPT;
        first.note(None, late);
        assert!(!promises.is_promised(&ID, late));
        assert_eq!(promises.ask(&ID, &second, late), Answer::Send);
        let other = BlockId([8; 32]);
        assert_eq!(promises.ask(&other, &first, late), Answer::Send);
        assert_eq!(promises.ask(&other, &second, late), Answer::Send, "nobody relies on the first again");
    }

    #[test]
    fn a_promise_ends_with_its_upload_and_with_a_silent_client() {
        let (promises, start) = (Promises::default(), Instant::now());
        let [first, second] = two(start);
        assert_eq!(promises.ask(&ID, &first, start), Answer::Send);
        assert!(promises.is_promised(&ID, start + UPLOAD_STALE - Duration::from_millis(1)));
        assert!(!promises.is_promised(&ID, start + UPLOAD_STALE));
        first.note(None, start + UPLOAD_STALE);
        assert!(promises.is_promised(&ID, start + UPLOAD_STALE), "it is heard again");
        drop(first);
        assert_eq!(promises.ask(&ID, &second, start), Answer::Send);
        second.end();
        assert!(!promises.is_promised(&ID, start));
    }

    #[test]
    fn a_promise_ends_with_the_connections_of_its_client() {
        let (promises, start) = (Promises::default(), Instant::now());
        let [first, second] = two(start);
        let connection = Arc::new(());
        first.note(Some(&Arc::downgrade(&connection)), start);
        assert_eq!(promises.ask(&ID, &first, start), Answer::Send);
        assert_eq!(promises.ask(&ID, &second, start), Answer::Promised);
        drop(connection);
        assert_eq!(promises.ask(&ID, &second, start), Answer::Send);
    }
}
