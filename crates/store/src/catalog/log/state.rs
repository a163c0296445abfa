//! All rows that the log covers, in memory: read from the log or from the catalog.

use std::collections::BTreeMap;

use platter_image::{ErrorKind, Result};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::past::version_of;
use super::{ChangeLogContents, Entry};
use crate::catalog::edit_lock::LAST_EDIT_LOCK;
use crate::catalog::row::{Cell, RowChange};
use crate::catalog::table::{self, Digest, EDIT_LOCKS, IMAGES, META, Table, VERSIONS, logged};
use platter_records::ImageName;
use platter_records::Version;

/// Maximum bytes of rows in one entry of a copy of all rows.
const COPIED_TOGETHER: usize = 1 << 20;

/// Rows by the number of their table and their primary key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State(BTreeMap<(usize, Vec<Cell>), Vec<Cell>>);

fn place_of(name: &str) -> Option<(usize, &'static Table)> {
    logged().enumerate().find(|(_, table)| table.name == name)
}

impl State {
    /// Returns the rows that a log's valid entries produce.
    pub(crate) fn replay(contents: &ChangeLogContents) -> Self {
        let mut state = Self::default();
        contents.entries.iter().for_each(|entry| state.apply(entry));
        state
    }

    fn apply(&mut self, entry: &Entry) {
        for row in &entry.rows {
            // Parsing the entry has checked that its tables exist and its rows fit them.
            let Some((place, table)) = place_of(&row.table) else { continue };
            if row.put.is_empty() {
                self.0.remove(&(place, row.gone.clone()));
            } else {
                self.0.insert((place, table.key_of(&row.put).to_vec()), row.put.clone());
            }
        }
    }

    /// Reads the rows from the catalog.
    pub(in crate::catalog) fn read(connection: &Connection) -> Result<Self> {
        let mut state = Self::default();
        for (place, table) in logged().enumerate() {
            for row in table::read(connection, table, "", &[])? {
                state.add(place, table, &row.values);
            }
        }
        Ok(state)
    }

    /// Reads the rows with correct checksums from a damaged catalog, as far as it can be read.
    ///
    /// # Errors
    /// All kinds except `Corrupt`.
    pub(in crate::catalog) fn read_sound(connection: &Connection) -> Result<Self> {
        let mut state = Self::default();
        for (place, table) in logged().enumerate() {
            let read = table::read_sound(connection, table, |values| state.add(place, table, values));
            match read {
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                read => read?,
            }
        }
        Ok(state)
    }

    fn add(&mut self, place: usize, table: &Table, values: &[Value]) {
        let cells: Vec<Cell> = values.iter().map(Cell::from).collect();
        if !table.is_own(&cells) && table.fits_row(&cells) {
            self.0.insert((place, table.key_of(&cells).to_vec()), cells);
        }
    }

    /// Returns all rows, each with the number of its table.
    pub(in crate::catalog) fn rows(&self) -> impl Iterator<Item = (usize, Vec<Value>)> {
        self.0.iter().map(|((place, _), row)| (*place, Self::values(row)))
    }

    fn values(cells: &[Cell]) -> Vec<Value> {
        cells.iter().map(Value::from).collect()
    }

    /// Computes the digest of all rows. It equals the one that the catalog's seals yield.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Digest::default();
        for (place, table) in logged().enumerate() {
            let rows = self.rows_of(place).map(|row| Self::values(row));
            digest.add(table, rows);
        }
        digest.finish()
    }

    fn rows_of(&self, place: usize) -> impl Iterator<Item = &Vec<Cell>> {
        self.0.range((place, Vec::new())..(place + 1, Vec::new())).map(|(_, row)| row)
    }

    /// Returns its versions. Skips invalid rows.
    pub(crate) fn versions(&self) -> Vec<Version> {
        let rows = place_of(VERSIONS.name).into_iter().flat_map(|(place, _)| self.rows_of(place));
        let version = |row: &Vec<Cell>| match &row[..] {
            [_, _, _, _, Cell::Text(id), Cell::Text(record)] => version_of(id, record).ok(),
            _ => None,
        };
        rows.filter_map(version).collect()
    }

    /// Returns the highest assigned numbers of each image's versions and of edit locks. Skips invalid rows.
    pub(crate) fn last_numbers(&self) -> (Vec<(ImageName, u64)>, u64) {
        let rows = |name: &str| place_of(name).into_iter().flat_map(|(place, _)| self.rows_of(place));
        let image = |row: &Vec<Cell>| match &row[..] {
            [Cell::Text(image), Cell::Number(number)] => image.parse().ok().zip(u64::try_from(*number).ok()),
            _ => None,
        };
        let edit_lock = |row: &Vec<Cell>| match &row[..] {
            [Cell::Text(key), Cell::Text(value)] if key == LAST_EDIT_LOCK => value.parse().ok(),
            _ => None,
        };
        (rows(IMAGES.name).filter_map(image).collect(), rows(META.name).find_map(edit_lock).unwrap_or(0))
    }

    /// Removes all edit locks.
    pub(crate) fn drop_edit_locks(&mut self) {
        if let Some((edit_locks, _)) = place_of(EDIT_LOCKS.name) {
            self.0.retain(|(place, _), _| *place != edit_locks);
        }
    }

    /// Lists the rows that differ in another state, each as its table and key.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let keys = self.0.keys().chain(other.0.keys());
        let mut keys: Vec<_> = keys.filter(|key| self.0.get(*key) != other.0.get(*key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let tables: Vec<&Table> = logged().collect();
        let name = |cell: &Cell| match cell {
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => text.clone(),
            Cell::Null => String::new(),
        };
        let named = |(place, key): &(usize, Vec<Cell>)| {
            let key: Vec<String> = key.iter().map(name).collect();
            format!("{} {}", tables[*place].name, key.join("@"))
        };
        keys.into_iter().map(named).collect()
    }

    /// Returns entries that produce these rows. They begin by writing and removing the forgotten versions, to record them.
    pub(crate) fn entries(&self, forgotten: &[Version]) -> Result<Vec<Entry>> {
        let (mut put, mut gone) = (Vec::new(), Vec::new());
        for version in forgotten {
            let row: Vec<Cell> = table::version_row(version)?.iter().map(Cell::from).collect();
            gone.push(RowChange {
                gone: VERSIONS.key_of(&row).to_vec(),
                ..RowChange::put(&VERSIONS, Vec::new())
            });
            put.push(RowChange::put(&VERSIONS, row));
        }
        let tables: Vec<&Table> = logged().collect();
        let rows = self.0.iter().map(|((place, _), row)| RowChange::put(tables[*place], row.clone()));
        let (mut entries, mut entry, mut length) = (Vec::new(), Vec::new(), 0);
        for row in put.into_iter().chain(gone).chain(rows) {
            length += row.length();
            entry.push(row);
            if length > COPIED_TOGETHER {
                entries.push(Entry { rows: std::mem::take(&mut entry), after: String::new() });
                length = 0;
            }
        }
        entries.push(Entry { rows: entry, after: self.digest() });
        Ok(entries)
    }
}

impl RowChange {
    /// Returns the approximate length of the serialized change in bytes.
    fn length(&self) -> usize {
        let cell = |cell: &Cell| match cell {
            Cell::Text(text) => text.len(),
            _ => 8,
        };
        self.put.iter().chain(&self.gone).map(cell).sum::<usize>() + self.table.len()
    }
}
