//! The catalog's tables, and the one way to read and change their rows: every row ends in a checksum of itself, and the
//! table `seals` has the number of rows of each table and the sum of their checksums.
//!
//! So no flipped byte of the file passes for another answer. A row that changed contradicts its checksum when it is
//! read. A row that disappeared, or stands twice, contradicts the table's seal, which is compared whenever the catalog
//! is opened or checked. There is no index besides the primary keys, whose rows these are: nothing stands anywhere
//! without being covered.

use std::collections::BTreeMap;
use std::hash::Hasher;

use platter_image::{Error, Result};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use twox_hash::XxHash3_64;

use super::row::{Cell, RowChange};
use super::{Change, failed, lines};
use crate::resolve::Version;

/// A table; its primary key is the first `keys` columns.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Columns with their types, in SQL, without the checksum.
    columns: &'static [(&'static str, &'static str)],
    keys: usize,
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
pub(super) const TOKENS: Table = Table {
    name: "tokens",
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
const SEALS: Table =
    Table { name: "seals", columns: &[("name", TEXT), ("rows", INTEGER), ("total", INTEGER)], keys: 1 };

/// Every table that has a seal.
pub(super) const SEALED: [&Table; 8] =
    [&META, &PACKS, &IMAGES, &VERSIONS, &TOKENS, &HOARD, &HOARD_REVISIONS, &HOARD_FOLLOWED];

/// Key in `meta` of the store's id, and of what the catalog says of its log.
pub(super) const STORE: &str = "store";
pub(super) const LOG: &str = "log";

/// The tables that the log of changes tells of: all but the packs, which are files.
pub(super) fn logged() -> impl Iterator<Item = &'static Table> {
    SEALED.into_iter().filter(|table| table.name != PACKS.name)
}

/// Column of the checksum.
const SUM: &str = "checksum";

impl Table {
    /// The statement that makes it, as SQLite keeps it.
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

    /// `WHERE` the primary key is the first parameters.
    fn where_key(&self) -> String {
        let terms = self.columns[..self.keys].iter().zip(1..);
        let terms: Vec<String> = terms.map(|((name, _), number)| format!("{name} = ?{number}")).collect();
        format!("WHERE {}", terms.join(" AND "))
    }

    /// The primary key in a row.
    pub(super) fn key_of<'a>(&self, row: &'a [Cell]) -> &'a [Cell] {
        &row[..self.keys.min(row.len())]
    }

    /// Whether a row, without its checksum, has the columns' types.
    pub(super) fn fits_row(&self, row: &[Cell]) -> bool {
        row.len() == self.columns.len() && self.fits(row)
    }

    /// Whether a primary key has the columns' types.
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

    /// Whether a row, or a primary key, is what the catalog says of itself: that is no part of the log.
    pub(super) fn is_own(&self, row: &[Cell]) -> bool {
        let key = match row.first() {
            Some(Cell::Text(key)) => key.as_str(),
            _ => "",
        };
        self.name == META.name && [STORE, LOG].contains(&key)
    }

    fn checksum(&self, row: &[Value]) -> i64 {
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
                // The columns have no other types.
                _ => take(3, &[]),
            }
        }
        hasher.finish().cast_signed()
    }
}

/// A row whose checksum was right, without the checksum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) values: Vec<Value>,
    checksum: i64,
}

impl Row {
    /// The text in that column; empty when it is none, which the checksum does not allow.
    pub(super) fn text(&self, at: usize) -> &str {
        match self.values.get(at) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The number in that column.
    pub(super) fn number(&self, at: usize) -> i64 {
        match self.values.get(at) {
            Some(Value::Integer(number)) => *number,
            _ => 0,
        }
    }
}

/// How many rows a table has, and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seal {
    rows: i64,
    total: i64,
}

impl Seal {
    fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.total = self.total.wrapping_add(row.checksum);
    }

    fn remove(&mut self, row: &Row) {
        self.rows -= 1;
        self.total = self.total.wrapping_sub(row.checksum);
    }
}

/// What the rows come to that the log tells of: one number for all of them, from the seals of their tables.
#[derive(Default)]
pub(super) struct Digest(XxHash3_64);

impl Digest {
    /// Adds a table, next in the order of [`logged`].
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

    /// In hexadecimal digits.
    pub(super) fn finish(self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

/// The digest of the catalog's rows, from its seals.
pub(super) fn digest(connection: &Connection) -> Result<String> {
    let mut digest = Digest::default();
    for table in logged() {
        let mut seal = read_seal(connection, table)?;
        if table.name == META.name {
            for own in read(connection, table, "WHERE key = ?1 OR key = ?2", &[&STORE, &LOG])? {
                seal.remove(&own);
            }
        }
        digest.add_seal(table, seal);
    }
    Ok(digest.finish())
}

/// Seals by the names of their tables, as far as they were read or changed.
pub(super) type Seals = BTreeMap<&'static str, Seal>;

/// The rows of a table that `tail`, the rest of the statement, selects.
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
                // The columns have no other types: the checksum will not be right.
                _ => Value::Null,
            });
        }
        let found = values.pop();
        let checksum = table.checksum(&values);
        if width != table.columns.len() + 1 || found != Some(Value::Integer(checksum)) {
            return Err(Error::corrupt(format!(
                "a row of the catalog's table {} contradicts its checksum ({:?}): `platter rebuild` makes it anew",
                table.name,
                values.first().unwrap_or(&Value::Null)
            )));
        }
        take(Row { values, checksum })?;
    }
    Ok(())
}

/// The rows of a table that are right by their checksums, up to the first that cannot be read at all.
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

