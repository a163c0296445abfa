//! Periodic work of an origin: finds changes of the catalog, ends abandoned uploads, and releases the store's lock.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::Result;

use crate::config::{UPLOAD_IDLE_MAX, WATCH_PAUSE, WRITER_IDLE_MAX};
use crate::events::Catalog;
use crate::origin::Origin;

/// The catalog as of the last look.
#[derive(Debug, Default)]
struct Seen {
    generation: Option<i64>,
    catalog: Catalog,
}

/// Runs until the origin ends.
pub(crate) async fn keep_watch(origin: Arc<Origin>) {
    let mut ending = origin.ending.clone();
    let seen = Arc::new(Mutex::new(Seen::default()));
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

fn look(origin: &Origin, seen: &mut Seen) -> Result<()> {
    origin.writer.give_back_idle(WRITER_IDLE_MAX);
    for (id, owner) in origin.uploads.end_idle(UPLOAD_IDLE_MAX) {
        origin.tell_of_upload(&id, &owner, "left");
    }
    origin.uploads.discard_old(&origin.store)?;
    if let Some(now) = look_at_catalog(origin, seen)? {
        *seen = now;
    }
    Ok(())
}

/// Reports the changes of the catalog as events. `None` when nothing changed.
fn look_at_catalog(origin: &Origin, seen: &Seen) -> Result<Option<Seen>> {
    let generation = Some(origin.store.generation()?);
    if generation == seen.generation {
        return Ok(None);
    }
    let catalog = Catalog::of(&origin.store)?;
    // The first look only records the state: everything in it happened before the origin began.
    if seen.generation.is_some() {
        catalog.changes_since(&seen.catalog).into_iter().for_each(|what| origin.events.add(what));
    }
    let (images, versions) = catalog.counts();
    origin.metrics.images.set(images as u64);
    origin.metrics.versions.set(versions as u64);
    Ok(Some(Seen { generation, catalog }))
}
