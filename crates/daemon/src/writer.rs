//! The right to write the store, taken when somebody wants to change something and given back a moment later, so that
//! other processes of this machine (a capture, the publishing of a live disk) can have it in between.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use platter_image::Result;
use platter_store::Store;

/// A store opened to be written, shared by all who write.
#[derive(Debug)]
pub(crate) struct SharedWriter {
    reader: Store,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    store: Arc<Store>,
    used: Instant,
}

impl SharedWriter {
    /// The writer of the store that `reader` reads; not opened yet.
    pub(crate) fn new(reader: Store) -> Self {
        Self { reader, kept: Mutex::new(None) }
    }

    /// The store to write to. Whoever holds it keeps the store's lock.
    ///
    /// # Errors
    /// `Transient` when another process writes; what opening says.
    pub(crate) fn lease(&self) -> Result<Arc<Store>> {
        let mut kept = self.kept.lock();
        // One whose write failed takes nothing more: another is opened, which checks what is there.
        if kept.as_ref().is_some_and(|kept| !is_usable(&kept.store)) {
            *kept = None;
        }
        let store = match kept.take() {
            Some(Kept { store, .. }) => store,
            None => Arc::new(Store::open_writer(self.reader.place())?),
        };
        *kept = Some(Kept { store: Arc::clone(&store), used: Instant::now() });
        Ok(store)
    }

    /// Makes a change that adds nothing to packs: with the writer if it is open, else under the lock for that moment.
    ///
    /// # Errors
    /// What `change` says.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let kept = self.kept.lock();
        match kept.as_ref().map(|kept| Arc::clone(&kept.store)) {
            Some(store) => {
                drop(kept);
                change(&store)
            }
            // Nobody here may open the writer meanwhile: the lock would be taken from ourselves.
            None => change(&self.reader),
        }
    }

    /// Gives the lock back if nobody has it leased, nor had for so long.
    pub(crate) fn give_back_idle(&self, idle_max: Duration) {
        let mut kept = self.kept.lock();
        let is_idle = |kept: &Kept| Arc::strong_count(&kept.store) == 1 && kept.used.elapsed() >= idle_max;
        if kept.as_ref().is_some_and(is_idle) {
            *kept = None;
        }
    }
}

/// Whether no write of it has failed. Asked under locks: it reads nothing from the disk.
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
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let writer = SharedWriter::new(Store::open_reader(&place).unwrap());
        let (first, second) = (writer.lease().unwrap(), writer.lease().unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        writer.give_back_idle(Duration::ZERO);
        assert_eq!(Store::open_writer(&place).err().map(|error| error.kind()), Some(ErrorKind::Transient));
        let image = "lab/a".parse().unwrap();
        let take = |store: &Store| store.take_edit_lock(&image, "me", 0);
        // There is no such image: what matters is who says so.
        assert_eq!(writer.change(take).unwrap_err().kind(), ErrorKind::Missing);
        drop(second);
        writer.give_back_idle(Duration::from_secs(3600));
        assert!(Store::open_writer(&place).is_err());
        writer.give_back_idle(Duration::ZERO);
        drop(Store::open_writer(&place).unwrap());
        assert_eq!(writer.change(take).unwrap_err().kind(), ErrorKind::Missing);
    }
}
