//! Work for the threads of a cache, first come first served. All of it can be left out: readers do what nobody did.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

use super::fetch::Shared;

/// Most jobs that wait; what comes on top is left out.
const WAITING_MAX: usize = 512;

/// Something to do.
pub(crate) type Job = Box<dyn FnOnce(&Shared) + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// Jobs that wait for a thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// Adds a job; false when there is no room, or nobody to do it.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.lock();
        if state.closed || state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// The next job, as soon as there is one; `None` when the queue was closed.
    pub(super) fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        self.changed.wait_while(&mut state, |state| state.waiting.is_empty() && !state.closed);
        state.waiting.pop_front()
    }

    /// Ends all threads that wait; what was not begun is dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