/// A version's row.
pub(super) fn version_row(version: &Version) -> Result<Vec<Value>> {
    let Version { name, record_id, record } = version;
    let time = record.time_unix_ms.into();
    let (image, number) = (text(&name.image), number(name.number));
    Ok(vec![image, number, text(record.score), time, text(record_id), text(record.to_json()?)])
}

fn utf8(table: &Table, text: &[u8]) -> Result<String> {
    String::from_utf8(text.to_vec())
        .map_err(|error| Error::corrupt(format!("text in the catalog's {}", table.name)).with_source(error))
}

/// Makes all tables, empty.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    SEALED.iter().chain([&&SEALS]).try_for_each(|table| connection.execute_batch(&table.sql()))
}

/// Compares all of the catalog with itself: the statements that made the tables, every row with its checksum, every table
/// with its seal.
pub(super) fn verify(connection: &Connection) -> Result<()> {
    let sql = "SELECT coalesce(sql, '') FROM sqlite_master ORDER BY name";
    let found = lines(connection, "reading the catalog's tables", sql)?;
    let mut expected: Vec<&Table> = SEALED.iter().chain([&&SEALS]).copied().collect();
    expected.sort_by_key(|table| table.name);
    if found != expected.iter().map(|table| table.sql()).collect::<Vec<_>>() {
        return Err(Error::corrupt("the catalog's tables are not those of a catalog"));
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
                "the catalog's table {} has {} rows and not those {} that it should have",
                table.name, seal.rows, kept.rows
            )));
        }
    }
    Ok(())
}

fn read_seal(connection: &Connection, table: &Table) -> Result<Seal> {
    let rows = read(connection, &SEALS, &SEALS.where_key(), &[&table.name])?;
    let seal = rows.first().map(|row| Seal { rows: row.number(1), total: row.number(2) });
    Ok(seal.unwrap_or_default())
}

impl Change<'_> {
    /// The row of that primary key.
    pub(super) fn row(&self, table: &Table, key: &[Value]) -> Result<Option<Row>> {
        let key: Vec<&dyn ToSql> = key.iter().map(|value| value as &dyn ToSql).collect();
        Ok(read(self.transaction, table, &table.where_key(), &key)?.into_iter().next())
    }

    /// Enters a row, instead of one that has its primary key.
    pub(super) fn put(&mut self, table: &'static Table, values: Vec<Value>) -> Result<()> {
        let old = self.row(table, &values[..table.keys])?;
        if old.as_ref().is_some_and(|old| old.values == values) {
            return Ok(());
        }
        self.remove_row(table, old)?;
        self.note(table, &values, true);
        let row = Row { checksum: table.checksum(&values), values };
        let marks: Vec<String> = (0..=row.values.len()).map(|number| format!("?{}", number + 1)).collect();
        let sql = format!("INSERT INTO {} VALUES ({})", table.name, marks.join(", "));
        let sum = Value::Integer(row.checksum);
        let inserted = self
            .transaction
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(row.values.iter().chain([&sum]))))
            .map_err(|error| failed(&format!("entering a row of {} in the catalog", table.name), error))?;
        if inserted != 1 {
            return Err(Error::corrupt(format!("a row of {} was not entered in the catalog", table.name)));
        }
        self.seal(table)?.add(&row);
        Ok(())
    }

    /// Removes the row of that primary key, if there is one.
    pub(super) fn remove(&mut self, table: &'static Table, key: &[Value]) -> Result<()> {
        let old = self.row(table, key)?;
        if old.is_some() {
            self.note(table, key, false);
        }
        self.remove_row(table, old)
    }

    fn remove_row(&mut self, table: &'static Table, old: Option<Row>) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        let sql = format!("DELETE FROM {} {}", table.name, table.where_key());
        let removed = self
            .transaction
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(&old.values[..table.keys])))
            .map_err(|error| failed(&format!("removing a row of {} from the catalog", table.name), error))?;
        if removed != 1 {
            return Err(Error::corrupt(format!("{removed} rows of {} were removed for one", table.name)));
        }
        self.seal(table)?.remove(&old);
        Ok(())
    }

    /// Notes a change for the log.
    fn note(&mut self, table: &'static Table, values: &[Value], is_put: bool) {
        let cells: Vec<Cell> = values.iter().map(Cell::from).collect();
        let Some(log) = self.log.as_mut().filter(|_| table.name != PACKS.name && !table.is_own(&cells))
        else {
            return;
        };
        let (put, gone) = if is_put { (cells, Vec::new()) } else { (Vec::new(), cells) };
        log.push(RowChange { table: table.name.to_owned(), put, gone });
    }

    fn seal(&mut self, table: &'static Table) -> Result<&mut Seal> {
        if !self.seals.contains_key(table.name) {
            self.seals.insert(table.name, read_seal(self.transaction, table)?);
        }
        Ok(self.seals.entry(table.name).or_default())
    }

    /// Writes the seals of the tables that were changed: last of all.
    pub(super) fn write_seals(&mut self) -> Result<()> {
        for (name, seal) in std::mem::take(&mut self.seals) {
            let values =
                vec![Value::Text(name.into()), Value::Integer(seal.rows), Value::Integer(seal.total)];
            let checksum = SEALS.checksum(&values);
            self.transaction
                .execute(
                    "INSERT OR REPLACE INTO seals VALUES (?1, ?2, ?3, ?4)",
                    (name, seal.rows, seal.total, checksum),
                )
                .map_err(|error| failed(&format!("sealing {name} in the catalog"), error))?;
        }
        Ok(())
    }
}

/// A text, as rows have it.
#[expect(clippy::needless_pass_by_value, reason = "what is written as text is most often made for it")]
pub(super) fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

/// A number, as rows have it: none of ours is larger.
pub(super) fn number(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}
