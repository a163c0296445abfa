//! The catalog: names, versions, edit locks and the states of packs, in SQLite (`docs/formats/catalog.md`).
//!
//! It uses a rollback journal with `synchronous=FULL`: a commit is durable when it returns, and readers wait for a writer only
//! during a commit. It does not use a write-ahead log: SQLite keeps that log's index in a file that all processes map into
//! memory, and on a full disk a write to such a mapping kills the process with SIGBUS.
//!
//! The catalog's version rows are copies of the version records in packs. Only the catalog knows which packs are valid and who
//! holds which edit lock. Each change is also an entry of a log beside it (`log`). Every row has a checksum and every table
//! a seal (`table`); all of them are verified whenever the catalog is opened. All SQL statements are in this folder.

mod audit;
mod collect;
mod edit_lock;
mod foreign;
mod former;
mod hoard;
mod log;
mod old;
mod pack_row;
mod query;
mod quota;
mod removal;
mod replica;
mod row;
mod schema;
mod set_sums;
mod sql;
mod table;
#[cfg(test)]
mod tests;
mod write;

use std::time::Duration;

use platter_image::{Error, ErrorKind, IoContext, Result};
use rusqlite::{Connection, OpenFlags};

use crate::place::StorePlace;
pub use platter_records::PackState;
use sql::{failed, lines};

pub(crate) use collect::CatalogRoots;
pub(crate) use foreign::refuse_impossible;
pub(crate) use former::{Fate, first_name};
pub(crate) use log::{
    Beginning, ChangePosition, PackedChanges, State, blocks as change_blocks, create as create_log,
    create_new as create_new_log, damaged_earlier_logs, encode_frames as encode_changes, entry_end,
    first_position, hash_of_change, is_replacement, read as read_log, read_after, read_all_texts, read_texts,
};
pub use log::{ChangeLogContents, read_change_log};
pub(crate) use old::Sources;
pub(crate) use pack_row::PackRow;
pub(crate) use query::LOST_NUMBERS;
pub(crate) use removal::{remove_catalog, remove_journals};
pub use replica::{ReplicatedChange, RowKey};
pub use row::RowChange;
pub(crate) use schema::header_damage;
pub(crate) use write::{Change, Register};

/// How long a statement waits for a lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the catalog.
#[derive(Debug)]
pub(crate) struct Catalog {
    connection: Connection,
    /// The change log, which only a writer opens.
    log: Option<log::ChangeLog>,
}

impl Catalog {
    /// Opens the catalog for reading. Works beside a writer and needs no space on the disk.
    ///
    /// The file is opened for writing where permissions allow it: the first process after a crash must roll back an
    /// unfinished commit.
    pub(crate) fn open_reader(place: &StorePlace) -> Result<Self> {
        Self::read_only(Self::open(place, &place.catalog())?)
    }

    /// As [`Catalog::open_reader`], without verifying that no row is missing, which reads the whole catalog. For processes that
    /// verify it anyway: a writer does that under the lock.
    pub(crate) fn open_unverified(place: &StorePlace) -> Result<Self> {
        let catalog = Self::open_checked(place, &place.catalog(), |_| Ok(()))?;
        Self::read_only(catalog)
    }

    fn read_only(catalog: Self) -> Result<Self> {
        let doing = |error| failed("opening the catalog for reading", error);
        catalog.connection.pragma_update(None, "query_only", true).map_err(doing)?;
        Ok(catalog)
    }

    /// Opens the catalog with its change log for writing. Nothing is written if `check` fails. The caller holds the writer's lock.
    pub(crate) fn open_writer(place: &StorePlace, check: impl FnOnce(&Self) -> Result<()>) -> Result<Self> {
        let mut catalog = Self::open(place, &place.catalog())?;
        check(&catalog)?;
        catalog.remove_others(place)?;
        catalog.keep_journal()?;
        let head = catalog.head()?;
        catalog.log = Some(log::ChangeLog::open(place, &head, || catalog.write_again())?);
        catalog.shorten_log(place)?;
        Ok(catalog)
    }

    /// Removes the catalogs that an interrupted rebuild left beside this one. This one is in use, and after its next change the
    /// others are outdated. The caller holds the writer's lock.
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
        Self::open_checked(place, path, query::verify)
    }

    fn open_checked(
        place: &StorePlace,
        path: &std::path::Path,
        verify: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(place, path, flags)?;
        schema::check(&connection).and_then(|()| verify(&connection)).map_err(|error| {
            let remedy =
                if error.kind() == ErrorKind::Corrupt { " (`platter rebuild` recreates it)" } else { "" };
            error.within(format!("opening the catalog {}{remedy}", path.display()))
        })?;
        Ok(Self { connection, log: None })
    }
}

fn connect(place: &StorePlace, path: &std::path::Path, flags: OpenFlags) -> Result<Connection> {
    // SQLite would wait for somebody to write to a pipe. The files are not opened for that: closing them would end SQLite's locks.
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    for path in [path, std::path::Path::new(&journal)] {
        if place.vfs().is_special(path).unwrap_or(false) {
            let what =
                format!("{} is not a regular file: `platter rebuild` recreates the catalog", path.display());
            return Err(Error::corrupt(what));
        }
    }
    let opened = match place.sqlite_vfs() {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    };
    let connection = opened.map_err(|error| match place.vfs().exists(path) {
        Ok(false) => Error::corrupt(format!(
            "the catalog {} is missing: `platter rebuild` recreates it",
            path.display()
        )),
        _ => failed(&format!("opening the catalog {}", path.display()), error),
    })?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| failed("setting the catalog's timeout", error))?;
    Ok(connection)
}
