//! The directory of a store and its layout (`docs/formats/store-layout.md`): the paths, and the file `store.json` that makes a
//! directory a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use platter_encryption::{KEY_FILE_LENGTH_MAX, KeyFile};
use platter_image::{Domain, Error, IoContext, Result};
use platter_vfs::{OpenMode, OsVfs, Vfs, create_dirs, remove_if_there};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use platter_index::IndexLimits;
use platter_records::{Actor, PackId, StoreId};

/// A pack that reaches this many bytes is sealed, and a new one is begun.
pub const PACK_LENGTH_TARGET: u64 = 256 << 20;

/// Format version of directory layout, catalog and packs together.
const FORMAT_VERSION: u32 = 1;
/// The same, of an encrypted store: a Platter that knows only the other version must not write to it.
const ENCRYPTED_VERSION: u32 = 2;
/// Maximum number of bytes of `store.json` that are read.
const FORMAT_FILE_LENGTH_MAX: u64 = 4 << 10;

const FORMAT_FILE: &str = "store.json";
const KEY_FILE: &str = "keys.json";
const PACK_SUFFIX: &str = ".pack";

/// The directory of a store, or of a future store.
#[derive(Clone, Debug)]
pub struct StorePlace {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    sqlite_vfs: Option<String>,
    pack_length_target: u64,
    index_limits: IndexLimits,
    lock_wait: Option<Duration>,
    lock_advice: &'static str,
    long_log: u64,
    catalog: CatalogFiles,
    actor: Arc<Actor>,
    /// How many in this process use the space of the reserve.
    borrowers: Arc<Mutex<usize>>,
}

/// Minimum length in bytes at which a change log is replaced by a shorter one.
const LONG_LOG: u64 = 8 << 20;

/// The file names of a catalog and its change log.
#[derive(Clone, Copy, Debug)]
struct CatalogFiles {
    catalog: &'static str,
    log: &'static str,
    /// A log that will replace `log`.
    new_log: &'static str,
}

impl CatalogFiles {
    const IN_USE: Self = Self { catalog: "catalog.sqlite", log: "changes.log", new_log: "changes.new.log" };
    /// The files that a rebuild writes. The log's name is the one under which the catalog in use looks for a replacement.
    const UNFINISHED: Self = Self {
        catalog: "catalog.unfinished.sqlite",
        log: Self::IN_USE.new_log,
        new_log: "changes.unfinished.log",
    };
}

/// Returns whether the disk is full.
pub(crate) fn is_full(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::StorageFull)
}

/// The contents of `store.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatFile {
    platter_store: u32,
    id: String,
    /// The identity domain of an encrypted store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// Of the other fields. Files written before it existed lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl FormatFile {
    fn expected_checksum(&self) -> String {
        let domain = self.domain.as_deref().unwrap_or_default();
        let text = format!("{}\n{}\n{domain}", self.platter_store, self.id);
        format!("{:016x}", XxHash3_64::oneshot(text.as_bytes()))
    }
}

/// The version that a `store.json` of any version states.
fn version_of(bytes: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Any {
        platter_store: u32,
    }
    serde_json::from_slice::<Any>(bytes).ok().map(|any| any.platter_store)
}

/// What `store.json` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The store's id.
    pub(crate) id: StoreId,
    /// The identity domain of its blocks.
    pub(crate) domain: Domain,
}

impl StorePlace {
    /// A directory in this machine's file system.
    pub fn on_system(dir: impl Into<PathBuf>) -> Self {
        Self::new(Arc::new(OsVfs), dir)
    }

    /// A directory in `vfs`. The catalog is a file of the system unless [`StorePlace::with_sqlite_vfs`] is called.
    pub fn new(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>) -> Self {
        let (sqlite_vfs, catalog) = (None, CatalogFiles::IN_USE);
        let (actor, index_limits) = (Arc::new(Actor::new("", "local")), IndexLimits::USUAL);
        Self {
            vfs,
            dir: dir.into(),
            sqlite_vfs,
            pack_length_target: PACK_LENGTH_TARGET,
            index_limits,
            lock_wait: None,
            lock_advice: "",
            long_log: LONG_LOG,
            catalog,
            actor,
            borrowers: Arc::default(),
        }
    }

    /// Sets who makes the changes of stores that are opened here, unless a store says otherwise ([`crate::Store::acting_as`]).
    #[must_use]
    pub fn with_actor(mut self, actor: Actor) -> Self {
        self.actor = Arc::new(actor);
        self
    }

