//! The catalog of an origin as it was a moment ago, so that questions for names are answered without waiting.
//!
//! It listens to the origin's events, and asks for all versions when an event says that they changed. Between two
//! questions it waits, the longer the more versions there are; one question answers all events that came meanwhile.
//! While the origin is away, the last answer stands. Where no events come, it asks now and then.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{ErrorKind, Result};
use platter_records::Version;

use super::listen::{Listener, listen};
use super::origin_store::OriginStore;

/// From one look at all versions to the next, at least; and so many times as long as a look takes.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
const LOOK_PAUSE_PART: u32 = 4;

/// An origin's catalog, followed as long as this lives.
pub struct Watch(Arc<Followed>);

struct Followed {
    store: OriginStore,
    seen: Mutex<KnownVersions>,
    /// Held while versions are asked for: an answer never replaces a later one.
    looking: Mutex<()>,
}

#[derive(Default)]
struct KnownVersions {
    generation: i64,
    versions: Arc<Vec<Version>>,
}

impl Watch {
    /// Looks once, and follows from then on. A node that never heard of any versions begins without, while the origin is away.
    ///
    /// # Errors
    /// What the origin says; `Io` when no thread can be started.
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

    /// A number that is another one once the versions may be others.
    pub fn generation(&self) -> i64 {
        self.0.seen().generation
    }

    /// All versions.
    pub fn versions(&self) -> Arc<Vec<Version>> {
        self.0.seen().versions.clone()
    }

    /// Asks at once, for a caller that has changed something itself.
    ///
    /// # Errors
    /// What the origin says.
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
        // What happened meanwhile, if it can be had.
        let _ = self.look();
    }
}
