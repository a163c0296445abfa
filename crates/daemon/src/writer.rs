//! The store's writer lock: taken for a change, and released shortly after it, so that other processes of this machine
//! (a capture, the publishing of a live disk) can take it in between.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_image::{Error, Result};
use platter_records::Actor;
use platter_store::Store;

use crate::predecessor::Predecessor;

/// A store opened for writing, shared by all requests that write.
#[derive(Debug)]
pub(crate) struct SharedWriter {
    reader: Store,
    kept: Mutex<Option<OpenWriter>>,
    /// A server that may still hold the store's lock.
    predecessor: Mutex<Option<Predecessor>>,
    /// A successor may have the lock.
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct OpenWriter {
    store: Arc<Store>,
    used: Instant,
}

impl SharedWriter {
    /// Creates the writer of the store that `reader` reads. Opens nothing yet.
    pub(crate) fn new(reader: Store) -> Self {
        let (kept, predecessor) = (Mutex::new(None), Mutex::new(None));
        Self { reader, kept, predecessor, is_closed: AtomicBool::new(false) }
    }

    /// Whoever wants to write waits until that server has released the lock.
    pub(crate) fn wait_for(&self, predecessor: Predecessor) {
        *self.predecessor.lock() = Some(predecessor);
    }

    /// From now on nothing is changed here any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether [`SharedWriter::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// # Errors
    /// `Transient` when a successor may have the lock.
    fn check_open(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(Error::transient("another server has taken over: send the request again")),
            false => Ok(()),
        }
    }

    /// # Errors
    /// `Transient` when a server that was replaced keeps the lock for too long.
    fn wait_for_lock(&self) -> Result<()> {
        let mut predecessor = self.predecessor.lock();
        predecessor.as_ref().map_or(Ok(()), Predecessor::wait)?;
        *predecessor = None;
        Ok(())
    }

    /// As [`SharedWriter::lease`], for a change that a follower or a replaced store does not accept.
    ///
    /// # Errors
    /// `Refused` when it is one; as [`SharedWriter::lease`].
    pub(crate) fn lease_for_change(&self) -> Result<Arc<Store>> {
        self.reader.standing()?.refusal().map_or(Ok(()), Err)?;
        self.lease()
    }

    /// Returns the store, opened for writing. The store's lock is held while the caller keeps the result.
    ///
    /// # Errors
    /// `Transient` when another process writes; the errors of opening.
    pub(crate) fn lease(&self) -> Result<Arc<Store>> {
        self.wait_for_lock()?;
        let mut kept = self.kept.lock();
        self.check_open()?;
        // A store whose write failed accepts no further writes. It is opened again, which checks its contents.
        if kept.as_ref().is_some_and(|kept| !is_usable(&kept.store)) {
            *kept = None;
        }
        let store = match kept.take() {
            Some(OpenWriter { store, .. }) => store,
            None => Arc::new(Store::open_writer(self.reader.place())?),
        };
        *kept = Some(OpenWriter { store: Arc::clone(&store), used: Instant::now() });
        Ok(store)
    }

    /// Makes a change that adds nothing to packs, as `by`: through the open writer if there is one, otherwise under a lock that
    /// is held only for this change.
    ///
    /// # Errors
    /// The errors of `change`.
    pub(crate) fn change<T>(&self, by: &Actor, change: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        self.wait_for_lock()?;
        let kept = self.kept.lock();
        self.check_open()?;
        match kept.as_ref().map(|kept| Arc::clone(&kept.store)) {
            Some(store) => {
                drop(kept);
                change(&store.acting_as(by.clone()))
            }
            // `kept` stays locked: opening the writer now would compete with this change for the store's lock.
            None => change(&self.reader.acting_as(by.clone())),
        }
    }

    /// Releases the store's lock if it is not leased, and was not leased for this long. True if it is not held any more.
    pub(crate) fn give_back_idle(&self, idle_max: Duration) -> bool {
        let mut kept = self.kept.lock();
        let is_idle =
            |kept: &OpenWriter| Arc::strong_count(&kept.store) == 1 && kept.used.elapsed() >= idle_max;
        if kept.as_ref().is_some_and(is_idle) {
            *kept = None;
        }
        kept.is_none()
    }
}

/// Whether no write to this store has failed. Called under locks, so it reads nothing from the disk.
pub(crate) fn is_usable(store: &Store) -> bool {
    store.takes_writes()
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;
    use platter_store::StorePlace;

    use super::*;

    #[test]
    fn the_lock_is_held_while_it_is_leased_and_not_longer() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store")).with_lock_wait(Some(Duration::ZERO));
        Store::init(&place).unwrap();
        let writer = SharedWriter::new(Store::open_reader(&place).unwrap());
        let (first, second) = (writer.lease().unwrap(), writer.lease().unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        writer.give_back_idle(Duration::ZERO);
        assert_eq!(Store::open_writer(&place).err().map(|error| error.kind()), Some(ErrorKind::Transient));
        let image = "lab/a".parse().unwrap();
        let take = |store: &Store| store.take_edit_lock(&image, "me", 0);
        // The image does not exist: the test only cares which store answers.
        assert_eq!(writer.change(&Actor::default(), take).unwrap_err().kind(), ErrorKind::Missing);
        drop(second);
        writer.give_back_idle(Duration::from_secs(3600));
        assert!(Store::open_writer(&place).is_err());
        writer.give_back_idle(Duration::ZERO);
        drop(Store::open_writer(&place).unwrap());
        assert_eq!(writer.change(&Actor::default(), take).unwrap_err().kind(), ErrorKind::Missing);
    }
}
