//! Whether a directory may become a store. Never changes anything.

use std::path::Path;

use platter_image::{Error, IoContext, Result};

use crate::place::StorePlace;

/// Returns an error if a directory belongs to another user.
pub(crate) fn refuse_others(place: &StorePlace, dir: &Path) -> Result<()> {
    let dir_name = dir.display();
    if place.vfs().is_ours(dir).context(|| format!("looking at {dir_name}"))? {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{dir_name} belongs to another user, who could replace what is in it: choose a directory of your own"
    )))
}

/// Returns an error if a directory holds anything that an interrupted init does not leave.
pub(crate) fn refuse_strangers(place: &StorePlace) -> Result<()> {
    const OURS: [&str; 13] = [
        "home.json",
        "home.json.new",
        "keys.json",
        "keys.json.new",
        "lock",
        "reserve",
        "readers",
        "packs",
        "store.json.new",
        "changes.log",
        "catalog.sqlite",
        "catalog.sqlite-journal",
        "catalog.sqlite-wal",
    ];
    let dir = place.dir().display();
    let entries = place.vfs().list(place.dir()).context(|| format!("listing {dir}"))?;
    if let Some(stranger) = entries.iter().find(|entry| !OURS.contains(&entry.name.as_str())) {
        return Err(Error::refused(format!(
            "{dir} contains {}: a store needs a directory of its own",
            stranger.name
        )));
    }
    refuse_links(place, place.dir())?;
    if place.vfs().exists(&place.packs_dir()).context(|| format!("looking into {dir}"))? {
        refuse_links(place, &place.packs_dir())?;
        let packs = place.list_packs()?.len();
        if packs > 0 {
            return Err(Error::refused(format!(
                "{dir} contains {packs} packs but no store.json: `platter rebuild` restores it"
            )));
        }
    }
    Ok(())
}

/// Refuses a directory with a symbolic link, through which files elsewhere would be changed.
fn refuse_links(place: &StorePlace, dir: &Path) -> Result<()> {
    for entry in place.vfs().list(dir).context(|| format!("listing {}", dir.display()))? {
        let path = dir.join(entry.name);
        if place.vfs().is_link(&path).context(|| format!("looking at {}", path.display()))? {
            return Err(Error::refused(format!(
                "{} is a symbolic link, and a store has none inside: remove it, or choose another directory",
                path.display()
            )));
        }
    }
    Ok(())
}
