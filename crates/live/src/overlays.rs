//! The overlays of live disks in the directory of a [`LivePlace`], and the lock that reserves each for one process.
//!
//! `overlays/IMAGE.LOCK.NUMBER.overlay`, with `+` for each slash in the image's name. The number counts the overlays of
//! one disk, which are on top of each other while it is published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use platter_image::{Error, Extents, IoContext, Result, Score};
use platter_records::ImageName;
use platter_vdisk::{Overlay, OverlayHeader};
use platter_vfs::{OsVfs, Vfs, VfsFile};

use super::place::LivePlace;

const DIRECTORY: &str = "overlays";
const SUFFIX: &str = ".overlay";
/// The suffix of an overlay under construction.
const UNFINISHED_SUFFIX: &str = ".overlay.new";
/// The suffix of a note that an edit lock is being taken for an image.
const TAKING_SUFFIX: &str = ".taking";

/// Lists the disks with overlays in this directory: image and number of the edit lock.
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

/// Returns the place of the overlays of this image and edit lock: this place, another place of this machine for the
/// same store, or, if there are none yet, this place. So one edit lock never has overlays in two places.
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

/// Lists the disks with overlays at this place, or at another one of this machine for the same store.
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

/// Notes that an edit lock is being taken for an image, until its first overlay exists. If the answer is lost, or the process ends
/// between, the lock is found by this. Without space for the note, such a lock has to be taken over by hand.
pub(super) fn note_taking(dir: &Path, image: &ImageName) {
    let note = taking(dir, image);
    let _ = note.parent().map(fs::create_dir_all).transpose().and_then(|_| fs::File::create(note));
}

/// Removes the note of [`note_taking`].
pub(super) fn forget_taking(dir: &Path, image: &ImageName) {
    let _ = fs::remove_file(taking(dir, image));
}

/// Whether an edit lock was being taken for an image.
pub(super) fn is_taking(dir: &Path, image: &ImageName) -> bool {
    taking(dir, image).exists()
}

fn taking(dir: &Path, image: &ImageName) -> PathBuf {
    dir.join(DIRECTORY).join(image.as_str().replace('/', "+") + TAKING_SUFFIX)
}

/// Returns the scores on which the overlays in a directory stand. Their recipes must not be collected.
///
/// # Errors
/// `Corrupt` when an overlay's header is damaged; `Io`.
pub fn bases(dir: &Path) -> Result<Vec<Score>> {
    let (vfs, dir) = (OsVfs, dir.join(DIRECTORY));
    let context = || format!("listing {}", dir.display());
    if !vfs.exists(&dir).context(context)? {
        return Ok(Vec::new());
    }
    let mut bases = Vec::new();
    for entry in vfs.list(&dir).context(context)? {
        if disk_of(&entry.name).is_none() {
            continue;
        }
        let path = dir.join(&entry.name);
        match Overlay::header(&vfs, &path) {
            Ok(header) => bases.push(header.base_score),
            // It was published or discarded meanwhile.
            Err(_) if !vfs.exists(&path).context(context)? => {}
            Err(error) => return Err(error.within("looking for the version below an overlay")),
        }
    }
    Ok(bases)
}

/// Parses a file's name as that of an overlay.
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
    /// The common prefix of their names.
    prefix: String,
    edit_lock: u64,
    /// Held while the disk is open, so that no other process opens it.
    _lock: Box<dyn VfsFile>,
}

impl Overlays {
    /// Locks the overlays of this image and edit lock, in the directory of a place.
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
        Ok(Self { vfs, dir, prefix, edit_lock, _lock: taken })
    }

    /// The file system that holds them.
    pub(super) fn vfs(&self) -> &dyn Vfs {
        &self.vfs
    }

    /// The path of the overlay with this number.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}{number}{SUFFIX}", self.prefix))
    }

    /// The numbers of the existing overlays, ascending: the lowest is at the bottom.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let entries = self.vfs.list(&self.dir).context(|| format!("listing {}", self.dir.display()))?;
        let number = |name: &str| name.strip_prefix(&self.prefix)?.strip_suffix(SUFFIX)?.parse().ok();
        let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| number(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the header of the overlay with this number.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`, `Io`.
    pub(super) fn header(&self, number: u64) -> Result<OverlayHeader> {
        Overlay::header(&self.vfs, &self.path(number))
    }

    /// Returns what the overlays say without the version below them: its score, the disk's length, and the number of written
    /// bytes; `None` if there are none. Changes nothing, so it needs no space.
    ///
    /// # Errors
    /// `Corrupt`, `Refused`, `Io`.
    pub(super) fn written(&self) -> Result<Option<(Score, u64, u64)>> {
        let numbers = self.numbers()?;
        let Some(newest) = numbers.last() else { return Ok(None) };
        let OverlayHeader { base_score, disk_length, .. } = self.header(*newest)?;
        let (mut written, boot_id) = (Vec::new(), boot_id()?);
        for number in numbers {
            // Overlays above another version were published.
            if self.header(number)?.base_score == base_score {
                let path = self.path(number);
                written.extend(Overlay::written(&self.vfs, &path, self.edit_lock, boot_id)?.iter().copied());
            }
        }
        Ok(Some((base_score, disk_length, Extents::from_unsorted(written).total())))
    }

    /// Removes the overlay of that number.
    pub(super) fn remove(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        self.vfs.remove(&path).context(|| format!("removing {}", path.display()))?;
        self.sync()
    }

    /// Removes all remaining files, when none is needed any more.
    pub(super) fn remove_all(self) -> Result<()> {
        for number in self.numbers()? {
            self.remove(number)?;
        }
        // Files of interrupted creations of overlays.
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

/// The id of this boot of the machine: files from another boot may lack unflushed data.
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
    fn names_of_overlays_are_parsed() {
        let disk = |image: &str, edit_lock| image.parse().ok().map(|image| (image, edit_lock));
        assert_eq!(disk_of("lab+debian12.7.1.overlay"), disk("lab/debian12", 7));
        assert_eq!(disk_of("a.12.9.8.3.overlay"), disk("a.12.9", 8));
        for strange in ["lab+x.7.lock", "lab+x.7.overlay", "x.y.1.overlay", ".1.1.overlay", "A.1.1.overlay"] {
            assert_eq!(disk_of(strange), None, "{strange}");
        }
    }
}
