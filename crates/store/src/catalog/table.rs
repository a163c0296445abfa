//! The catalog's tables, and the only code that reads and changes their rows. Every row ends with its checksum. The table `seals`
//! has the number of rows of each table and the sum of their checksums.
//!
//! So a flipped byte of the file never changes an answer unnoticed. A changed row contradicts its checksum when it is
//! read. A missing or duplicated row contradicts the table's seal, which is verified whenever the catalog is opened or checked.
//! There are no indexes except the primary keys, which are the tables themselves, so the checksums cover all data.

use std::collections::BTreeMap;
use std::hash::Hasher;

use platter_image::{Error, Result};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ToSql};
use twox_hash::XxHash3_64;

use super::row::Cell;
use super::sql::{failed, lines};
use platter_records::Version;

/// A table. Its first `keys` columns are the primary key.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Names and SQL types of the columns, without the checksum.
    columns: &'static [(&'static str, &'static str)],
    pub(super) keys: usize,
}

const TEXT: &str = "TEXT NOT NULL";
const INTEGER: &str = "INTEGER NOT NULL";

pub(super) const META: Table = Table { name: "meta", columns: &[("key", TEXT), ("value", TEXT)], keys: 1 };
pub(super) const PACKS: Table = Table {
    name: "packs",
    columns: &[
        ("id", TEXT),
        ("state", TEXT),
        ("epoch", INTEGER),
        ("length", INTEGER),
        ("frames", INTEGER),
        ("blocks", INTEGER),
    ],
    keys: 1,
};
pub(super) const IMAGES: Table =
    Table { name: "images", columns: &[("name", TEXT), ("last_number", INTEGER)], keys: 1 };
pub(super) const VERSIONS: Table = Table {
    name: "versions",
    columns: &[
        ("image", TEXT),
        ("number", INTEGER),
        ("score", TEXT),
        ("time_unix_ms", INTEGER),
        ("record_id", TEXT),
        ("record", TEXT),
    ],
    keys: 2,
};
/// Versions that no longer exist under that name: forgotten or renamed.
pub(super) const FORMER: Table = Table {
    name: "former",
    columns: &[
        ("image", TEXT),
        ("number", INTEGER),
        ("fate", TEXT),
        ("time_unix_ms", INTEGER),
        ("record_id", TEXT),
        ("record", TEXT),
    ],
    keys: 2,
};
pub(super) const PROTECTED: Table = Table {
    name: "protected",
    columns: &[("image", TEXT), ("number", INTEGER), ("time_unix_ms", INTEGER)],
    keys: 2,
};
pub(super) const EDIT_LOCKS: Table = Table {
    name: "edit_locks",
    columns: &[
        ("image", TEXT),
        ("number", INTEGER),
        ("holder", TEXT),
        ("time_unix_ms", INTEGER),
        ("overlay", TEXT),
    ],
    keys: 1,
};
pub(super) const HOARD: Table = Table {
    name: "hoard",
    columns: &[
        ("image", TEXT),
        ("number", INTEGER),
        ("added", INTEGER),
        ("gone", "INTEGER"),
        ("day", INTEGER),
        ("boot_set", TEXT),
        ("record", TEXT),
    ],
    keys: 3,
};
pub(super) const HOARD_REVISIONS: Table = Table {
    name: "hoard_revisions",
    columns: &[("revision", INTEGER), ("day", INTEGER), ("time_unix_ms", INTEGER)],
    keys: 1,
};
pub(super) const HOARD_FOLLOWED: Table =
    Table { name: "hoard_followed", columns: &[("image", TEXT), ("settings", TEXT)], keys: 1 };
pub(super) const SEALS: Table =
    Table { name: "seals", columns: &[("name", TEXT), ("rows", INTEGER), ("total", INTEGER)], keys: 1 };

/// All tables that have a seal.
pub(super) const SEALED: [&Table; 10] = [
    &META,
    &PACKS,
    &IMAGES,
    &VERSIONS,
    &FORMER,
    &PROTECTED,
    &EDIT_LOCKS,
    &HOARD,
    &HOARD_REVISIONS,
    &HOARD_FOLLOWED,
];

