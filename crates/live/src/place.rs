//! The local files of live disks: overlays, control sockets, files that are being imported.
//!
//! For a store in a directory, the place is that directory. For an origin's store, it is a directory for that store
//! alone: named by the user, or by the store's id. Its `origin.json` says which store that is, and at which addresses
//! it was found. So local changes are found while the origin is down, and are never taken for those of another store,
//! whose edit locks have the same numbers.
//!
//! A node keeps its writable disks in its own directory, and so does any process that serves disks through a cache. A
//! link in the store's directory refers to it, so that commands find the disks of all nodes of this machine by
//! themselves.

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
/// Most bytes of the note.
const NOTE_LENGTH_MAX: u64 = 64 << 10;
/// Most stored addresses; the latest ones are kept.
const ADDRESSES_MAX: usize = 16;
/// Digits of a store's id in a directory's name, because paths of sockets are short.
const NAME_DIGITS: usize = 16;
/// Directory of links to the directories of nodes.
const NODES: &str = "nodes";
/// Most nodes of one store on one machine.
const NODES_MAX: usize = 64;

/// A store, and the place of its live disks on this machine.
#[derive(Clone, Debug)]
pub struct LivePlace {
    store: StoreLocation,
    dir: PathBuf,
    /// For an origin's store, unless only a cache is kept.
    note: Option<Note>,
    /// Whether the user named it: then disks of the store elsewhere are ignored.
    is_named: bool,
}

/// The note in the directory of an origin's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The store's id.
    store: String,
    /// The addresses at which it was found, the latest at the end.
    addresses: Vec<String>,
}

