//! All rows that the log covers, in memory: read from the log or from the catalog.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{BlockId, Error, ErrorKind, Result};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{ChangeLogContents, Entry};
use crate::catalog::pack_row::PackRow;
use crate::catalog::row::{Cell, RowChange};
use crate::catalog::set_sums::{SET_SUMS, SetSums};
use crate::catalog::table::{
    self, Digest, EDIT_LOCKS, FORMER, HOARD, HOARD_REVISIONS, IMAGES, LAST_EDIT_LOCK, META, PACKS, SEALED,
    Table, VERSIONS, is_hoard_key,
};
use platter_records::{ImageName, Version, VersionName, VersionRecord};

/// Maximum bytes of rows in one entry of a copy of all rows.
const COPIED_TOGETHER: usize = 1 << 20;

/// Rows by the number of their table and their primary key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State(BTreeMap<(usize, Vec<Cell>), Vec<Cell>>);

fn place_of(name: &str) -> Option<(usize, &'static Table)> {
    SEALED.into_iter().enumerate().find(|(_, table)| table.name == name)
}

impl State {
    /// Returns the rows that a log's valid entries produce.
    pub(crate) fn replay(contents: &ChangeLogContents) -> Self {
        let mut state = Self::default();
        contents.entries.iter().for_each(|entry| state.apply(entry));
        state
    }

    /// Applies one change. The result depends on nothing else.
    pub(crate) fn apply(&mut self, entry: &Entry) {
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
        for (place, table) in SEALED.into_iter().enumerate() {
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
        for (place, table) in SEALED.into_iter().enumerate() {
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
        for (place, table) in SEALED.into_iter().enumerate() {
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

    /// Returns the names of all versions that exist or once existed. Skips invalid rows.
    pub(crate) fn names(&self) -> BTreeSet<VersionName> {
        let tables = [VERSIONS.name, FORMER.name].into_iter().filter_map(place_of);
        let rows = tables.flat_map(|(place, _)| self.rows_of(place));
        let name = |row: &Vec<Cell>| match &row[..] {
            [Cell::Text(image), Cell::Number(number), ..] => {
                Some(VersionName { image: image.parse().ok()?, number: u64::try_from(*number).ok()? })
            }
            _ => None,
        };
        rows.filter_map(name).collect()
    }

    /// Returns its packs. Skips invalid rows.
    pub(crate) fn packs(&self) -> Vec<PackRow> {
        let rows = place_of(PACKS.name).into_iter().flat_map(|(place, _)| self.rows_of(place));
        rows.filter_map(|row| PackRow::parse(&Self::values(row)).ok()).collect()
    }

    /// Returns how its packs contradict its set sums. A state without sums cannot.
    pub(crate) fn contradiction_of_packs(&self) -> Option<String> {
        let sums = SetSums::from_text(&self.meta(SET_SUMS)?);
        sums.map_or_else(|error| Some(error.with_causes()), |sums| sums.contradiction(&self.packs()))
    }

    fn meta(&self, key: &str) -> Option<String> {
        let (place, _) = place_of(META.name)?;
        match self.0.get(&(place, vec![Cell::Text(key.to_owned())]))?.get(1)? {
            Cell::Text(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Removes all packs, and their set sums.
    pub(crate) fn drop_packs(&mut self) {
        self.drop_rows(PACKS.name);
        if let Some((place, _)) = place_of(META.name) {
            self.0.remove(&(place, vec![Cell::Text(SET_SUMS.to_owned())]));
        }
    }

    fn drop_rows(&mut self, table: &str) {
        if let Some((dropped, _)) = place_of(table) {
            self.0.retain(|(place, _), _| *place != dropped);
        }
    }

    /// Removes the members and revisions of the hoard. A new sequence of revisions begins.
    pub(crate) fn drop_hoard(&mut self) {
        self.drop_rows(HOARD.name);
        self.drop_rows(HOARD_REVISIONS.name);
        let is_fact = |row: &[Cell]| matches!(row, [Cell::Text(key), _] if is_hoard_key(key));
        let meta = place_of(META.name).map(|(place, _)| place);
        self.0.retain(|(place, _), row| Some(*place) != meta || !is_fact(row));
    }

    /// Removes all edit locks.
    pub(crate) fn drop_edit_locks(&mut self) {
        self.drop_rows(EDIT_LOCKS.name);
    }

    /// Lists the rows that differ in another state, each as its table and key.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let keys = self.0.keys().chain(other.0.keys());
        let mut keys: Vec<_> = keys.filter(|key| self.0.get(*key) != other.0.get(*key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let tables = SEALED;
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

    /// Returns changes that produce these rows, grouped so that no group gets much longer than 1 MiB. At least one group.
    pub(in crate::catalog) fn copy(&self) -> Vec<Vec<RowChange>> {
        let (mut groups, mut group, mut length) = (Vec::new(), Vec::new(), 0);
        for ((place, _), row) in &self.0 {
            let change = RowChange::put(SEALED[*place], row.clone());
            length += change.length();
            group.push(change);
            if length > COPIED_TOGETHER {
                groups.push(std::mem::take(&mut group));
                length = 0;
            }
        }
        if !group.is_empty() || groups.is_empty() {
            groups.push(group);
        }
        groups
    }
}

/// Parses a version's row.
pub(super) fn version_of(record_id: &str, record: &str) -> Result<Version> {
    let record = VersionRecord::from_json(record)?;
    let record_id = BlockId::from_hex(record_id)
        .ok_or_else(|| Error::corrupt(format!("a version has an invalid record id {record_id:?}")))?;
    Ok(Version { name: record.name(), record_id, record })
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
