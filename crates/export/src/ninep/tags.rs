//! The requests of a connection at the workers, by the client's tags, and the flushes that wait for them.
//!
//! Owns the order of replies: after the reply to its flush, a tag gets no reply, because the client then reuses it.
//! Requests also have serial numbers, so an abandoned request is never mistaken for its successor.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use platter_image::{Error, Result};

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// The tag will get no reply: the flush is answered at once.
    Now,
    /// The flush is answered after the request.
    Later,
}

struct Pending {
    serial: u64,
    /// The request changes nothing, so it can be abandoned after its start.
    is_read: bool,
    has_begun: bool,
    /// Tags of flushes that wait for the request.
    flushes: Vec<u16>,
}

#[derive(Default)]
struct State {
    pending: HashMap<u16, Pending>,
    serial: u64,
}

/// The requests of a connection at the workers.
#[derive(Default)]
pub(super) struct Tags(Mutex<State>);

impl Tags {
    /// Registers a request for a worker and returns its serial number.
    ///
    /// # Errors
    /// `Corrupt` when a request with this tag is already running.
    pub(super) fn insert(&self, tag: u16, is_read: bool) -> Result<u64> {
        let mut state = self.0.lock();
        state.serial += 1;
        let serial = state.serial;
        match state.pending.entry(tag) {
            Entry::Vacant(entry) => {
                entry.insert(Pending { serial, is_read, has_begun: false, flushes: Vec::new() });
                Ok(serial)
            }
            Entry::Occupied(_) => Err(Error::corrupt(format!("two requests at once have the tag {tag}"))),
        }
    }

    /// A worker takes the request. Returns false if it was abandoned and must not be executed.
    pub(super) fn begin(&self, tag: u16, serial: u64) -> bool {
        match self.0.lock().pending.get_mut(&tag) {
            Some(pending) if pending.serial == serial => {
                pending.has_begun = true;
                true
            }
            _ => false,
        }
    }

    /// The client flushes the request `old_tag`.
    pub(super) fn flush(&self, old_tag: u16, tag: u16) -> Flush {
        let mut state = self.0.lock();
        let Entry::Occupied(mut entry) = state.pending.entry(old_tag) else { return Flush::Now };
        let pending = entry.get_mut();
        if pending.has_begun && !pending.is_read {
            pending.flushes.push(tag);
            return Flush::Later;
        }
        // A flush that waited for it would be a flush of what has begun.
        entry.remove();
        Flush::Now
    }

    /// A request is finished. `post` adds its reply and those of its flushes after it, or nothing if the request was
    /// abandoned. No flush of the tag is answered meanwhile.
    pub(super) fn finish(&self, tag: u16, serial: u64, post: impl FnOnce(Option<Vec<u16>>)) {
        let mut state = self.0.lock();
        match state.pending.entry(tag) {
            Entry::Occupied(entry) if entry.get().serial == serial => post(Some(entry.remove().flushes)),
            _ => post(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(tags: &Tags, tag: u16, serial: u64) -> Option<Vec<u16>> {
        let mut posted = None;
        tags.finish(tag, serial, |flushes| posted = flushes);
        posted
    }

    #[test]
    fn what_has_not_begun_is_given_up() {
        let tags = Tags::default();
        let serial = tags.insert(7, false).unwrap();
        assert_eq!(tags.flush(7, 8), Flush::Now);
        assert!(!tags.begin(7, serial));
        // The tag's next request is another one.
        let next = tags.insert(7, false).unwrap();
        assert!(!tags.begin(7, serial));
        assert!(tags.begin(7, next));
        assert_eq!(finish(&tags, 7, serial), None);
        assert_eq!(finish(&tags, 7, next), Some(vec![]));
    }

    #[test]
    fn what_changes_something_is_waited_for_and_a_read_is_not() {
        let tags = Tags::default();
        let write = tags.insert(1, false).unwrap();
        let read = tags.insert(2, true).unwrap();
        assert!(tags.begin(1, write) && tags.begin(2, read));
        assert_eq!(tags.flush(1, 10), Flush::Later);
        assert_eq!(tags.flush(1, 11), Flush::Later);
        assert_eq!(tags.flush(2, 12), Flush::Now);
        assert_eq!(finish(&tags, 1, write), Some(vec![10, 11]));
        assert_eq!(finish(&tags, 2, read), None);
        assert_eq!(tags.flush(1, 13), Flush::Now);
    }

    #[test]
    fn two_requests_of_one_tag_end_the_connection() {
        let tags = Tags::default();
        tags.insert(7, false).unwrap();
        assert!(tags.insert(7, true).is_err());
    }
}
