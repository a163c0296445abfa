//! A version of an origin, copied to a temporary store of this machine, from which it is cast.
//!
//! A cast needs the lengths of all frames before it begins, and sends parts of them again: so the data is fetched once, compressed as the
//! origin stores it, and verified. The directory is removed at the end; a process that is killed leaves it.

use std::path::{Path, PathBuf};

use platter_fetch::{OpenStore, OriginLocation, StoreLocation};
use platter_image::{Error, IoContext, Result};
use platter_records::VersionName;
use platter_store::{KnownCheck, Store, StorePlace};
use platter_vfs::{OsVfs, Vfs};

use crate::Progress;
use crate::copies::{PushRequest, VersionChoice, push};

/// A temporary store.
pub(super) struct Spool {
    place: StorePlace,
    version: VersionName,
}

impl Spool {
    /// Copies a version into a new directory below `parent`.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` for a score that belongs to no version; `Io`, also when there is no space;
    /// errors of the origin.
    pub(super) fn fetch(
        origin: &OriginLocation,
        version: &str,
        parent: &Path,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let from = StoreLocation::from(origin.server.clone());
        let resolved = OpenStore::open_reader(&from)?.resolve(version)?;
        let version = resolved.version.ok_or_else(|| {
            Error::refused(format!("no version has the score {}: name a version to cast", resolved.score))
        })?;
        let id = OsVfs.random_id().context(|| "choosing a name for a directory".into())?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let place = StorePlace::on_system(parent.join(format!("platter-cast-{id}")));
        let spool = Self { place, version: version.name.clone() };
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
        // The directory has a random name of its own. What cannot be removed stays, which harms nothing else.
        let _ = std::fs::remove_dir_all(self.place.dir());
    }
}

/// The directory for temporary stores: on disk, unlike /tmp on many machines.
pub(super) fn default_parent() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}
