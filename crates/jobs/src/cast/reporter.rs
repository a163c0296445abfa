//! Reports a running cast to an origin, on a thread of its own: the cast neither waits for it nor fails with it. An
//! origin that is down or does not answer gets the reports once it is back, or never.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use platter_api::CastStatus;
use platter_image::{IoContext, Result};
use platter_vfs::{OsVfs, Vfs};

use platter_client::OriginStore;
use platter_client::ServerOptions;
use platter_transport::to_hex;

/// Pause between two reports.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest time that the end of a cast waits for its last report.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Reports one cast.
pub(super) struct Reporter {
    shared: Arc<Shared>,
}

struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    /// The next status to report: only the latest counts.
    newest: Option<CastStatus>,
    is_ending: bool,
    has_ended: bool,
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock()
    }
}

impl Reporter {
    /// Starts a reporter for this origin.
    ///
    /// # Errors
    /// When the origin's options are invalid, or no thread can be started.
    pub(super) fn start(origin: &ServerOptions) -> Result<Self> {
        let origin = OriginStore::open(origin)?;
        let id = to_hex(&OsVfs.random_id().context(|| "choosing a name for a cast".into())?);
        let shared = Arc::new(Shared { slot: Mutex::default(), changed: Condvar::new() });
        let telling = Arc::clone(&shared);
        thread::Builder::new()
            .name("cast-report".into())
            .spawn(move || tell_until_end(&telling, |status| origin.tell_of_cast(&id, status)))
            .context(|| "starting a thread".into())?;
        Ok(Self { shared })
    }

    /// Sets the status to report. Never blocks.
    pub(super) fn tell(&self, status: CastStatus) {
        self.shared.slot().newest = Some(status);
        self.shared.changed.notify_all();
    }
}

/// Waits a moment for the last report; then the thread is left alone with it.
impl Drop for Reporter {
    fn drop(&mut self) {
        let mut slot = self.shared.slot();
        slot.is_ending = true;
        self.shared.changed.notify_all();
        self.shared.changed.wait_while_for(&mut slot, |slot| !slot.has_ended, FAREWELL_MAX);
    }
}

fn tell_until_end(shared: &Shared, tell: impl Fn(&CastStatus) -> Result<()>) {
    loop {
        let mut slot = shared.slot();
        while slot.newest.is_none() && !slot.is_ending {
            shared.changed.wait(&mut slot);
        }
        let Some(status) = slot.newest.take() else {
            slot.has_ended = true;
            shared.changed.notify_all();
            return;
        };
        drop(slot);
        // A failed report does not disturb the cast.
        let _ = tell(&status);
        let mut slot = shared.slot();
        shared.changed.wait_while_for(&mut slot, |slot| !slot.is_ending, PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use platter_image::Error;

    use super::*;
    use platter_client::ServerAddress;

    #[test]
    fn the_latest_status_is_reported_and_the_last_one_always() {
        let shared = Arc::new(Shared { slot: Mutex::default(), changed: Condvar::new() });
        let telling = Arc::clone(&shared);
        let (send, told) = mpsc::channel();
        thread::spawn(move || {
            tell_until_end(&telling, |status| {
                send.send(status.sent_bytes).ok();
                Err(Error::transient("nobody listens"))
            });
        });
        let reporter = Reporter { shared };
        let status = |sent_bytes| CastStatus { sent_bytes, ..CastStatus::default() };
        reporter.tell(status(1));
        assert_eq!(told.recv().unwrap(), 1);
        (2..100).for_each(|sent| reporter.tell(status(sent)));
        drop(reporter);
        assert_eq!(told.iter().last(), Some(99));
    }

    /// An origin that accepts a connection and never answers.
    #[test]
    fn a_hanging_origin_does_not_delay_the_cast() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let address = ServerAddress::Unix(socket);
        let options = ServerOptions { address, token: None, trust: platter_transport::Trust::System };
        let reporter = Reporter::start(&options).unwrap();
        reporter.tell(CastStatus::default());
        let shared = Arc::clone(&reporter.shared);
        drop(reporter);
        assert!(!shared.slot().has_ended, "only the thread still waits");
    }
}
