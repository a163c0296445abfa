//! The catalog: names, versions, edit tokens and the states of packs, in SQLite (`docs/formats/catalog.md`).
//!
//! WAL with `synchronous=FULL`: a commit that returned is durable, and readers never wait for a writer. What it says
//! of versions is a copy of the version records in packs; what it alone knows is which packs count, and who holds which
//! edit token. Every row has a checksum, and every table a seal (`table`): both are compared at every opening. All its
//! statements stand in this folder.

mod hoard;
mod query;
mod schema;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod write;

use std::time::Duration;

use platter_image::{Error, ErrorKind, IoContext, Result};
use rusqlite::{Connection, OpenFlags};

use crate::identity::PackId;
use crate::place::StorePlace;

pub(crate) use write::Change;

/// How long a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a pack is to the store (trust 3.2). A pack file that the catalog does not know is an open one: being written,
/// or left by a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PackState {
    /// Being written by a session of this process.
    Open = 0,
    /// Its blocks may be read and referred to.
    Live = 1,
    /// Chosen for collection: still readable, no longer to be referred to.
    Condemned = 2,
    /// Given up for ever: its file may be deleted at any time.
    Dead = 3,
    /// Its file is gone.
    Deleted = 4,
}

impl PackState {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Open, "open"),
        (Self::Live, "live"),
        (Self::Condemned, "condemned"),
        (Self::Dead, "dead"),
        (Self::Deleted, "deleted"),
    ];

    /// The word in the catalog.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(state, _)| state)
    }
}

/// A pack as the catalog has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackRow {
    pub(crate) id: PackId,
    pub(crate) state: PackState,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    pub(crate) frames: u64,
    pub(crate) blocks: u64,
}

/// A connection to the catalog.
#[derive(Debug)]
pub(crate) struct Catalog {
    connection: Connection,
}

impl Catalog {
    /// Opens the catalog to be read: works beside a writer.
    pub(crate) fn open_reader(place: &StorePlace) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Self::open(place, &place.catalog(), flags);
        if opened.is_ok() || place.sqlite_vfs().is_some() || has_log(place)? {
            return opened;
        }
        // Where nothing may be written, not even the log's shared memory can be made. Without a log there is no
        // writer, and the file alone is all of the catalog.
        let path = place.catalog();
        let uri = path.to_str().map(|path| format!("file:{}?immutable=1", escape(path)));
        let immutable = uri.map(|uri| Self::open(place, uri.as_ref(), flags | OpenFlags::SQLITE_OPEN_URI));
        match immutable {
            Some(Ok(catalog)) => Ok(catalog),
            _ => opened,
        }
    }

    /// Opens the catalog to be read, by the holder of the store's lock, where there may be no space even for what
    /// readers share with a writer.
    pub(crate) fn open_without_space(place: &StorePlace) -> Result<Self> {
        match Self::open_reader(place) {
            Err(error) if error.kind() == ErrorKind::Io => {}
            opened => return opened,
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(place, &place.catalog(), flags)?;
        // Then the log's index is kept in memory.
        lines(&connection, "locking the catalog", "PRAGMA locking_mode = EXCLUSIVE")?;
        schema::check(&connection).and_then(|()| query::verify(&connection))?;
        Ok(Self { connection })
    }

    /// Opens the catalog to be written.
    pub(crate) fn open_writer(place: &StorePlace) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open(place, &place.catalog(), flags)
    }

    fn open(place: &StorePlace, path: &std::path::Path, flags: OpenFlags) -> Result<Self> {
        let connection = connect(place, path, flags)?;
        schema::check(&connection).and_then(|()| query::verify(&connection)).map_err(|error| {
            let what = format!(
                "opening the catalog {} (`platter rebuild` makes it anew from the packs)",
                path.display()
            );
            error.within(what)
        })?;
        Ok(Self { connection })
    }
}

/// Whether a log stands beside the catalog: somebody writes, or has not closed it.
fn has_log(place: &StorePlace) -> Result<bool> {
    let mut path = place.catalog().into_os_string();
    path.push("-wal");
    place.vfs().exists(path.as_ref()).context(|| format!("looking for {}", path.display()))
}

/// A path as it stands in a URI: what has a meaning there is written as its number.
fn escape(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

fn connect(place: &StorePlace, path: &std::path::Path, flags: OpenFlags) -> Result<Connection> {
    let opened = match place.sqlite_vfs() {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    };
    let connection =
        opened.map_err(|error| failed(&format!("opening the catalog {}", path.display()), error))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| failed("setting the catalog's timeout", error))?;
    Ok(connection)
}

/// The first column of all rows that a statement gives.
fn lines(connection: &Connection, doing: &str, sql: &str) -> Result<Vec<String>> {
    let failed = |error| failed(doing, error);
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], |row| row.get(0)).map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<String>>>().map_err(failed)
}

/// What SQLite's error means to a caller.
fn failed(doing: &str, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let kind = match error.sqlite_error_code() {
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => ErrorKind::Corrupt,
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => ErrorKind::Transient,
        Some(
            Code::CannotOpen
            | Code::DiskFull
            | Code::SystemIoFailure
            | Code::PermissionDenied
            | Code::ReadOnly,
        ) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, doing).with_source(error)
}
