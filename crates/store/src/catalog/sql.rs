//! Statements of SQLite, and its errors.

use platter_image::{Error, ErrorKind, Result};
use rusqlite::Connection;
use rusqlite::ffi::SQLITE_IOERR_SHORT_READ;

/// Runs a statement and returns the first column of all rows.
pub(super) fn lines(connection: &Connection, doing: &str, sql: &str) -> Result<Vec<String>> {
    let failed = |error| failed(doing, error);
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], |row| row.get(0)).map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<String>>>().map_err(failed)
}

/// Converts an error of SQLite to the error kind that tells the caller what to do.
pub(super) fn failed(doing: &str, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    // The file ends within a page: it is damaged, not the device.
    let is_cut = error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_IOERR_SHORT_READ);
    let kind = match error.sqlite_error_code() {
        _ if is_cut => ErrorKind::Corrupt,
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
