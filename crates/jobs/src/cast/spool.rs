//! A version of an origin, copied to a temporary store of this machine, from which it is cast.
//!
//! A cast needs the lengths of all frames before it begins, and sends parts of them again: so the data is fetched once, compressed as the
//! origin stores it, and verified. The directory is removed at the end, also by [`SpoolDirectory::remove`] when the process is
//! interrupted; a process that is killed leaves it.

use std::path::{Path, PathBuf};

use platter_fetch::{OpenStore, OriginLocation, StoreLocation};
use platter_image::{Error, IoContext, Result};
use platter_records::VersionName;
use platter_store::{KnownCheck, Store, StorePlace};
use platter_vfs::{OsVfs, Vfs};

use crate::Progress;
use crate::copies::{PushRequest, VersionChoice, push};

/// The directory of a temporary store, which does not exist yet.
#[derive(Clone, Debug)]
pub struct SpoolDirectory(PathBuf);

impl SpoolDirectory {
    /// Chooses one in `parent`, by default in a directory on disk, unlike /tmp on many machines.
    ///
    /// # Errors
    /// `Missing` when `parent` does not exist; `Io`.
    pub fn choose(parent: Option<&Path>) -> Result<Self> {
        let usual = || std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from);
        let parent = parent.map_or_else(usual, Path::to_path_buf);
        if !parent.is_dir() {
            return Err(Error::missing(format!(
                "there is no directory {} for a copy of the version",
                parent.display()
            )));
        }
        let id = OsVfs.random_id().context(|| "choosing a name for a directory".into())?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(parent.join(format!("platter-cast-{id}"))))
    }

    /// Removes it with all contents.
    pub fn remove(&self) {
        // It has a random name of its own. What cannot be removed stays, which harms nothing else.
        let _ = std::fs::remove_dir_all(&self.0);
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
        let place = StorePlace::on_system(directory.0.clone());
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
