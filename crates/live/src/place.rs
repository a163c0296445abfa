//! Where live disks keep what is theirs on this machine: overlays, control sockets, files that are being imported.
//!
//! Of a store in a directory, that directory. Of an origin's store, one that belongs to that store alone: the one that the user
//! names, or one that is called by the store's id. `origin.json` in it says which store that is, and at which
//! addresses it was found: so what was written is found while the origin is away, and is never taken for that of
//! another store, whose edit locks have the same numbers.
//!
//! A node keeps the disks that it writes in its own directory, and so does any process that serves disks through a cache. A link in the directory that belongs to the store, `nodes/HASH`,
//! leads there, so that commands find the disks of all nodes of this machine without being told where they are.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind as IoErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use platter_image::{BlockId, Error, ErrorKind, IoContext, Kind, Result};
use platter_records::StoreId;
use serde::{Deserialize, Serialize};

use platter_client::{OriginStore, ServerAddress, ServerOptions};
use platter_fetch::StoreLocation;

const NOTE: &str = "origin.json";
/// Most bytes of it.
const NOTE_LENGTH_MAX: u64 = 64 << 10;
/// Addresses that are remembered, the last ones.
const ADDRESSES_MAX: usize = 16;
/// Digits of a store's id in the name of a directory: paths of sockets are short.
const NAME_DIGITS: usize = 16;
/// Links to the directories of nodes.
const NODES: &str = "nodes";
/// Nodes of one store on one machine that are looked for.
const NODES_MAX: usize = 64;

/// A store, and where its live disks keep what is theirs on this machine.
#[derive(Clone, Debug)]
pub struct LivePlace {
    store: StoreLocation,
    dir: PathBuf,
    /// Of an origin's store, where more than a cache is kept.
    note: Option<Note>,
    /// The user named it: disks of the store that lie elsewhere are not meant.
    is_named: bool,
}

/// What the directory of an origin's store says of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Its id.
    store: String,
    /// Where it was found, the last address at the end.
    addresses: Vec<String>,
}

impl LivePlace {
    /// The place for that store: `overlays`, if the user names one, else where it belongs. Nothing is made yet.
    ///
    /// # Errors
    /// `Refused` when `overlays` belongs to another store, or is named for a store in a directory; `Transient` when the origin is away
    /// and was never seen from here; what it says.
    pub fn open(store: &StoreLocation, overlays: Option<&Path>) -> Result<Self> {
        match store {
            StoreLocation::Local(place) if overlays.is_none() => {
                Ok(Self { store: store.clone(), dir: place.dir().to_owned(), note: None, is_named: false })
            }
            StoreLocation::Local(place) => Err(Error::refused(format!(
                "the overlays of the disks of {} lie there: a place for them is named with an origin only",
                place.dir().display()
            ))),
            StoreLocation::Remote(location) => {
                let address = address(&location.server);
                let (dir, note) = match OriginStore::open(&location.server)?.id() {
                    Ok(id) => of_store(id, &address, overlays)?,
                    Err(error) if error.kind() == ErrorKind::Transient => {
                        remembered(&address, overlays, error)?
                    }
                    Err(error) => return Err(error),
                };
                let is_named = overlays.is_some();
                Ok(Self { store: store.clone(), dir, note: Some(note), is_named })
            }
        }
    }

    /// The place of a node, or of a process that reads through a cache: the cache's directory. Nobody is asked whether it belongs
    /// to the store: [`LivePlace::claim`] does that before a disk is written.
    pub fn of_cache(store: &StoreLocation, cache: &Path) -> Self {
        Self { store: store.clone(), dir: cache.to_owned(), note: None, is_named: false }
    }

    /// The place of a node that does not run, for commands that do without it.
    ///
    /// # Errors
    /// `Missing` when the store is none of an origin: a node's disks are those of one.
    pub fn of_node(store: &StoreLocation, dir: &Path) -> Result<Self> {
        match store {
            StoreLocation::Remote(_) => Ok(Self::of_cache(store, dir)),
            StoreLocation::Local(_) => Err(Error::missing(format!(
                "no node answers in {0}: `platter node --cache {0}` starts one; or name its origin with --server, to do \
                 without it",
                dir.display()
            ))),
        }
    }

    /// The store.
    pub fn store(&self) -> &StoreLocation {
        &self.store
    }

