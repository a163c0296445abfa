//! The job queue of a cache's threads, first in, first out. Jobs are optional: readers do the work of jobs
//! that did not run.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

use super::fetch::Shared;

/// The most jobs that wait; further jobs are dropped.
const WAITING_MAX: usize = 512;

/// Work for a thread.
pub(crate) type Job = Box<dyn FnOnce(&Shared) + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// The jobs that wait for a thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// Adds a job; `false` when the queue is full or closed.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for the next job; `None` when the queue is closed.
    pub(super) fn pop(&self) -> Option<Job> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting.is_empty() && !state.closed);
        state.waiting.pop_front()
    }

    /// Wakes all threads so that they end, and drops the waiting jobs.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        drop(dropped);
    }
}
