//! A version of an origin, copied to a temporary store of this machine, from which it is cast.
//!
//! A cast needs the lengths of all frames before it begins, and sends parts of them again: so the data is fetched once, compressed as the
//! origin stores it, and verified. The directory is removed at the end, also by [`SpoolDirectory::remove`] when the process is
//! interrupted. A process that is killed leaves it; the next cast with a directory in the same place removes it.

use std::fs::{DirBuilder, File, read_dir, remove_dir_all};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_fetch::{OpenStore, OriginLocation, StoreLocation};
use platter_image::{Error, IoContext, Result};
use platter_records::VersionName;
use platter_store::{KnownCheck, Store, StorePlace};
use platter_transport::to_hex;
use platter_vfs::{OsVfs, Vfs};

use crate::Progress;
use crate::copies::{PushRequest, VersionChoice, push};

/// How the names of these directories begin.
const PREFIX: &str = "platter-cast-";

/// The directory of a temporary store, which only its owner can read.
#[derive(Clone, Debug)]
pub struct SpoolDirectory {
    path: PathBuf,
    /// Locked while the directory is in use.
    _lock: Arc<File>,
}

impl SpoolDirectory {
    /// Makes one in `parent`, by default in a directory on disk, unlike /tmp on many machines.
    ///
    /// # Errors
    /// `Missing` when `parent` does not exist; `Io`.
    pub fn make(parent: Option<&Path>) -> Result<Self> {
        let usual = || std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from);
        let parent = parent.map_or_else(usual, Path::to_path_buf);
        if !parent.is_dir() {
            return Err(Error::missing(format!(
                "there is no directory {} for a copy of the version",
                parent.display()
            )));
        }
        remove_abandoned(&parent);
        let id = to_hex(&OsVfs.random_id().context(|| "choosing a name for a directory".into())?);
        let path = parent.join(format!("{PREFIX}{id}"));
        let making = || format!("making {}", path.display());
        DirBuilder::new().mode(0o700).create(&path).context(making)?;
        let lock = File::open(&path).context(making)?;
        // At most, another process looks whether it is empty.
        lock.lock().context(making)?;
        Ok(Self { path, _lock: Arc::new(lock) })
    }

    /// Removes it with all contents.
    pub fn remove(&self) {
        // It has a random name of its own. What cannot be removed stays, which harms nothing else.
        let _ = remove_dir_all(&self.path);
    }
}

/// Removes the directories of processes that were killed. An empty one may be that of a process which is about to lock it, so it stays, as
/// does what cannot be removed.
fn remove_abandoned(parent: &Path) {
    let ours = rustix::process::geteuid().as_raw();
    for entry in read_dir(parent).into_iter().flatten().flatten() {
        let is_spool = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Metadata of the entry itself: a link is not a directory.
        let is_our_directory = || entry.metadata().is_ok_and(|entry| entry.is_dir() && entry.uid() == ours);
        if is_spool
            && is_our_directory()
            && let Ok(directory) = File::open(entry.path())
            && directory.try_lock().is_ok()
            && read_dir(entry.path()).is_ok_and(|mut contents| contents.next().is_some())
        {
            let _ = remove_dir_all(entry.path());
        }
    }
}

/// A temporary store.
pub(super) struct Spool {
    directory: SpoolDirectory,
    place: StorePlace,
    version: VersionName,
}

impl Spool {
    /// Copies a version into that directory.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` for a score that belongs to no version; `Io`, also when there is no space;
    /// errors of the origin.
    pub(super) fn fetch(
        origin: &OriginLocation,
        version: &str,
        directory: &SpoolDirectory,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let from = StoreLocation::from(origin.server.clone());
        let store = OpenStore::open_reader(&from)?;
        if store.domain()?.is_encrypted() {
            return Err(Error::refused(
                "the store of the origin is encrypted, and this machine must not keep its data without encryption: let the origin cast \
                 (`platter serve --cast`, `platter receive --server`)",
            ));
        }
        let resolved = store.resolve(version)?;
        let version = resolved.version.ok_or_else(|| {
            Error::refused(format!("no version has the score {}: name a version to cast", resolved.score))
        })?;
        let place = StorePlace::on_system(directory.path.clone());
        let spool = Self { directory: directory.clone(), place, version: version.name.clone() };
        Store::init(&spool.place)?;
        let request = PushRequest {
            from,
            to: spool.place.clone().into(),
            what: vec![VersionChoice::Version(version.name)],
            restore: false,
            known: KnownCheck::default(),
        };
        let report = push(&request, progress)?;
        match (report.failure, report.failed.first()) {
            (Some(kind), Some((_, why))) => Err(Error::new(kind, why)),
            _ => Ok(spool),
        }
    }

    /// The temporary store.
    pub(super) fn place(&self) -> &StorePlace {
        &self.place
    }

    /// The version's name.
    pub(super) fn version(&self) -> &VersionName {
        &self.version
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.directory.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let filled = |directory: &Path| std::fs::write(directory.join("file"), "data").unwrap();
        let used = SpoolDirectory::make(Some(parent.path())).unwrap();
        filled(&used.path);
        let [abandoned, other] = ["platter-cast-abandoned", "other"].map(|name| parent.path().join(name));
        for directory in [&abandoned, &other] {
            std::fs::create_dir(directory).unwrap();
            filled(directory);
        }
        let link = parent.path().join("platter-cast-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let second = SpoolDirectory::make(Some(parent.path())).unwrap();
        assert!(!abandoned.exists());
        assert!(used.path.join("file").exists() && second.path.exists());
        assert!(other.join("file").exists() && link.exists());
        used.remove();
        assert!(!used.path.exists());
    }
}
