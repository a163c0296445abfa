//! How a new catalog is made, and what tells a catalog from other databases.

use std::cmp::Ordering;

use platter_image::{Error, IoContext, Result};
use platter_vfs::OpenMode;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::log::Head;
use super::query::meta;
use super::table::{self, LOG, STORE};
use super::token::LAST_TOKEN;
use super::{Catalog, Change, connect, failed, lines};
use crate::identity::StoreId;
use crate::place::StorePlace;

/// In the database's header: `file` and people can tell a catalog from other databases. "PLca".
const APPLICATION_ID: i64 = 0x504c_6361;
/// In the database's header as `user_version`.
const FORMAT_VERSION: i64 = 3;

impl Catalog {
    /// Makes the catalog of a store in a file that must not exist, holding `changes`, and closes it. `changes` also makes
    /// the log that belongs to it, and gives its head. The catalog's bytes are durable then; its name is the caller's to
    /// sync.
    pub(crate) fn create(
        place: &StorePlace,
        path: &std::path::Path,
        store: StoreId,
        changes: impl FnOnce(&mut Change<'_>) -> Result<Head>,
    ) -> Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if place.sqlite_vfs().is_none() {
            // SQLite would make it as wide as the umask lets it; an empty file is a database, and its log gets its mode.
            let made = place.vfs().open(path, OpenMode::CreateNew);
            made.context(|| format!("making {}", path.display()))?;
        }
        let mut connection = connect(place, path, flags)?;
        let doing = |error| failed(&format!("making the catalog {}", path.display()), error);
        // Once it is closed, nothing but this one file may hold its contents.
        connection.pragma_update(None, "synchronous", "EXTRA").map_err(doing)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(doing)?;
        table::create(&transaction).map_err(doing)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(doing)?;
        transaction.pragma_update(None, "user_version", FORMAT_VERSION).map_err(doing)?;
        let mut change = Change::new(&transaction);
        change.set_meta(STORE, &store.to_string())?;
        change.set_meta(LAST_TOKEN, "0")?;
        let head = changes(&mut change)?;
        change.set_meta(LOG, &head.to_text()?)?;
        change.write_seals()?;
        transaction.commit().map_err(doing)?;
        connection.close().map_err(|(_, error)| doing(error))
    }

    /// Prepares a writer's connection, whose commits are durable then.
    ///
    /// The journal stays, and a commit ends with its header overwritten and synced. A journal that is truncated gives up its
    /// space while it is still valid: where a file system lets a file grow before its data are written, the next journal could
    /// show these bytes again after a power cut, and they would be played back.
    pub(super) fn keep_journal(&self) -> Result<()> {
        let what = "preparing the catalog's journal";
        let modes: Vec<String> = lines(&self.connection, what, "PRAGMA journal_mode = PERSIST")?;
        let mode = modes.first().map_or("none", String::as_str);
        if mode != "persist" {
            return Err(Error::refused(format!(
                "the catalog cannot use its journal here (journal mode {mode})"
            )));
        }
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(|error| failed(what, error))
    }

    /// The store it belongs to.
    pub(crate) fn store(&self) -> Result<StoreId> {
        let text = meta(&self.connection, STORE)?.unwrap_or_default();
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
    let what = format!("it has format {version}, this Platter knows {FORMAT_VERSION}");
    match version.cmp(&FORMAT_VERSION) {
        Ordering::Less => Err(Error::corrupt(what)),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::refused(format!("{what}: use a newer one"))),
    }
}
