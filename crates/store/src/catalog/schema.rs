//! The catalog's tables, and how a new catalog is made.

use platter_image::{Error, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{Catalog, Change, connect, failed};
use crate::identity::StoreId;
use crate::place::StorePlace;

/// In the database's header: `file` and people can tell a catalog from other databases. "PLca".
const APPLICATION_ID: i64 = 0x504c_6361;
/// In the database's header as `user_version`.
const FORMAT_VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE packs (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('live', 'condemned', 'dead', 'deleted')),
    epoch INTEGER NOT NULL DEFAULT 0,
    length INTEGER NOT NULL,
    frames INTEGER NOT NULL,
    blocks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE images (
    name TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE versions (
    image TEXT NOT NULL REFERENCES images (name),
    number INTEGER NOT NULL CHECK (number > 0),
    score TEXT NOT NULL,
    time_unix_ms INTEGER NOT NULL,
    record_id TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (image, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
    image TEXT PRIMARY KEY REFERENCES images (name),
    number INTEGER NOT NULL UNIQUE CHECK (number > 0),
    holder TEXT NOT NULL,
    time_unix_ms INTEGER NOT NULL,
    overlay TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX versions_by_score ON versions (score);
";

impl Catalog {
    /// Makes the catalog of a store in a file that must not exist, holding `changes`, and closes it. Its bytes are
    /// durable then; its name is the caller's to sync.
    pub(crate) fn create(
        place: &StorePlace,
        path: &std::path::Path,
        store: StoreId,
        changes: impl FnOnce(&mut Change<'_>) -> Result<()>,
    ) -> Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = connect(place, path, flags)?;
        let doing = |error| failed(&format!("making the catalog {}", path.display()), error);
        // Not yet WAL: until it is closed, nothing but this one file may hold its contents.
        connection.pragma_update(None, "synchronous", "EXTRA").map_err(doing)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(doing)?;
        transaction.execute_batch(TABLES).map_err(doing)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(doing)?;
        transaction.pragma_update(None, "user_version", FORMAT_VERSION).map_err(doing)?;
        for (key, value) in [("store", store.to_string()), ("last_token", "0".into())] {
            transaction.execute("INSERT INTO meta VALUES (?1, ?2)", [key.into(), value]).map_err(doing)?;
        }
        changes(&mut Change { transaction: &transaction })?;
        transaction.commit().map_err(doing)?;
        connection.close().map_err(|(_, error)| doing(error))
    }

    /// Turns WAL on, and begins with an empty log: for a writer, once the catalog stands under its name.
    ///
    /// Empty, since a sync that failed when the log was closed last has told nobody: some of the log may be readable
    /// and not on the disk, and after a power cut everything behind that would be lost, synced or not (trust F6). A
    /// reader in the way may keep it from being emptied; that is no reason to write nothing.
    pub(crate) fn use_wal(&self) -> Result<()> {
        let doing = |error| failed("turning on the catalog's write-ahead log", error);
        // To the end: the answer comes first, and that it could not be made so comes after.
        let what = "turning on the catalog's write-ahead log";
        let modes: Vec<String> = self.rows(what, "PRAGMA journal_mode = WAL", &[], |row| row.get(0))?;
        let mode = modes.first().map_or("none", String::as_str);
        if mode != "wal" {
            return Err(Error::refused(format!(
                "the catalog cannot use a write-ahead log here (journal mode {mode}): use a local filesystem"
            )));
        }
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(doing)?;
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(doing)
    }

    /// The store it belongs to.
    pub(crate) fn store(&self) -> Result<StoreId> {
        let doing = |error| failed("reading the store's id from the catalog", error);
        let text: String = self
            .connection
            .query_row("SELECT value FROM meta WHERE key = 'store'", [], |row| row.get(0))
            .map_err(doing)?;
        StoreId::from_hex(&text)
            .ok_or_else(|| Error::corrupt(format!("the catalog has no store id but {text:?}")))
    }
}

/// Refuses what is no catalog, or a newer Platter's.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let number = |name: &str| {
        let read = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        read.map_err(|error| failed(&format!("reading the catalog's {name}"), error))
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION_ID {
        return Err(Error::corrupt(format!("it is no catalog (application id {application:#x})")));
    }
    if version != FORMAT_VERSION {
        return Err(Error::refused(format!(
            "it has format {version}, this Platter knows {FORMAT_VERSION}: use a newer one"
        )));
    }
    Ok(())
}
