//! Removes the files of a catalog.

use std::path::Path;

use platter_image::Result;

use crate::place::StorePlace;

/// Removes a catalog and the files that SQLite keeps beside it, because a stale journal must never be applied to a new
/// file. The catalog is removed first: without its journal it would be in an older state.
pub(crate) fn remove_catalog(place: &StorePlace, catalog: &Path) -> Result<()> {
    place.remove_if_there(catalog)?;
    place.sync_dir(place.dir())?;
    remove_journals(place, catalog)
}

/// Removes the files that SQLite keeps beside a catalog. No process has the catalog open.
pub(crate) fn remove_journals(place: &StorePlace, catalog: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut name = catalog.as_os_str().to_owned();
        name.push(suffix);
        place.remove_if_there(Path::new(&name))?;
    }
    place.sync_dir(place.dir())
}
