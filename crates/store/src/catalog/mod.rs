//! The catalog: names, versions, edit tokens and the states of packs, in SQLite (`docs/formats/catalog.md`).
//!
//! A rollback journal with `synchronous=FULL`: a commit that returned is durable, and readers wait for a writer only while it
//! commits. Not a write-ahead log: SQLite keeps the log's index in a file that all processes map into memory, and on a full
//! disk a store to such a mapping ends the process with SIGBUS.
//!
//! What it says of versions is a copy of the version records in packs; what it alone knows is which packs count, and who
//! holds which edit token. Each change is also an entry of a log beside it (`log`). Every row has a checksum, and every
//! table a seal (`table`): both are compared at every opening. All its statements stand in this folder.

mod hoard;
mod log;
mod old;
mod query;
mod removal;
mod row;
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

pub use log::{ChangeLogContents, decode_change_log};
pub(crate) use log::{
    Past, State, create as create_log, create_new as create_new_log, first_name, read as read_log,
};
pub(crate) use old::Sources;
pub(crate) use removal::{remove_catalog, remove_journals};
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
    /// The log of changes, which only a writer opens.
    log: Option<log::ChangeLog>,
}

impl Catalog {
    /// Opens the catalog to be read: works beside a writer, and needs no space on the disk.
    ///
    /// The file is opened for writing where that is allowed, since the first to come after a crash takes back what an
    /// unfinished commit wrote.
    pub(crate) fn open_reader(place: &StorePlace) -> Result<Self> {
        let catalog = Self::open(place, &place.catalog())?;
        let doing = |error| failed("opening the catalog to be read", error);
        catalog.connection.pragma_update(None, "query_only", true).map_err(doing)?;
        Ok(catalog)
    }

    /// Opens the catalog to be written, with its log of changes. The lock is the caller's.
    pub(crate) fn open_writer(place: &StorePlace) -> Result<Self> {
        let mut catalog = Self::open(place, &place.catalog())?;
        catalog.remove_others(place)?;
        catalog.keep_journal()?;
        let head = catalog.head()?;
        catalog.log = Some(log::ChangeLog::open(place, &head, || catalog.write_again())?);
        catalog.shorten_log(place)?;
        Ok(catalog)
    }

    /// Removes what an interrupted rebuild left beside this catalog, which is the one in use: it is older than the next
    /// change of this one. The lock is the caller's.
    pub(crate) fn remove_others(&self, place: &StorePlace) -> Result<()> {
        for left in [place.new_catalog(), place.unfinished().catalog()] {
            let is_there = place.vfs().exists(&left).context(|| "looking for a new catalog".into())?;
            if is_there && left != place.catalog() {
                remove_catalog(place, &left)?;
            }
        }
        Ok(())
    }

    fn open(place: &StorePlace, path: &std::path::Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(place, path, flags)?;
        schema::check(&connection).and_then(|()| query::verify(&connection)).map_err(|error| {
            let remedy =
                if error.kind() == ErrorKind::Corrupt { " (`platter rebuild` makes it anew)" } else { "" };
            error.within(format!("opening the catalog {}{remedy}", path.display()))
        })?;
        Ok(Self { connection, log: None })
    }
}

fn connect(place: &StorePlace, path: &std::path::Path, flags: OpenFlags) -> Result<Connection> {
    let opened = match place.sqlite_vfs() {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    };
    let connection = opened.map_err(|error| match place.vfs().exists(path) {
        Ok(false) => {
            Error::corrupt(format!("the catalog {} is gone: `platter rebuild` makes it anew", path.display()))
        }
        _ => failed(&format!("opening the catalog {}", path.display()), error),
    })?;
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
            | Code::OutOfMemory
            | Code::PermissionDenied
            | Code::ReadOnly,
        ) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, doing).with_source(error)
}
