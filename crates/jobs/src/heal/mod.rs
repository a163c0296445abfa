//! Heals a store: blocks that it lost are taken from other holders (`Store::heal`).
//!
//! - `holders`: the kinds of holders, each as a source of blocks

mod holders;

use std::path::PathBuf;

use platter_fetch::{OpenStore, StoreLocation};
use platter_image::Result;
use platter_store::{HealReport, HealSource, Store};

use crate::{OverlayBases, Progress};
use holders::open;

/// Somebody who may have what a store lost.
#[derive(Clone, Debug)]
pub enum Holder {
    /// Another store or an origin.
    Store(StoreLocation),
    /// A directory of this machine: a store, the cache of a node that is stopped, or a replica of the hoard.
    Directory(PathBuf),
    /// A block device or a raw file that still has the contents of a version.
    Disk(PathBuf),
}

/// Heals a store from these holders, in this order.
///
/// # Errors
/// When no holder can be opened; `Refused` for an origin's store; `Transient` when another process writes the store for too long;
/// as [`Store::heal`].
pub fn heal(
    store: &StoreLocation,
    holders: &[Holder],
    bases: OverlayBases<'_>,
    progress: &dyn Progress,
) -> Result<HealReport> {
    let place = store.local("healing a store")?;
    let reader = OpenStore::open_reader(store)?;
    let mut sources: Vec<Box<dyn HealSource>> = Vec::new();
    let mut unopened = None;
    for holder in holders {
        match open(holder, reader.domain()?) {
            Ok(opened) => sources.extend(opened),
            Err(error) => {
                progress.note(&format!("not used: {}", error.with_causes()));
                unopened.get_or_insert(error);
            }
        }
    }
    if let Some(error) = unopened.filter(|_| sources.is_empty()) {
        return Err(error);
    }
    let store = Store::open_writer(place)?;
    progress.begin("healing", 0);
    store.heal(&mut sources, &|| bases(place.dir()))
}