impl LivePlace {
    /// Returns the place for this store: `overlays`, if the user names it, else the default. Creates nothing yet.
    ///
    /// # Errors
    /// `Refused` when `overlays` belongs to another store, or is given for a store in a directory; `Transient` when the
    /// origin is down and was never reached from here; the origin's errors.
    pub fn open(store: &StoreLocation, overlays: Option<&Path>) -> Result<Self> {
        match store {
            StoreLocation::Local(place) if overlays.is_none() => {
                Ok(Self { store: store.clone(), dir: place.dir().to_owned(), note: None, is_named: false })
            }
            StoreLocation::Local(place) => Err(Error::refused(format!(
                "overlays of {} are in its directory: another place can only be named for an origin's store",
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

    /// The place of a node, or of a process that reads through a cache: the cache's directory. Whether it belongs to
    /// the store is checked by [`LivePlace::claim`] before a disk is written.
    pub fn of_cache(store: &StoreLocation, cache: &Path) -> Self {
        Self { store: store.clone(), dir: cache.to_owned(), note: None, is_named: false }
    }

    /// The place of a node that does not run, for commands that work without it.
    ///
    /// # Errors
    /// `Missing` when there is no such directory, or the store is not that of an origin: a node's disks are those of one.
    pub fn of_node(store: &StoreLocation, dir: &Path) -> Result<Self> {
        match store {
            StoreLocation::Remote(_) if dir.is_dir() => Ok(Self::of_cache(store, dir)),
            StoreLocation::Remote(_) => {
                Err(Error::missing(format!("{} is no directory: no node ever ran there", dir.display())))
            }
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

    /// Whether the store is behind an origin, so other machines edit its images as well.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.store, StoreLocation::Remote(_))
    }

    /// The directory on this machine.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes in a cache's directory that disks of the store with this id are written there, and links it as a node's
    /// directory. Durable on return.
    ///
    /// # Errors
    /// `Refused` when disks of another store are written there; `Io`.
    pub(super) fn claim(&self, store: StoreId) -> Result<()> {
        let StoreLocation::Remote(location) = &self.store else { return Ok(()) };
        // A place that was opened with its note is already checked.
        if self.note.is_some() {
            return Ok(());
        }
        let (dir, note) = of_store(store, &address(&location.server), Some(&self.dir))?;
        let claimed = Self { store: self.store.clone(), dir, note: Some(note), is_named: false };
        claimed.make()?;
        // Without the link, commands have to name the directory, but the disk can be served.
        let _ = claimed.link();
        Ok(())
    }

    /// Checks whether disks of the store with this id may be written here.
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

    /// Returns this place and, unless the user named it, all other places of this machine where disks of the same store
    /// are written.
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

    /// Creates the directory with its note. Durable on return.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn make(&self) -> Result<()> {
        let Some(note) = &self.note else { return Ok(()) };
        let dir = &self.dir;
        // Overlays are as private as the disks.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.context(|| format!("making {}", dir.display()))?;
        if read_note(dir)?.as_ref() == Some(note) {
            return Ok(());
        }
        write_note(dir, note).context(|| format!("writing {}", dir.join(NOTE).display()))
    }
}

/// An address in its stored form, which does not depend on the current directory.
fn address(options: &ServerOptions) -> String {
    let absolute = match &options.address {
        ServerAddress::Unix(path) => std::path::absolute(path).ok().map(ServerAddress::Unix),
        ServerAddress::Tls { .. } => None,
    };
    absolute.as_ref().unwrap_or(&options.address).to_string()
}

/// The parent directory of places for origins' stores: `XDG_STATE_HOME/platter/far` if that is set; else
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

/// Returns an environment variable that is set and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory of the store with this id.
fn directory_of(store: &str) -> PathBuf {
    default_far_dir().join(store.get(..NAME_DIGITS).unwrap_or(store))
}

/// The directory of the store with this id, which is now at this address.
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

/// The directory of the store that was last at this address, which is now down for the reason `error`.
fn remembered(address: &str, overlays: Option<&Path>, error: Error) -> Result<(PathBuf, Note)> {
    let candidates = match overlays {
        Some(dir) => vec![dir.to_owned()],
        None => fs::read_dir(default_far_dir())
            .map(|listed| listed.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default(),
    };
    for dir in candidates {
        let note = match read_note(&dir)? {
            None if overlays.is_none() => note_of_nodes(&dir, address)?,
            note => note,
        };
        let Some(note) = note else { continue };
        // The latest address counts: stores move between addresses.
        if note.addresses.last().is_some_and(|last| last == address)
            || overlays.is_some() && note.addresses.iter().any(|known| known == address)
        {
            return Ok((dir, note));
        }
    }
    Err(error.within("the origin is down, and no disk of its store was served from here"))
}

/// Searches the notes of nodes below a store's directory for a store that was last at this address. If only nodes write disks
/// of the store, its directory itself has no note.
fn note_of_nodes(dir: &Path, address: &str) -> Result<Option<Note>> {
    for link in fs::read_dir(dir.join(NODES)).into_iter().flatten().flatten().take(NODES_MAX) {
        let note = read_note(&link.path())?;
        if let Some(note) = note.filter(|note| note.addresses.last().is_some_and(|last| last == address)) {
            return Ok(Some(note));
        }
    }
    Ok(None)
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
    fn a_place_is_found_by_an_address_while_the_origin_is_down() {
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
    fn a_store_whose_disks_only_nodes_write_is_found_while_its_origin_is_down() {
        let folder = tempfile::tempdir().unwrap();
        let (node, origin) = (folder.path().join("node"), "unix:/run/origin-of-nodes.sock");
        kept(&node, 9, origin).unwrap();
        let (_, note) = of_store(StoreId([9; 16]), origin, Some(&node)).unwrap();
        let options = ServerOptions {
            address: origin.parse().unwrap(),
            token: None,
            trust: platter_transport::Trust::System,
        };
        let place = LivePlace { store: options.into(), dir: node.clone(), note: Some(note), is_named: false };
        place.link().unwrap();
        let (dir, note) = remembered(origin, None, Error::transient("away")).unwrap();
        assert_eq!(note.store, StoreId([9; 16]).to_string());
        let found = LivePlace { dir, note: Some(note), ..place }.everywhere().unwrap();
        assert!(
            found.iter().any(|place| fs::canonicalize(place.dir()).unwrap_or_default() == node),
            "{found:?}"
        );
        assert!(remembered("unix:/run/other.sock", None, Error::transient("away")).is_err());
    }

    #[test]
    fn a_damaged_note_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NOTE), "{").unwrap();
        assert_eq!(kept(folder.path(), 7, HERE).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