/// Keys in `meta`: the store's id, its identity domain if it is encrypted, and the head of the log.
pub(super) const STORE: &str = "store";
pub(super) const DOMAIN: &str = "domain";
pub(super) const LOG: &str = "log";
/// Key in `meta`: the position in the log up to which packs have its entries.
pub(super) const PACKED: &str = "packed";

/// Key in `meta`: catalog and log were lost once, and a rebuild had only the packs.
pub(super) const WAS_LOST: &str = "was_lost";
/// Key in `meta` of the highest number that an edit lock ever had.
pub(super) const LAST_EDIT_LOCK: &str = "last_edit_lock";
/// Keys in `meta` of the hoard: the random id of this sequence of revisions, the newest revision, the oldest revision since
/// which changes are known, and the number and date of the days counted.
pub(super) const HOARD_EPOCH: &str = "hoard_epoch";
pub(super) const HOARD_REVISION: &str = "hoard_revision";
pub(super) const HOARD_OLDEST: &str = "hoard_oldest";
pub(super) const HOARD_DAY: &str = "hoard_day";
pub(super) const HOARD_DATE: &str = "hoard_date";

/// Name of the checksum's column.
const SUM: &str = "checksum";

/// Returns whether a key of `meta` belongs to the hoard.
pub(super) fn is_hoard_key(key: &str) -> bool {
    [HOARD_EPOCH, HOARD_REVISION, HOARD_OLDEST, HOARD_DAY, HOARD_DATE].contains(&key)
}

impl Table {
    /// Returns the statement that creates the table, in the form in which SQLite stores it.
    fn sql(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|(name, kind)| format!("{name} {kind}, ")).collect();
        let keys: Vec<&str> = self.columns[..self.keys].iter().map(|(name, _)| *name).collect();
        format!(
            "CREATE TABLE {} ({}{SUM} INTEGER NOT NULL, PRIMARY KEY ({})) STRICT, WITHOUT ROWID",
            self.name,
            columns.concat(),
            keys.join(", ")
        )
    }

    /// Returns a `WHERE` clause that compares the primary key with the first parameters.
    pub(super) fn where_key(&self) -> String {
        let terms = self.columns[..self.keys].iter().zip(1..);
        let terms: Vec<String> = terms.map(|((name, _), number)| format!("{name} = ?{number}")).collect();
        format!("WHERE {}", terms.join(" AND "))
    }

    /// Returns the primary key of a row.
    pub(super) fn key_of<'a>(&self, row: &'a [Cell]) -> &'a [Cell] {
        &row[..self.keys.min(row.len())]
    }

    /// Returns whether the values of a row, without its checksum, match the columns' types.
    pub(super) fn fits_row(&self, row: &[Cell]) -> bool {
        row.len() == self.columns.len() && self.fits(row)
    }

    /// Returns whether the values of a primary key match the columns' types.
    pub(super) fn fits_key(&self, key: &[Cell]) -> bool {
        key.len() == self.keys && self.fits(key)
    }

    fn fits(&self, cells: &[Cell]) -> bool {
        cells.iter().zip(self.columns).all(|(cell, (_, kind))| match cell {
            Cell::Text(_) => *kind == TEXT,
            Cell::Number(_) => *kind != TEXT,
            Cell::Null => *kind != TEXT && *kind != INTEGER,
        })
    }

    /// Returns whether a row or primary key is metadata of the catalog itself, which the log does not cover.
    pub(super) fn is_own(&self, row: &[Cell]) -> bool {
        let key = match row.first() {
            Some(Cell::Text(key)) => key.as_str(),
            _ => "",
        };
        self.name == META.name && [STORE, DOMAIN, LOG].contains(&key)
    }

    pub(super) fn checksum(&self, row: &[Value]) -> i64 {
        let mut hasher = XxHash3_64::new();
        let mut take = |tag: u8, bytes: &[u8]| {
            hasher.write(&[tag]);
            hasher.write(&(bytes.len() as u64).to_le_bytes());
            hasher.write(bytes);
        };
        take(0, self.name.as_bytes());
        for value in row {
            match value {
                Value::Integer(number) => take(1, &number.to_le_bytes()),
                Value::Text(text) => take(2, text.as_bytes()),
                // No column has another type.
                _ => take(3, &[]),
            }
        }
        hasher.finish().cast_signed()
    }
}

