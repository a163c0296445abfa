//! Waits for sockets, or for a signal of another thread.
//!
//! It contains the event descriptor that worker threads ring, so that a network thread waits in only one
//! place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use platter_image::{Error, IoContext, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A bell that any thread may ring.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new() -> Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .context(|| "opening an event descriptor".into())?;
        Ok(Self(Arc::new(descriptor)))
    }

    /// Wakes the waiting thread. Several rings before it wakes count as one.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// A descriptor, and what to wait for on it.
pub(crate) struct Interest<'a> {
    pub(crate) descriptor: BorrowedFd<'a>,
    pub(crate) to_read: bool,
    pub(crate) to_write: bool,
}

/// Waits until a descriptor is ready, the bell rings, or the time is over. It does not return which; the
/// callers' sockets are non-blocking, so they just try.
///
/// # Errors
/// `Io`.
pub(crate) fn wait(bell: &Bell, interests: &[Interest<'_>], time: Duration) -> Result<()> {
    let mut descriptors = vec![PollFd::from_borrowed_fd(bell.0.as_fd(), PollFlags::IN)];
    for interest in interests {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.to_read);
        flags.set(PollFlags::OUT, interest.to_write);
        descriptors.push(PollFd::from_borrowed_fd(interest.descriptor, flags));
    }
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(Error::io("waiting for the network", error.into())),
    }
    if !descriptors[0].revents().is_empty() {
        bell.silence();
    }
    Ok(())
}
