//! The catalog of an origin as it was a moment ago: whoever asks for names waits for nobody.
//!
//! A thread listens to the origin's events and asks for all versions when one says that they are others. It asks at most
//! so often, and when there are many versions, more rarely; events that come meanwhile are answered together. While the
//! origin is away, what was known is known on. Where events do not come, it asks now and then.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{IoContext, Result};
use platter_store::Version;

use super::client::next_pause;
use super::store::RemoteStore;

/// From one look at all versions to the next, at least; and so many times as long as a look takes.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
const LOOK_PAUSE_PART: u32 = 4;
/// Most bytes of a line of events; a longer one is taken for several.
const LINE_LENGTH_MAX: u64 = 64 << 10;

/// An origin's catalog, followed as long as this lives.
pub(crate) struct Watch(Arc<Followed>);

struct Followed {
    store: RemoteStore,
    seen: Mutex<Seen>,
    /// Held while versions are asked for: an answer never replaces a later one.
    looking: Mutex<()>,
}

#[derive(Default)]
struct Seen {
    generation: i64,
    versions: Arc<Vec<Version>>,
}

impl Watch {
    /// Looks once, and follows from then on.
    ///
    /// # Errors
    /// What the origin says; `Io` when no thread can be started.
    pub(crate) fn start(store: RemoteStore) -> Result<Self> {
        let followed = Followed { store, seen: Mutex::default(), looking: Mutex::default() };
        followed.look()?;
        let followed = Arc::new(followed);
        let weak = Arc::downgrade(&followed);
        let thread = thread::Builder::new().name("events".to_owned());
        thread.spawn(move || follow(&weak)).context(|| "starting a thread that listens".to_owned())?;
        Ok(Self(followed))
    }

    /// A number that is another one once the versions may be others.
    pub(crate) fn generation(&self) -> i64 {
        self.0.seen().generation
    }

    /// All versions.
    pub(crate) fn versions(&self) -> Arc<Vec<Version>> {
        self.0.seen().versions.clone()
    }

    /// Asks at once: for whoever has changed something himself.
    ///
    /// # Errors
    /// What the origin says.
    pub(crate) fn look(&self) -> Result<()> {
        self.0.look()
    }
}

impl Followed {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> Result<()> {
        let _one = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let versions = self.store.versions()?;
        let mut seen = self.seen();
        if *seen.versions != versions {
            *seen = Seen { generation: seen.generation + 1, versions: Arc::new(versions) };
        }
        Ok(())
    }
}

/// Listens, and after each end again, as long as somebody is interested.
fn follow(followed: &Weak<Followed>) {
    let mut pause = Duration::ZERO;
    while let Some(store) = followed.upgrade().map(|followed| followed.store.clone()) {
        if store.events().and_then(|events| listen(followed, events)).unwrap_or(false) {
            pause = Duration::ZERO;
        }
        pause = next_pause(pause);
        thread::sleep(pause);
        // What happened meanwhile, if it can be had; events may never come, from behind some proxy.
        let _ = followed.upgrade().map(|followed| followed.look());
    }
}

/// Follows events until they end; says whether there were any.
fn listen(followed: &Weak<Followed>, events: impl Read) -> Result<bool> {
    let mut reader = BufReader::new(events);
    let (mut line, mut any, mut changed) = (Vec::new(), false, false);
    while followed.strong_count() > 0 {
        line.clear();
        let mut limited = reader.by_ref().take(LINE_LENGTH_MAX);
        let length = limited.read_until(b'\n', &mut line);
        if length.context(|| "reading the events of an origin".to_owned())? == 0 {
            break;
        }
        changed |= is_change(&line);
        any |= changed;
        if changed && reader.buffer().is_empty() {
            changed = false;
            let started = Instant::now();
            let looked = followed.upgrade().map_or(Ok(()), |followed| followed.look());
            looked?;
            thread::sleep(LOOK_PAUSE.max(started.elapsed() * LOOK_PAUSE_PART));
        }
    }
    Ok(any)
}

/// Whether a line of server-sent events says that there are other versions, or may be.
fn is_change(line: &[u8]) -> bool {
    let name = line.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
    let names: [&[u8]; 5] = [b"version", b"forget", b"rename", b"listening", b"reset"];
    name.is_some_and(|name| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_tell_of_versions_are_told_from_others() {
        let changes: [&[u8]; 3] = [b"event: version\n", b"event:reset\r\n", b"event: listening\n"];
        assert!(changes.into_iter().all(is_change));
        let others: [&[u8]; 5] = [
            b"event: upload\n",
            b"event: edit-token\n",
            b"data: {\"kind\":\"version\"}\n",
            b":\n",
            b"version",
        ];
        assert!(!others.into_iter().any(is_change));
    }
}
