//! Periodic work of an origin: finds changes of the catalog, ends abandoned uploads, and releases the store's lock.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::Result;
use platter_records::History;

use crate::config::{UPLOAD_IDLE_MAX, WATCH_PAUSE, WRITER_IDLE_MAX};
use crate::events::events_of;
use crate::origin::Origin;

/// State of the catalog at the last check.
#[derive(Debug)]
struct SeenCatalog {
    generation: i64,
    /// Number of the last change.
    last: u64,
    /// Epoch and revision of the hoard.
    hoard: (String, u64),
}

/// Runs until the origin ends.
pub(crate) async fn keep_watch(origin: Arc<Origin>) {
    let mut ending = origin.ending.clone();
    let seen = Arc::new(Mutex::new(None));
    while !*ending.borrow() {
        let (shared, seen) = (Arc::clone(&origin), Arc::clone(&seen));
        // If the pool is full, the next turn does this work.
        let _ = origin.pool.run(move || look(&shared, &mut seen.lock())).await;
        tokio::select! {
            () = tokio::time::sleep(WATCH_PAUSE) => {}
            () = origin.changed.notified() => {}
            _ = ending.changed() => {}
        }
    }
}

fn look(origin: &Origin, seen: &mut Option<SeenCatalog>) -> Result<()> {
    origin.writer.give_back_idle(WRITER_IDLE_MAX);
    for (id, owner) in origin.uploads.end_idle(UPLOAD_IDLE_MAX) {
        origin.tell_of_upload(&id, &owner, "left");
    }
    origin.uploads.discard_old(&origin.store)?;
    if let Some(now) = look_at_catalog(origin, seen.as_ref())? {
        *seen = Some(now);
    }
    Ok(())
}

/// Adds the events of all changes of the catalog. `None` when nothing has changed.
fn look_at_catalog(origin: &Origin, seen: Option<&SeenCatalog>) -> Result<Option<SeenCatalog>> {
    let store = &origin.store;
    let generation = store.generation()?;
    let Some(before) = seen else {
        // Changes before the origin began are no events.
        let (last, hoard) = (store.last_change()?, store.hoard_revision()?);
        count(origin)?;
        return Ok(Some(SeenCatalog { generation, last, hoard }));
    };
    if generation == before.generation {
        return Ok(None);
    }
    let History { changes, last, .. } = store.changes_after(before.last, usize::MAX)?;
    let hoard = store.hoard_revision()?;
    let revision = (hoard != before.hoard).then_some(hoard.1);
    events_of(store, &changes, revision)?.into_iter().for_each(|what| origin.events.add(what));
    count(origin)?;
    Ok(Some(SeenCatalog { generation, last, hoard }))
}

fn count(origin: &Origin) -> Result<()> {
    origin.metrics.images.set(origin.store.images()?.len() as u64);
    origin.metrics.versions.set(origin.store.versions()?.len() as u64);
    Ok(())
}