    /// Whether the store is behind an origin: others than this machine's processes edit its images.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.store, StoreLocation::Remote(_))
    }

    /// The directory on this machine.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes in a cache's directory that disks of the store of that id are written there, and makes it known as a node's. Durable
    /// when it returns.
    ///
    /// # Errors
    /// `Refused` when disks of another store are written there; `Io`.
    pub(super) fn claim(&self, store: StoreId) -> Result<()> {
        let StoreLocation::Remote(location) = &self.store else { return Ok(()) };
        // One that was opened with its note was checked then.
        if self.note.is_some() {
            return Ok(());
        }
        let (dir, note) = of_store(store, &address(&location.server), Some(&self.dir))?;
        let claimed = Self { store: self.store.clone(), dir, note: Some(note), is_named: false };
        claimed.make()?;
        // Without the link, commands have to name the directory: no reason not to serve the disk.
        let _ = claimed.link();
        Ok(())
    }

    /// Whether disks of the store of that id may be written here.
    ///
    /// # Errors
    /// `Refused` when disks of another store are written there.
    pub(super) fn check_store(&self, store: StoreId) -> Result<()> {
        let StoreLocation::Remote(location) = &self.store else { return Ok(()) };
        of_store(store, &address(&location.server), Some(&self.dir)).map(drop)
    }

    fn link(&self) -> std::io::Result<()> {
        let Some(note) = &self.note else { return Ok(()) };
        let dir = fs::canonicalize(&self.dir)?;
        let nodes = directory_of(&note.store).join(NODES);
        DirBuilder::new().recursive(true).mode(0o700).create(&nodes)?;
        let hash = BlockId::of(Kind::Data, dir.as_os_str().as_bytes()).to_string();
        let link = nodes.join(hash.get(..NAME_DIGITS).unwrap_or(&hash));
        match std::os::unix::fs::symlink(&dir, &link) {
            Err(error) if error.kind() == IoErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }

    /// This place and, unless the user named it, every other one of this machine where disks of the same store are known to be written.
    ///
    /// # Errors
    /// `Io`; `Corrupt` when a note is damaged.
    pub(super) fn everywhere(&self) -> Result<Vec<Self>> {
        let mut places = vec![self.clone()];
        let note = match &self.note {
            Some(note) => Some(note.clone()),
            None => read_note(&self.dir)?,
        };
        let Some(note) = note.filter(|_| self.is_far() && !self.is_named) else { return Ok(places) };
        let home = directory_of(&note.store);
        let links = fs::read_dir(home.join(NODES)).map(|listed| listed.flatten().take(NODES_MAX));
        let nodes = links.into_iter().flatten().filter_map(|link| fs::canonicalize(link.path()).ok());
        let mut seen = vec![fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone())];
        for dir in std::iter::once(home.clone()).chain(nodes) {
            let real = fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
            if seen.contains(&real) {
                continue;
            }
            if let Some(other) = read_note(&dir)?.filter(|other| other.store == note.store) {
                places.push(Self { store: self.store.clone(), dir, note: Some(other), is_named: false });
            }
            seen.push(real);
        }
        Ok(places)
    }

    /// Makes the directory, and notes what it is for. Durable when it returns.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn make(&self) -> Result<()> {
        let Some(note) = &self.note else { return Ok(()) };
        let dir = &self.dir;
        // What is written to disks is as private as they are.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.context(|| format!("making {}", dir.display()))?;
        if read_note(dir)?.as_ref() == Some(note) {
            return Ok(());
        }
        write_note(dir, note).context(|| format!("writing {}", dir.join(NOTE).display()))
    }
}

/// An address as it is remembered: the same from whatever directory it was named.
fn address(options: &ServerOptions) -> String {
    let absolute = match &options.address {
        ServerAddress::Unix(path) => std::path::absolute(path).ok().map(ServerAddress::Unix),
        ServerAddress::Tls { .. } => None,
    };
    absolute.as_ref().unwrap_or(&options.address).to_string()
}

/// Where programs keep what is theirs on this machine beside origins' stores: `XDG_STATE_HOME/platter/far` if that is set; else
/// `/var/lib/platter/far` for root, and `~/.local/state/platter/far` for others.
fn default_far_dir() -> PathBuf {
    if cfg!(test) {
        return std::env::temp_dir().join(format!("platter-tests-{}", std::process::id()));
    }
    if let Some(state) = variable("XDG_STATE_HOME") {
        return state.join("platter/far");
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/platter/far");
    }
    let home = variable("HOME").unwrap_or_else(|| PathBuf::from("."));
    home.join(".local/state/platter/far")
}

