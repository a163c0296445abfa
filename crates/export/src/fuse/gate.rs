//! How the threads of a mount stop between two requests.
//!
//! A thread that waits for the kernel cannot be woken but by a request, and one that was stopped after it had read a
//! request would lose it. So nothing is stopped: each thread comes here after it has replied, and stays while the gate is
//! closed. Whoever closes it sends requests (`statfs`) until every thread has come. A request then lies either in the
//! kernel's queue or has its reply.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A thread that was asked for something comes this soon.
const COMING_TIME: Duration = Duration::from_millis(1);

/// See above.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_closed: AtomicBool,
    waiting: Mutex<usize>,
    changed: Condvar,
}

/// A request that is being answered.
pub(super) struct Turn<'a>(&'a Gate);

impl Gate {
    /// A thread begins a request. When the turn is dropped, after the reply, it waits at the gate.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn(self)
    }

    /// Keeps every thread that comes, and calls `wake` until so many have come. False when they have not in that time.
    pub(super) fn close(&self, threads: usize, time: Duration, wake: impl Fn()) -> bool {
        self.is_closed.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + time;
        loop {
            let mut waiting = self.waiting.lock();
            if *waiting < threads {
                self.changed.wait_for(&mut waiting, COMING_TIME);
            }
            match *waiting {
                all if all >= threads => return true,
                _ if Instant::now() >= deadline => return false,
                _ => drop(waiting),
            }
            wake();
        }
    }

    /// Lets them go on.
    pub(super) fn open(&self) {
        let _waiting = self.waiting.lock();
        self.is_closed.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let gate = self.0;
        if !gate.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let mut waiting = gate.waiting.lock();
        *waiting += 1;
        gate.changed.notify_all();
        while gate.is_closed.load(Ordering::SeqCst) {
            gate.changed.wait(&mut waiting);
        }
        *waiting -= 1;
    }
}
