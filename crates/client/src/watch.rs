//! A recent copy of an origin's catalog, so that queries for names need not wait.
//!
//! Listens to the origin's events, and requests all versions when an event reports a change. The pause between two
//! requests grows with the number of versions; one request covers all events that arrived meanwhile. While the origin
//! is down, the last reply is used. If no events arrive, it polls.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{ErrorKind, Result};
use platter_records::Version;

use super::listen::{Listener, listen};
use super::origin_store::OriginStore;

/// Shortest pause between two requests for all versions; and the pause as a multiple of a request's duration.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
const LOOK_PAUSE_PART: u32 = 4;

/// An origin's catalog, followed as long as this lives.
pub struct Watch(Arc<Followed>);

struct Followed {
    store: OriginStore,
    seen: Mutex<KnownVersions>,
    /// Held during a request, so that a reply never replaces a later one.
    looking: Mutex<()>,
}

#[derive(Default)]
struct KnownVersions {
    generation: i64,
    versions: Arc<Vec<Version>>,
}

impl Watch {
    /// Requests the versions once, and follows changes from then on. While the origin is down, a node that never saw
    /// versions starts without any.
    ///
    /// # Errors
    /// The origin's errors; `Io` when no thread can be started.
    pub fn start(store: OriginStore) -> Result<Self> {
        let events = store.clone();
        let followed = Followed { store, seen: Mutex::default(), looking: Mutex::default() };
        match followed.look() {
            Err(error) if error.kind() == ErrorKind::Transient && followed.store.remembers() => {}
            looked => looked?,
        }
        let followed = Arc::new(followed);
        listen(events, &followed)?;
        Ok(Self(followed))
    }

    /// A number that changes whenever the versions may have changed.
    pub fn generation(&self) -> i64 {
        self.0.seen().generation
    }

    /// All versions.
    pub fn versions(&self) -> Arc<Vec<Version>> {
        self.0.seen().versions.clone()
    }

    /// Requests the versions at once, for a caller that has changed something itself.
    ///
    /// # Errors
    /// The origin's errors.
    pub fn look(&self) -> Result<()> {
        self.0.look()
    }
}

impl Followed {
    fn seen(&self) -> MutexGuard<'_, KnownVersions> {
        self.seen.lock()
    }

    fn look(&self) -> Result<()> {
        let _one = self.looking.lock();
        let versions = self.store.versions()?;
        let mut seen = self.seen();
        if *seen.versions != versions {
            *seen = KnownVersions { generation: seen.generation + 1, versions: Arc::new(versions) };
        }
        Ok(())
    }
}

impl Listener for Followed {
    const EVENTS: &'static [&'static [u8]] = &[b"version", b"forget", b"rename"];

    fn heard(&self) -> Result<()> {
        let started = Instant::now();
        self.look()?;
        thread::sleep(LOOK_PAUSE.max(started.elapsed() * LOOK_PAUSE_PART));
        Ok(())
    }

    fn is_deaf(&self) {
        // Fetches changes that happened meanwhile, if possible.
        let _ = self.look();
    }
}