    pub(crate) fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    pub(crate) fn borrowers(&self) -> MutexGuard<'_, usize> {
        self.borrowers.lock()
    }

    /// Returns the same directory with the catalog files that a rebuild writes, instead of those in use.
    pub(crate) fn unfinished(&self) -> Self {
        Self { catalog: CatalogFiles::UNFINISHED, ..self.clone() }
    }

    /// Opens the catalog's files through the SQLite VFS of that name. It must be registered with SQLite.
    #[must_use]
    pub fn with_sqlite_vfs(mut self, name: impl Into<String>) -> Self {
        self.sqlite_vfs = Some(name.into());
        self
    }

    /// Seals packs when they reach this many bytes, at most [`PACK_LENGTH_TARGET`].
    #[must_use]
    pub fn with_pack_length_target(mut self, bytes: u64) -> Self {
        self.pack_length_target = bytes.min(PACK_LENGTH_TARGET);
        self
    }

    /// Sets the memory for the fences and filters of the block index, in bytes.
    #[must_use]
    pub fn with_index_memory(mut self, bytes: u64) -> Self {
        self.index_limits.memory = bytes;
        self
    }

    /// Adds new packs to the index on disk once they have so many blocks. Usually that many are worth it.
    #[must_use]
    pub fn with_index_blocks(mut self, blocks: u64) -> Self {
        self.index_limits.blocks = blocks;
        self
    }

    /// Waits up to this long for another process that writes the store; `None`: [`crate::LOCK_WAIT`].
    #[must_use]
    pub fn with_lock_wait(mut self, time: Option<Duration>) -> Self {
        self.lock_wait = time;
        self
    }

    /// How long to wait for another process that writes the store, if that was set.
    pub fn lock_wait(&self) -> Option<Duration> {
        self.lock_wait
    }

    /// Ends the message that another process writes the store: what else than waiting helps.
    #[must_use]
    pub fn with_lock_advice(mut self, advice: &'static str) -> Self {
        self.lock_advice = advice;
        self
    }

    pub(crate) fn lock_advice(&self) -> &'static str {
        self.lock_advice
    }

    /// Whether a process holds the writer lock now; false if that cannot be found out.
    pub fn is_being_written(&self) -> bool {
        let path = self.lock_file();
        self.vfs.exists(&path).is_ok_and(|exists| exists)
            && self.vfs.lock(&path).is_ok_and(|lock| lock.is_none())
    }

    pub(crate) fn index_limits(&self) -> IndexLimits {
        self.index_limits
    }

    /// Replaces the change log by a copy of the catalog's rows when it has more than this many bytes, and has grown to twice its first
    /// length; 8 MiB otherwise.
    #[must_use]
    pub fn with_long_log(mut self, bytes: u64) -> Self {
        self.long_log = bytes;
        self
    }

    pub(crate) fn long_log(&self) -> u64 {
        self.long_log
    }

    pub(crate) fn pack_length_target(&self) -> u64 {
        self.pack_length_target
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn vfs(&self) -> &dyn Vfs {
        &*self.vfs
    }

    pub(crate) fn sqlite_vfs(&self) -> Option<&str> {
        self.sqlite_vfs.as_deref()
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The path of the file that holds space for collections.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    pub(crate) fn catalog(&self) -> PathBuf {
        self.dir.join(self.catalog.catalog)
    }

    /// The path of a complete catalog that is about to replace the one in use.
    pub(crate) fn new_catalog(&self) -> PathBuf {
        self.dir.join("catalog.new.sqlite")
    }

    pub(crate) fn change_log(&self) -> PathBuf {
        self.dir.join(self.catalog.log)
    }

    pub(crate) fn new_change_log(&self) -> PathBuf {
        self.dir.join(self.catalog.new_log)
    }

    /// The directory of logs that newer ones have replaced.
    pub(crate) fn earlier_logs(&self) -> PathBuf {
        self.dir.join("changes")
    }

    pub(crate) fn packs_dir(&self) -> PathBuf {
        self.dir.join("packs")
    }

    pub(crate) fn health_dir(&self) -> PathBuf {
        self.dir.join("health")
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.dir.join("index")
    }

    pub(crate) fn readers_dir(&self) -> PathBuf {
        self.dir.join("readers")
    }

    pub(crate) fn pack_dir(&self, pack: PackId) -> PathBuf {
        self.packs_dir().join(format!("{:02x}", pack.0[0]))
    }

    pub(crate) fn pack(&self, pack: PackId) -> PathBuf {
        self.pack_dir(pack).join(format!("{pack}{PACK_SUFFIX}"))
    }

    /// Returns whether the directory is a store.
    ///
    /// # Errors
    /// `Io`.
    pub fn is_store(&self) -> Result<bool> {
        let path = self.dir.join(FORMAT_FILE);
        self.vfs.exists(&path).context(|| format!("looking for {}", path.display()))
    }

    /// Lists all pack files in the directory, whether the catalog knows them or not, ordered by id. Ignores other files.
    pub(crate) fn list_packs(&self) -> Result<Vec<PackId>> {
        let list = |dir: &Path| self.vfs.list(dir).context(|| format!("listing {}", dir.display()));
        let mut packs = Vec::new();
        for folder in list(&self.packs_dir())?.iter().filter(|entry| entry.is_dir) {
            let dir = self.packs_dir().join(&folder.name);
            let names = list(&dir)?;
            let ids =
                names.iter().filter_map(|entry| PackId::from_hex(entry.name.strip_suffix(PACK_SUFFIX)?));
            packs.extend(ids.filter(|id| self.pack_dir(*id) == dir));
        }
        packs.sort_unstable();
        Ok(packs)
    }

    /// Removes a file if it exists.
    pub(crate) fn remove_if_there(&self, path: &Path) -> Result<()> {
        remove_if_there(&*self.vfs, path).context(|| format!("removing {}", path.display()))
    }

    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.vfs.sync_dir(dir).context(|| format!("syncing the directory {}", dir.display()))
    }

    /// Creates a directory and its missing parents. All of their names are durable on return.
    pub(crate) fn create_dirs(&self, dir: &Path) -> Result<()> {
        create_dirs(&*self.vfs, dir).context(|| format!("making the directory {}", dir.display()))
    }

    /// Writes `store.json`, which makes the directory a store.
    pub(crate) fn write_format(&self, format: Format) -> Result<()> {
        let Format { id, domain } = format;
        let mut file = FormatFile {
            platter_store: if domain.is_encrypted() { ENCRYPTED_VERSION } else { FORMAT_VERSION },
            id: id.to_string(),
            domain: domain.is_encrypted().then(|| domain.to_string()),
            checksum: None,
        };
        file.checksum = Some(file.expected_checksum());
        let text = serde_json::to_string(&file)
            .map_err(|error| Error::bug("cannot serialize store.json").with_source(error))?;
        self.replace(FORMAT_FILE, format!("{text}\n").as_bytes())
    }

    /// Replaces a file of the directory: after a crash it has the old contents or the new ones.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, path) = (self.dir.join(format!("{name}.new")), self.dir.join(name));
        self.remove_if_there(&new)?;
        let file =
            self.vfs.open(&new, OpenMode::CreateNew).context(|| format!("making {}", new.display()))?;
        let written = file.write_all_at(bytes, 0).and_then(|()| file.sync());
        if let Err(error) = written {
            // The first error counts. What is left has no meaning.
            drop(self.remove_if_there(&new));
            return Err(Error::io(format!("writing {}", new.display()), error));
        }
        self.vfs.rename(&new, &path).context(|| format!("renaming to {}", path.display()))?;
        self.sync_dir(&self.dir)
    }

    /// The path of the file with the key slots of an encrypted store.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.dir.join(KEY_FILE)
    }

    pub(crate) fn write_key_file(&self, keys: &KeyFile) -> Result<()> {
        self.replace(KEY_FILE, &keys.encode()?)
    }

    /// Reads the key slots of an encrypted store; `None` for a store that is not encrypted.
    ///
    /// # Errors
    /// As [`StorePlace::read_format`]; `Corrupt` when the file is missing, damaged, or another store's.
    pub fn read_key_file(&self) -> Result<Option<KeyFile>> {
        let format = self.read_format()?;
        if !format.domain.is_encrypted() {
            return Ok(None);
        }
        let keys = self.read_key_file_alone()?.ok_or_else(|| self.no_key_file())?;
        if keys.domain() != format.domain {
            return Err(Error::corrupt(format!("{} belongs to another store", self.key_file().display())));
        }
        Ok(Some(keys))
    }

    /// The error when an encrypted store has no key slots.
    pub(crate) fn no_key_file(&self) -> Error {
        let path = self.key_file();
        Error::corrupt(format!(
            "{} is missing: the store cannot be read without it; restore it from a copy",
            path.display()
        ))
    }

    /// Reads the key slots, whatever `store.json` says; `None` if there are none.
    ///
    /// # Errors
    /// As [`StorePlace::read_key_file`].
    pub fn read_key_file_alone(&self) -> Result<Option<KeyFile>> {
        let path = self.key_file();
        let file = match self.vfs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.context(|| format!("opening {}", path.display()))?,
        };
        let length = file.length().context(|| format!("reading {}", path.display()))?;
        let mut bytes = vec![0; length.min(KEY_FILE_LENGTH_MAX + 1) as usize];
        file.read_exact_at(&mut bytes, 0).context(|| format!("reading {}", path.display()))?;
        KeyFile::decode(&bytes).map(Some).map_err(|error| error.within(path.display().to_string()))
    }

    /// Returns the id of the store.
    ///
    /// # Errors
    /// `Missing` when there is no store; `Corrupt`; `Refused` when a newer Platter made it.
    pub fn store_id(&self) -> Result<StoreId> {
        Ok(self.read_format()?.id)
    }

    /// Reads `store.json`.
    ///
    /// # Errors
    /// `Missing` when there is no store; `Corrupt`; `Refused` when a newer Platter made it.
    pub(crate) fn read_format(&self) -> Result<Format> {
        let path = self.dir.join(FORMAT_FILE);
        let file = match self.vfs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let dir = self.dir.display();
                if self.vfs.exists(&self.catalog()).unwrap_or_default() {
                    let what = format!("{} is missing: `platter rebuild` restores it", path.display());
                    return Err(Error::corrupt(what));
                }
                let what = format!("there is no store in {dir}: make one with `platter init --store {dir}`");
                return Err(Error::missing(what));
            }
            opened => opened.context(|| format!("opening {}", path.display()))?,
        };
        let length = file.length().context(|| format!("reading {}", path.display()))?;
        let mut bytes = vec![0; length.min(FORMAT_FILE_LENGTH_MAX) as usize];
        file.read_exact_at(&mut bytes, 0).context(|| format!("reading {}", path.display()))?;
        let corrupt =
            || Error::corrupt(format!("{} is damaged: `platter rebuild` restores it", path.display()));
        let newer = |version: u32| {
            Error::refused(format!(
                "the store in {} has format {version}, but this Platter supports format {ENCRYPTED_VERSION}: use a newer Platter",
                self.dir.display(),
            ))
        };
        let is_newer = |version: &u32| *version > ENCRYPTED_VERSION;
        let format: FormatFile =
            serde_json::from_slice(&bytes).map_err(|error| match version_of(&bytes).filter(is_newer) {
                Some(version) => newer(version),
                None => corrupt().with_source(error),
            })?;
        if format.checksum.as_ref().is_some_and(|sum| *sum != format.expected_checksum()) {
            return Err(corrupt());
        }
        if is_newer(&format.platter_store) {
            return Err(newer(format.platter_store));
        }
        let domain = match (format.platter_store, format.domain.as_deref()) {
            (FORMAT_VERSION, None) => Some(Domain::SHARED),
            (ENCRYPTED_VERSION, Some(text)) => Domain::from_hex(text).filter(|domain| domain.is_encrypted()),
            _ => None,
        };
        let id = StoreId::from_hex(&format.id);
        let format = id.zip(domain).map(|(id, domain)| Format { id, domain }).ok_or_else(corrupt)?;
        // Otherwise a changed store.json would make an encrypted store a plain one.
        let key_file = self.key_file();
        let looking = || format!("looking for {}", key_file.display());
        if !format.domain.is_encrypted() && self.vfs.exists(&key_file).context(looking)? {
            return Err(Error::corrupt(format!(
                "{} says that the store is not encrypted, but {} has key slots: put back the original {FORMAT_FILE}, or let \
                 `platter rebuild` restore it; if the slots belong to another store, remove their file",
                path.display(),
                key_file.display()
            )));
        }
        Ok(format)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "damages the store's files directly")]
