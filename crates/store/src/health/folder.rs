//! The folder with the files of observations: `docs/formats/health.md`.
//!
//! A file gets a name that was never used, is synced, and never changes: any number of processes can add files at once without a
//! lock. Merging and lifting remove files. Only the holder of the store's lock does that, after the replacement is durable. A
//! process that lists the folder meanwhile finds the old file, the new file or both, with the same contents.

use std::collections::BTreeSet;

use platter_image::{IoContext, Result};
use platter_vfs::{OpenMode, read_whole};

use crate::place::StorePlace;
use platter_pack::{
    HEALTH_LENGTH_MAX, OBSERVATIONS_MAX, Observation, Observations, decode_health, encode_health,
};
use platter_records::StoreId;

const SUFFIX: &str = ".health";

/// Lists the names of all files.
pub(super) fn list(place: &StorePlace) -> Result<BTreeSet<String>> {
    let dir = place.health_dir();
    let entries = match place.vfs().list(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.context(|| format!("listing {}", dir.display()))?,
    };
    let names = entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name);
    Ok(names.filter(|name| name.ends_with(SUFFIX)).collect())
}

/// Reads a file; `None` when it was merged into another one meanwhile.
pub(super) fn read(place: &StorePlace, store: StoreId, name: &str) -> Result<Option<Observations>> {
    let path = place.health_dir().join(name);
    let bytes = read_whole(place.vfs(), &path, HEALTH_LENGTH_MAX);
    let bytes = bytes.context(|| format!("reading {}", path.display()))?;
    bytes.map(|bytes| decode_health(&bytes, store)).transpose()
}

/// Writes observations to a new file, durably. Returns its name.
pub(super) fn write(place: &StorePlace, store: StoreId, observations: &[Observation]) -> Result<String> {
    let dir = place.health_dir();
    place.create_dirs(&dir)?;
    let id = place.vfs().random_id().context(|| "choosing a name for a health file".into())?;
    let name = id.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + SUFFIX;
    let path = dir.join(&name);
    let file =
        place.vfs().open(&path, OpenMode::CreateNew).context(|| format!("making {}", path.display()))?;
    let written = file.write_all_at(&encode_health(store, observations), 0).and_then(|()| file.sync());
    written.context(|| format!("writing {}", path.display()))?;
    place.sync_dir(&dir)?;
    Ok(name)
}

/// Replaces those files by `observations`. Only for the holder of the store's lock.
pub(super) fn replace(
    place: &StorePlace,
    store: StoreId,
    files: &BTreeSet<String>,
    observations: &[Observation],
) -> Result<BTreeSet<String>> {
    let mut written = BTreeSet::new();
    for part in observations.chunks(OBSERVATIONS_MAX) {
        written.insert(write(place, store, part)?);
    }
    for name in files {
        place.remove_if_there(&place.health_dir().join(name))?;
    }
    // Files that reappear after a crash contain only what was known before.
    if !files.is_empty() {
        place.sync_dir(&place.health_dir())?;
    }
    Ok(written)
}

/// Removes a file after its process has written a longer one that includes it.
pub(super) fn remove(place: &StorePlace, name: &str) -> Result<()> {
    place.remove_if_there(&place.health_dir().join(name))
}
