//! An order to pause: every session of a server stops between two requests, so that another process can continue them.
//!
//! Owns the descriptor that wakes the threads that wait for clients. A pause loses nothing: it can be lifted, and every
//! session continues where it stopped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_image::{IoContext, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An order to pause, shared by the servers of a process.
#[derive(Debug)]
pub struct Pause {
    ordered: AtomicBool,
    /// Readable while the order stands.
    wake: OwnedFd,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There are bytes to read, or the client has disconnected.
    Ready,
    /// A pause was ordered. There may also be bytes to read.
    Paused,
    /// The time is over.
    TimedOut,
}

impl Pause {
    /// Starts without an order.
    ///
    /// # Errors
    /// `Io` when there are too many open files.
    pub fn new() -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(io::Error::from).context(|| "making an event descriptor".into())?;
        Ok(Self { ordered: AtomicBool::new(false), wake })
    }

    /// Orders a pause.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::SeqCst);
        // It fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Lifts the order.
    pub fn lift(&self) {
        self.ordered.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Whether a pause is ordered.
    pub fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::SeqCst)
    }

    /// Waits for `time` or until a pause is ordered. Returns whether one is ordered.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn wait_for_order(&self, time: Duration) -> Result<bool> {
        let woken = self.wait(&self.wake, Some(time));
        woken.context(|| "waiting for an order".into())?;
        Ok(self.is_ordered())
    }

    /// Waits until `descriptor` can be read, a pause is ordered, or `time` is over.
    ///
    /// # Errors
    /// As `poll`; never `Interrupted`.
    pub(crate) fn wait(&self, descriptor: &impl AsFd, time: Option<Duration>) -> io::Result<Woken> {
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut polled = [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(descriptor, PollFlags::IN)];
        loop {
            match poll(&mut polled, time.as_ref()) {
                Ok(0) => return Ok(Woken::TimedOut),
                Ok(_) if !polled[0].revents().is_empty() => return Ok(Woken::Paused),
                Ok(_) => return Ok(Woken::Ready),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
