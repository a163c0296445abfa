//! Tells an origin of a cast while it runs, on a thread of its own: a cast neither waits for it nor fails with it. An origin
//! that is away, or does not answer, hears of the cast when it is back, or never.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use platter_api::CastStatus;
use platter_image::{IoContext, Result};
use platter_vfs::{OsVfs, Vfs};

use platter_client::OriginStore;
use platter_client::ServerOptions;

/// From one report to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the end of a cast waits for its last report.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What tells of one cast.
pub(super) struct Reporter {
    shared: Arc<Shared>,
    told: Instant,
}

struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    /// What is to be told next: only the newest counts.
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
    /// One that tells that origin.
    ///
    /// # Errors
    /// When the origin's options cannot be used, or there are no threads.
    pub(super) fn start(origin: &ServerOptions) -> Result<Self> {
        let origin = OriginStore::open(origin)?;
        let id = OsVfs.random_id().context(|| "choosing a name for a cast".into())?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let shared = Arc::new(Shared { slot: Mutex::default(), changed: Condvar::new() });
        let telling = Arc::clone(&shared);
        thread::Builder::new()
            .name("cast-report".into())
            .spawn(move || tell_until_end(&telling, |status| origin.tell_of_cast(&id, status)))
            .context(|| "starting a thread".into())?;
        Ok(Self { shared, told: Instant::now() })
    }

    /// Whether something was told a moment ago: then it is not worth the work yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.told.elapsed() < PAUSE
    }

    /// Something to tell. Never waits.
    pub(super) fn tell(&mut self, status: CastStatus) {
        self.told = Instant::now();
        self.shared.slot().newest = Some(status);
        self.shared.changed.notify_all();
    }
}

/// The last report gets a moment; then the thread is left alone with it.
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
        // Nobody there, or nobody who wants to know: the cast goes on.
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
    fn the_newest_is_told_and_the_last_always() {
        let shared = Arc::new(Shared { slot: Mutex::default(), changed: Condvar::new() });
        let telling = Arc::clone(&shared);
        let (send, told) = mpsc::channel();
        thread::spawn(move || {
            tell_until_end(&telling, |status| {
                send.send(status.sent_bytes).ok();
                Err(Error::transient("nobody listens"))
            });
        });
        let mut reporter = Reporter { shared, told: Instant::now() };
        let status = |sent_bytes| CastStatus { sent_bytes, ..CastStatus::default() };
        reporter.tell(status(1));
        assert_eq!(told.recv().unwrap(), 1);
        (2..100).for_each(|sent| reporter.tell(status(sent)));
        drop(reporter);
        assert_eq!(told.iter().last(), Some(99));
    }

    /// An origin that takes a connection and says nothing.
    #[test]
    fn an_origin_that_hangs_keeps_nobody_long() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let address = ServerAddress::Unix(socket);
        let options = ServerOptions { address, token: None, trust: platter_transport::Trust::System };
        let mut reporter = Reporter::start(&options).unwrap();
        reporter.tell(CastStatus::default());
        let shared = Arc::clone(&reporter.shared);
        drop(reporter);
        assert!(!shared.slot().has_ended, "the thread still waits, nobody else does");
    }
}
