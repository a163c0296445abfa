//! Removes a catalog's files.

use std::path::Path;

use platter_image::Result;

use crate::place::StorePlace;

/// Removes a catalog and what SQLite keeps beside it: a stale log must never be applied to a new file. The catalog goes
/// first: without its log it would be an older one.
pub(crate) fn remove_catalog(place: &StorePlace, catalog: &Path) -> Result<()> {
    place.remove_if_there(catalog)?;
    place.sync_dir(place.dir())?;
    remove_journals(place, catalog)
}

/// Removes what SQLite keeps beside a catalog that nobody has open.
pub(crate) fn remove_journals(place: &StorePlace, catalog: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut name = catalog.as_os_str().to_owned();
        name.push(suffix);
        place.remove_if_there(Path::new(&name))?;
    }
    place.sync_dir(place.dir())
}