/// A variable of the environment that is set, and not to nothing.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory that belongs to the store of that id.
fn directory_of(store: &str) -> PathBuf {
    default_far_dir().join(store.get(..NAME_DIGITS).unwrap_or(store))
}

/// The directory for the store of that id, which is at that address now.
fn of_store(id: StoreId, address: &str, overlays: Option<&Path>) -> Result<(PathBuf, Note)> {
    let store = id.to_string();
    let dir = overlays.map_or_else(|| directory_of(&store), Path::to_owned);
    let mut note = read_note(&dir)?.unwrap_or_else(|| Note { store: store.clone(), addresses: Vec::new() });
    if note.store != store {
        return Err(Error::refused(format!(
            "{} holds what was written to disks of another store ({}), not of the one at {address}: name another \
             directory with --overlays",
            dir.display(),
            note.store
        )));
    }
    note.addresses.retain(|known| known != address);
    note.addresses.push(address.to_owned());
    let many = note.addresses.len().saturating_sub(ADDRESSES_MAX);
    note.addresses.drain(..many);
    Ok((dir, note))
}

/// The directory of the store that was at that address, which is away now as `error` says.
fn remembered(address: &str, overlays: Option<&Path>, error: Error) -> Result<(PathBuf, Note)> {
    let candidates = match overlays {
        Some(dir) => vec![dir.to_owned()],
        None => fs::read_dir(default_far_dir())
            .map(|listed| listed.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default(),
    };
    for dir in candidates {
        let Some(note) = read_note(&dir)? else { continue };
        // The last one wins: stores move from address to address.
        if note.addresses.last().is_some_and(|last| last == address)
            || overlays.is_some() && note.addresses.iter().any(|known| known == address)
        {
            return Ok((dir, note));
        }
    }
    Err(error.within("the origin is away, and no disk of its store was served from here"))
}

fn read_note(dir: &Path) -> Result<Option<Note>> {
    use std::io::Read as _;
    let path = dir.join(NOTE);
    let file = match File::open(&path) {
        Err(error) if matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file.context(|| format!("opening {}", path.display()))?,
    };
    let mut text = Vec::new();
    let read = file.take(NOTE_LENGTH_MAX).read_to_end(&mut text);
    read.context(|| format!("reading {}", path.display()))?;
    let note = serde_json::from_slice(&text);
    note.map(Some).map_err(|error| Error::corrupt(path.display().to_string()).with_source(error))
}

/// Replaces the note as a whole.
fn write_note(dir: &Path, note: &Note) -> std::io::Result<()> {
    let new = dir.join(format!("{NOTE}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(note)?)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(NOTE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "unix:/run/here.sock";

    fn kept(dir: &Path, id: u8, address: &str) -> Result<()> {
        let (dir, note) = of_store(StoreId([id; 16]), address, Some(dir))?;
        let options = ServerOptions {
            address: address.parse().unwrap(),
            token: None,
            trust: platter_transport::Trust::System,
        };
        LivePlace { store: options.into(), dir, note: Some(note), is_named: true }.make()
    }

    #[test]
    fn a_directory_belongs_to_one_store() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/dir");
        kept(&dir, 7, HERE).unwrap();
        kept(&dir, 7, "https://there:1").unwrap();
        let error = kept(&dir, 8, HERE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("--overlays"), "{error}");
        assert_eq!(read_note(&dir).unwrap().unwrap().addresses, [HERE, "https://there:1"]);
    }

    #[test]
    fn it_is_found_by_an_address_while_the_origin_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let away = || Error::transient("away");
        assert_eq!(remembered(HERE, Some(folder.path()), away()).unwrap_err().kind(), ErrorKind::Transient);
        (0..40).for_each(|n| kept(folder.path(), 7, &format!("https://there:{}", n + 1)).unwrap());
        kept(folder.path(), 7, HERE).unwrap();
        let (_, note) = remembered(HERE, Some(folder.path()), away()).unwrap();
        assert_eq!((note.store, note.addresses.len()), (StoreId([7; 16]).to_string(), ADDRESSES_MAX));
        assert!(remembered("https://there:1", Some(folder.path()), away()).is_err());
    }

    #[test]
    fn a_damaged_note_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NOTE), "{").unwrap();
        assert_eq!(kept(folder.path(), 7, HERE).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