/// A row whose checksum was verified, without the checksum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) values: Vec<Value>,
    pub(super) checksum: i64,
}

impl Row {
    /// A row that has no checksum yet.
    pub(super) fn unverified(values: Vec<Value>) -> Self {
        Self { values, checksum: 0 }
    }

    /// Returns the text in that column; empty if it is not text, which the verified checksum rules out.
    pub(super) fn text(&self, at: usize) -> &str {
        match self.values.get(at) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns the number in that column.
    pub(super) fn number(&self, at: usize) -> i64 {
        match self.values.get(at) {
            Some(Value::Integer(number)) => *number,
            _ => 0,
        }
    }
}

/// The number of rows of a table, and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) rows: i64,
    pub(super) total: i64,
}

impl Seal {
    pub(super) fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.total = self.total.wrapping_add(row.checksum);
    }

    pub(super) fn remove(&mut self, row: &Row) {
        self.rows -= 1;
        self.total = self.total.wrapping_sub(row.checksum);
    }
}

/// A digest of all rows that the log covers, computed from the seals of their tables.
#[derive(Default)]
pub(super) struct Digest(XxHash3_64);

impl Digest {
    /// Adds a table. Tables must be added in the order of [`SEALED`].
    pub(super) fn add(&mut self, table: &Table, rows: impl Iterator<Item = Vec<Value>>) {
        let mut seal = Seal::default();
        rows.for_each(|values| seal.add(&Row { checksum: table.checksum(&values), values }));
        self.add_seal(table, seal);
    }

    fn add_seal(&mut self, table: &Table, seal: Seal) {
        self.0.write(table.name.as_bytes());
        self.0.write(&seal.rows.to_le_bytes());
        self.0.write(&seal.total.to_le_bytes());
    }