mod tests {
    use std::fs;

    use platter_image::ErrorKind;

    use super::*;

    /// Damage never makes another store, nor one of a newer Platter. Files without a checksum are read.
    #[test]
    fn each_flipped_bit_of_store_json_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        let encrypted = Domain::from_hex(&"5a".repeat(16)).unwrap();
        for domain in [Domain::SHARED, encrypted] {
            let format = Format { id: StoreId([0x1a; 16]), domain };
            place.write_format(format).unwrap();
            let path = folder.path().join(FORMAT_FILE);
            let good = fs::read(&path).unwrap();
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut damaged = good.clone();
                    damaged[at] ^= 1 << bit;
                    fs::write(&path, &damaged).unwrap();
                    let error = place.read_format().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {bit}: {error}");
                    assert!(error.to_string().contains("store.json is damaged"), "{at}: {bit}: {error}");
                }
            }
            let text = String::from_utf8(good).unwrap();
            let old = format!("{}}}\n", text.split_once(",\"checksum\"").unwrap().0);
            fs::write(&path, &old).unwrap();
            assert_eq!(place.read_format().unwrap(), format);
            for newer in [r#""platter_store":3,"#, r#""platter_store":3,"more":1,"#] {
                let at = old.find("\"id\"").unwrap();
                fs::write(&path, format!("{{{newer}{}", &old[at..])).unwrap();
                assert_eq!(place.read_format().unwrap_err().kind(), ErrorKind::Refused);
            }
        }
    }
}
