//! When the client of an upload was last heard, and whether it can still send what the upload has promised. The upload and its promises
//! share it, so that a promise never holds an upload.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::{UPLOAD_LEFT, UPLOAD_STALE};

/// The client of an upload.
#[derive(Debug)]
pub(super) struct Activity {
    last: Mutex<Last>,
    /// Nothing more is expected from it: the upload has ended, or has broken a promise.
    is_over: AtomicBool,
}

/// Time of the last request, and the connections of the requests.
#[derive(Debug)]
struct Last {
    at: Instant,
    over: Vec<Weak<()>>,
}

impl Last {
    fn has_hung_up(&self) -> bool {
        !self.over.is_empty() && self.over.iter().all(|connection| connection.strong_count() == 0)
    }
}

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: Mutex::new(Last { at: now, over: Vec::new() }), is_over: AtomicBool::new(false) }
    }

    /// Notes a request, with its connection if that is known.
    pub(super) fn note(&self, connection: Option<&Weak<()>>, now: Instant) {
        let mut last = self.last.lock();
        last.at = now;
        if let Some(connection) = connection.filter(|new| !last.over.iter().any(|old| old.ptr_eq(new))) {
            last.over.retain(|connection| connection.strong_count() > 0);
            last.over.push(connection.clone());
        }
    }

    /// Time since the last request.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last.lock().at)
    }

    /// Whether the client has presumably gone: one that was cut off or ended begins another upload.
    pub(super) fn is_left(&self, now: Instant) -> bool {
        let idle = self.idle(now);
        idle >= UPLOAD_STALE || idle >= UPLOAD_LEFT && self.last.lock().has_hung_up()
    }

    /// From now on, nobody relies on the upload.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether the client is expected to send more.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        !self.is_over.load(Ordering::Relaxed)
            && self.idle(now) < UPLOAD_STALE
            && !self.last.lock().has_hung_up()
    }
}