    /// Returns the digest in hexadecimal.
    pub(super) fn finish(self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

/// Computes the digest of the catalog's rows from its seals.
pub(super) fn digest(connection: &Connection) -> Result<String> {
    let mut digest = Digest::default();
    for table in SEALED {
        let mut seal = read_seal(connection, table)?;
        if table.name == META.name {
            for own in read(connection, table, "WHERE key IN (?1, ?2, ?3)", &[&STORE, &DOMAIN, &LOG])? {
                seal.remove(&own);
            }
        }
        digest.add_seal(table, seal);
    }
    Ok(digest.finish())
}

/// Seals that were read or changed, by the names of their tables.
pub(super) type Seals = BTreeMap<&'static str, Seal>;

/// Reads rows of a table and verifies their checksums. `tail` is the part of the statement after the table's name.
pub(super) fn read(
    connection: &Connection,
    table: &Table,
    tail: &str,
    parameters: &[&dyn ToSql],
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    visit(connection, table, tail, parameters, |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

fn visit(
    connection: &Connection,
    table: &Table,
    tail: &str,
    parameters: &[&dyn ToSql],
    mut take: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let failed = |error| failed(&format!("reading {} from the catalog", table.name), error);
    let mut statement =
        connection.prepare_cached(&format!("SELECT * FROM {} {tail}", table.name)).map_err(failed)?;
    let width = statement.column_count();
    let mut rows = statement.query(parameters).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let mut values = Vec::with_capacity(width);
        for at in 0..width {
            values.push(match row.get_ref(at).map_err(failed)? {
                ValueRef::Text(text) => Value::Text(utf8(table, text)?),
                ValueRef::Integer(number) => Value::Integer(number),
                // No column has another type, so the checksum will not match.
                _ => Value::Null,
            });
        }
        let found = values.pop();
        let checksum = table.checksum(&values);
        if width != table.columns.len() + 1 || found != Some(Value::Integer(checksum)) {
            return Err(Error::corrupt(format!(
                "a row of the catalog's table {} contradicts its checksum ({:?}): `platter rebuild` recreates the catalog",
                table.name,
                values.first().unwrap_or(&Value::Null)
            )));
        }
        take(Row { values, checksum })?;
    }
    Ok(())
}

/// Calls `take` for the rows of a table with correct checksums, up to the first row that cannot be read at all.
pub(super) fn read_sound(
    connection: &Connection,
    table: &Table,
    mut take: impl FnMut(&[Value]),
) -> Result<()> {
    let failed = |error| failed("reading a damaged catalog", error);
    let mut statement = connection.prepare(&format!("SELECT * FROM {}", table.name)).map_err(failed)?;
    let width = statement.column_count();
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let values: rusqlite::Result<Vec<Value>> = (0..width).map(|at| row.get(at)).collect();
        let Ok(mut values) = values else { continue };
        let found = values.pop();
        if width == table.columns.len() + 1 && found == Some(Value::Integer(table.checksum(&values))) {
            take(&values);
        }
    }
    Ok(())
}

/// Makes a version's row.
pub(super) fn version_row(version: &Version) -> Result<Vec<Value>> {
    let Version { name, record_id, record } = version;
    let time = record.time_unix_ms.into();
    let (image, number) = (text(&name.image), number(name.number));
    Ok(vec![image, number, text(record.score), time, text(record_id), text(record.to_json()?)])
}

fn utf8(table: &Table, text: &[u8]) -> Result<String> {
    String::from_utf8(text.to_vec()).map_err(|error| {
        Error::corrupt(format!("invalid text in the catalog's table {}", table.name)).with_source(error)
    })
}

/// Creates all tables, empty.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    SEALED.iter().chain([&&SEALS]).try_for_each(|table| connection.execute_batch(&table.sql()))
}

/// Verifies the catalog's tables: their names and the statements that created them, every row's checksum and every table's
/// seal.
pub(super) fn verify(connection: &Connection) -> Result<()> {
    // Tables are never removed, so their rows are numbered without a gap.
    let sql = "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') \
        || iif(typeof(type) || typeof(name) || typeof(tbl_name) || typeof(sql) = 'texttexttexttext' \
            AND (SELECT max(rowid) = count(*) FROM sqlite_master), '', ' damaged') \
        FROM sqlite_master ORDER BY name";
    let found = lines(connection, "reading the catalog's tables", sql)?;
    let mut expected: Vec<&Table> = SEALED.iter().chain([&&SEALS]).copied().collect();
    expected.sort_by_key(|table| table.name);
    let line = |table: &&Table| format!("table {0} {0} {1}", table.name, table.sql());
    if found != expected.iter().map(line).collect::<Vec<_>>() {
        return Err(Error::corrupt("the database does not have the tables of a catalog"));
    }
    for table in SEALED {
        let mut seal = Seal::default();
        visit(connection, table, "", &[], |row| {
            seal.add(&row);
            Ok(())
        })?;
        let kept = read_seal(connection, table)?;
        if seal != kept {
            return Err(Error::corrupt(format!(
                "the catalog's table {} has {} rows that do not match its seal over {} rows",
                table.name, seal.rows, kept.rows
            )));
        }
    }
    Ok(())
}

pub(super) fn read_seal(connection: &Connection, table: &Table) -> Result<Seal> {
    let rows = read(connection, &SEALS, &SEALS.where_key(), &[&table.name])?;
    let seal = rows.first().map(|row| Seal { rows: row.number(1), total: row.number(2) });
    Ok(seal.unwrap_or_default())
}

/// Converts to a text value.
#[expect(clippy::needless_pass_by_value, reason = "most callers pass a value made for this call")]
pub(super) fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

/// Converts to a number value. Larger numbers than SQLite's do not occur.
pub(super) fn number(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}
