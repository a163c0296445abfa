//! Where the overlays of live disks lie in the directory of a [`LivePlace`], and the lock that keeps each with one process.
//!
//! `overlays/IMAGE.LOCK.NUMBER.overlay`, with `+` for each slash of the image's name; the number counts the overlays
//! of one disk, which lie above each other while it is being published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use platter_records::ImageName;
use platter_vdisk::{Overlay, OverlayHeader};
use platter_vfs::{OsVfs, Vfs, VfsFile};

use super::place::LivePlace;

const DIRECTORY: &str = "overlays";
const SUFFIX: &str = ".overlay";
/// The same of one that is being made.
const UNFINISHED_SUFFIX: &str = ".overlay.new";

/// The disks whose overlays lie there: each by its image and the number of the edit lock that it was written under.
///
/// # Errors
/// `Io`.
pub(super) fn list(dir: &Path) -> Result<BTreeSet<(ImageName, u64)>> {
    let (vfs, dir) = (OsVfs, dir.join(DIRECTORY));
    let context = || format!("listing {}", dir.display());
    if !vfs.exists(&dir).context(context)? {
        return Ok(BTreeSet::new());
    }
    let entries = vfs.list(&dir).context(context)?;
    Ok(entries.iter().filter_map(|entry| disk_of(&entry.name)).collect())
}

/// Where the overlays of that image and edit lock lie: there, at another place of this machine for the same store, or nowhere yet:
/// then there. So one edit lock never has overlays at two places.
///
/// # Errors
/// `Io`; as [`LivePlace::everywhere`].
pub(super) fn place_of(place: &LivePlace, image: &ImageName, edit_lock: u64) -> Result<LivePlace> {
    for other in place.everywhere()? {
        if list(other.dir())?.contains(&(image.clone(), edit_lock)) {
            return Ok(other);
        }
    }
    Ok(place.clone())
}

/// The disks whose overlays lie at that place, or at another one of this machine for the same store.
///
/// # Errors
/// As [`place_of`].
pub(super) fn list_everywhere(place: &LivePlace) -> Result<BTreeSet<(ImageName, u64)>> {
    let mut all = BTreeSet::new();
    for other in place.everywhere()? {
        all.extend(list(other.dir())?);
    }
    Ok(all)
}

/// Whose overlay a file of that name is.
fn disk_of(name: &str) -> Option<(ImageName, u64)> {
    let (disk, number) = name.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    let (image, edit_lock) = disk.rsplit_once('.')?;
    number.parse::<u64>().ok()?;
    Some((image.replace('+', "/").parse().ok()?, edit_lock.parse().ok()?))
}

/// The overlays of one image under one edit lock.
#[derive(Debug)]
pub(super) struct Overlays {
    vfs: OsVfs,
    dir: PathBuf,
    /// What all their names begin with.
    prefix: String,
    /// Held as long as the disk is open: nobody else opens it.
    _lock: Box<dyn VfsFile>,
}

impl Overlays {
    /// Takes the lock on the overlays of that image and edit lock, in the directory of a place.
    ///
    /// # Errors
    /// `Refused` when another process has it; `Io`.
    pub(super) fn lock(place: &Path, image: &ImageName, edit_lock: u64) -> Result<Self> {
        let vfs = OsVfs;
        let dir = place.join(DIRECTORY);
        if !vfs.exists(&dir).context(|| format!("looking for {}", dir.display()))? {
            vfs.create_dir(&dir).context(|| format!("making {}", dir.display()))?;
            vfs.sync_dir(place).context(|| format!("syncing {}", place.display()))?;
        }
        let prefix = format!("{}.{edit_lock}.", image.as_str().replace('/', "+"));
        let lock = dir.join(format!("{prefix}lock"));
        let taken = vfs.lock(&lock).context(|| format!("locking {}", lock.display()))?;
        let taken = taken.ok_or_else(|| {
            Error::refused(format!(
                "{image} is attached for writing by another process: `platter disks` tells"
            ))
        })?;
        Ok(Self { vfs, dir, prefix, _lock: taken })
    }

    /// The vfs they are reached through.
    pub(super) fn vfs(&self) -> &dyn Vfs {
        &self.vfs
    }

    /// Where the overlay of that number lies.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}{number}{SUFFIX}", self.prefix))
    }

    /// The numbers of those that are there, ascending: the lowest lies at the bottom.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let entries = self.vfs.list(&self.dir).context(|| format!("listing {}", self.dir.display()))?;
        let number = |name: &str| name.strip_prefix(&self.prefix)?.strip_suffix(SUFFIX)?.parse().ok();
        let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| number(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What the overlay of that number says of itself.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`, `Io`.
    pub(super) fn header(&self, number: u64) -> Result<OverlayHeader> {
        Overlay::header(&self.vfs, &self.path(number))
    }

    /// Removes the overlay of that number.
    pub(super) fn remove(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        self.vfs.remove(&path).context(|| format!("removing {}", path.display()))?;
        self.sync()
    }

    /// Removes what is left when nothing of them is needed any more.
    pub(super) fn remove_all(self) -> Result<()> {
        for number in self.numbers()? {
            self.remove(number)?;
        }
        // What the making of an overlay left that was cut off.
        let entries = self.vfs.list(&self.dir).context(|| format!("listing {}", self.dir.display()))?;
        let is_unfinished = |name: &str| name.starts_with(&self.prefix) && name.ends_with(UNFINISHED_SUFFIX);
        for entry in entries.iter().filter(|entry| is_unfinished(&entry.name)) {
            let path = self.dir.join(&entry.name);
            self.vfs.remove(&path).context(|| format!("removing {}", path.display()))?;
        }
        let lock = self.dir.join(format!("{}lock", self.prefix));
        self.vfs.remove(&lock).context(|| format!("removing {}", lock.display()))
    }

    fn sync(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir).context(|| format!("syncing {}", self.dir.display()))
    }
}

/// The id of this boot of the machine: files that another boot left may lack what was not flushed.
pub(super) fn boot_id() -> Result<[u8; 16]> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).context(|| format!("reading {}", path.display()))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let bytes: Option<Vec<u8>> =
        (0..16).map(|at| u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::bug(format!("{} holds no id: {text:?}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_whose_an_overlay_is() {
        let disk = |image: &str, edit_lock| image.parse().ok().map(|image| (image, edit_lock));
        assert_eq!(disk_of("lab+debian12.7.1.overlay"), disk("lab/debian12", 7));
        assert_eq!(disk_of("a.12.9.8.3.overlay"), disk("a.12.9", 8));
        for strange in ["lab+x.7.lock", "lab+x.7.overlay", "x.y.1.overlay", ".1.1.overlay", "A.1.1.overlay"] {
            assert_eq!(disk_of(strange), None, "{strange}");
        }
    }
}
