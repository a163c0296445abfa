//! Stops the threads of a mount between two requests.
//!
//! Only a request wakes a thread that waits for the kernel, and a thread that was stopped after it read a request would
//! lose that request. So no thread is interrupted: each thread passes this gate after every reply, and waits here while
//! the gate is closed. Whoever closes the gate causes requests (`statfs`) until all threads have arrived. Every request
//! is then either in the kernel's queue or answered.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time in which a thread usually arrives after it got a request.
const COMING_TIME: Duration = Duration::from_millis(1);

/// The gate, see above.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_closed: AtomicBool,
    waiting: Mutex<usize>,
    changed: Condvar,
}

/// A request under way.
pub(super) struct Turn<'a>(&'a Gate);

impl Gate {
    /// Begins a request. When the returned value is dropped, after the reply, the thread passes the gate.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn(self)
    }

    /// Closes the gate, and calls `wake` until `threads` threads wait at it. Returns false if that takes longer than
    /// `time`.
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

    /// Opens the gate.
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
