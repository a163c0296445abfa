//! Creates new catalogs, and tells a catalog from other databases.

use std::cmp::Ordering;

use platter_image::{Domain, Error, IoContext, Result};
use platter_vfs::OpenMode;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::log::Head;
use super::query::meta;
use super::table::{self, DOMAIN, LAST_EDIT_LOCK, LOG, STORE};
use super::{Catalog, Change, connect, failed, lines};
use crate::place::{Format, StorePlace};
use platter_records::StoreId;

/// Application id in the database's header ("PLca"). It identifies a catalog, for `file` too.
const APPLICATION_ID: i64 = 0x504c_6361;
/// Format version, stored in the database's header as `user_version`.
const FORMAT_VERSION: i64 = 4;

impl Catalog {
    /// Creates a store's catalog in a file that must not exist, applies `changes`, and closes it. `changes` also creates the
    /// catalog's log and returns its head. The catalog's contents are durable on return; the caller syncs its name.
    pub(crate) fn create(
        place: &StorePlace,
        path: &std::path::Path,
        format: Format,
        changes: impl FnOnce(&mut Change<'_>) -> Result<Head>,
    ) -> Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if place.sqlite_vfs().is_none() {
            // SQLite would create it with the umask's mode. It accepts an empty file as a database, and its journal gets the same
            // mode.
            let made = place.vfs().open(path, OpenMode::CreateNew);
            made.context(|| format!("creating {}", path.display()))?;
        }
        let mut connection = connect(place, path, flags)?;
        let doing = |error| failed(&format!("creating the catalog {}", path.display()), error);
        // With EXTRA, all contents are in this one file once it is closed.
        connection.pragma_update(None, "synchronous", "EXTRA").map_err(doing)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(doing)?;
        table::create(&transaction).map_err(doing)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(doing)?;
        transaction.pragma_update(None, "user_version", FORMAT_VERSION).map_err(doing)?;
        let mut change = Change::new(&transaction);
        change.set_meta(STORE, &format.id.to_string())?;
        if format.domain.is_encrypted() {
            change.set_meta(DOMAIN, &format.domain.to_string())?;
        }
        change.set_meta(LAST_EDIT_LOCK, "0")?;
        let head = changes(&mut change)?;
        change.set_meta(LOG, &head.to_text()?)?;
        change.write_seals()?;
        transaction.commit().map_err(doing)?;
        connection.close().map_err(|(_, error)| doing(error))
    }

    /// Prepares a writer's connection so that commits are durable.
    ///
    /// The journal file stays, and a commit ends by overwriting and syncing its header. Truncating the journal instead would free
    /// its space while it is still valid. On file systems that let a file grow before its data is written, the next journal could
    /// show these old bytes after a power failure, and SQLite would roll them back into the catalog.
    pub(super) fn keep_journal(&self) -> Result<()> {
        let what = "preparing the catalog's journal";
        let modes: Vec<String> = lines(&self.connection, what, "PRAGMA journal_mode = PERSIST")?;
        let mode = modes.first().map_or("none", String::as_str);
        if mode != "persist" {
            return Err(Error::refused(format!(
                "the catalog cannot keep its journal here (journal mode {mode})"
            )));
        }
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(|error| failed(what, error))
    }

    /// Returns the identity domain of the store to which the catalog belongs.
    pub(crate) fn domain(&self) -> Result<Domain> {
        let Some(text) = meta(&self.connection, DOMAIN)? else { return Ok(Domain::SHARED) };
        let domain = Domain::from_hex(&text).filter(|domain| domain.is_encrypted());
        domain.ok_or_else(|| Error::corrupt(format!("the catalog has an invalid identity domain: {text:?}")))
    }

    /// Returns the id of the store to which the catalog belongs.
    pub(crate) fn store(&self) -> Result<StoreId> {
        let text = meta(&self.connection, STORE)?.unwrap_or_default();
        StoreId::from_hex(&text)
            .ok_or_else(|| Error::corrupt(format!("the catalog has an invalid store id: {text:?}")))
    }
}

/// Fields of the database's header that have the same value in every catalog, by offset (sqlite.org/fileformat2.html). SQLite
/// ignores some of them when it reads, and refuses to write, or writes differently, when they are wrong.
const FIXED: [(usize, &[u8]); 8] = [
    (0, b"SQLite format 3\0"),
    // No write-ahead log, and no reserved bytes at the end of pages.
    (18, &[1, 1, 0, 64, 32, 32]),
    // Schema format.
    (44, &[0, 0, 0, 4]),
    // No incremental vacuum; UTF-8.
    (52, &[0, 0, 0, 0, 0, 0, 0, 1]),
    (60, &(FORMAT_VERSION as u32).to_be_bytes()),
    (64, &[0; 4]),
    (68, &(APPLICATION_ID as u32).to_be_bytes()),
    (72, &[0; 20]),
];

/// Returns what is wrong with the header of the catalog's file. The caller makes sure that this process changes the catalog in no other
/// thread meanwhile: closing a file ends all locks that the process has on it.
///
/// # Errors
/// `Io`.
pub(crate) fn header_damage(place: &StorePlace) -> Result<Option<String>> {
    let path = place.catalog();
    let context = || format!("reading {}", path.display());
    let file = place.vfs().open(&path, OpenMode::Read).context(context)?;
    let mut header = vec![0; file.length().context(context)?.min(100) as usize];
    file.read_exact_at(&mut header, 0).context(context)?;
    let is_wrong = |(at, value): &&(usize, &[u8])| header.get(*at..*at + value.len()) != Some(*value);
    Ok(FIXED.iter().find(is_wrong).map(|(at, value)| {
        format!(
            "the header of the database is damaged between bytes {at} and {}: `platter rebuild` recreates it",
            at + value.len()
        )
    }))
}

/// Returns the id of the store in a catalog that may be damaged; `None` if it is missing or invalid.
///
/// # Errors
/// When the table cannot be read.
pub(super) fn owner(connection: &Connection) -> Result<Option<StoreId>> {
    Ok(meta(connection, STORE)?.as_deref().and_then(StoreId::from_hex))
}

/// Returns an error if the database is not a catalog, or a newer Platter wrote it.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let number = |name: &str| {
        let read = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        read.map_err(|error| failed(&format!("reading the catalog's {name}"), error))
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION_ID {
        return Err(Error::corrupt(format!("not a catalog (application id {application:#x})")));
    }
    let what = format!("the catalog has format {version}, but this Platter supports format {FORMAT_VERSION}");
    match version.cmp(&FORMAT_VERSION) {
        Ordering::Less => Err(Error::corrupt(what)),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::refused(format!("{what}: use a newer Platter"))),
    }
}
