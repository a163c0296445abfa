//! Rows as followers exchange them: those of images, versions, locks and the hoard, but not of packs and of the store itself.

use platter_image::{BlockId, Error, Result};
use platter_records::{ChangeRecord, ImageName, Standing, Version, VersionRecord};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::edit_lock::edit_lock;
use super::foreign::{FOLLOWED_NUMBER_MAX, refuse_impossible};
use super::former::{name_of, without_fate};
use super::hoard::member;
use super::log::{Entry, State};
use super::query::{meta, version};
use super::quota::{is_quota_key, quota};
use super::row::{Cell, RowChange};
use super::table::{
    EDIT_LOCKS, FORMER, HOARD, HOARD_EPOCH, HOARD_FOLLOWED, IMAGES, LAST_EDIT_LOCK, META, PACKS, PROTECTED,
    Row, SEALED, Table, VERSIONS, is_hoard_key,
};
use super::{Catalog, Change};

/// Key in `meta`: what the store is among its copies.
const STANDING: &str = "standing";

/// A change of an origin, as a follower applies it.
#[derive(Clone, Debug)]
pub struct ReplicatedChange {
    /// Who did what, and its number.
    pub record: ChangeRecord,
    /// Its hash, and that of the change before it.
    pub hash: String,
    /// See `hash`.
    pub before: String,
    /// Its rows, as far as followers have them.
    pub rows: Vec<RowChange>,
}

impl ReplicatedChange {
    /// Parses the text of a change.
    ///
    /// # Errors
    /// `Corrupt` when it is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entry = Entry::from_text(text)?;
        entry.rows.retain(RowChange::is_replicated);
        let Entry { hash, before, change, rows, .. } = entry;
        if change.number > FOLLOWED_NUMBER_MAX {
            return Err(Error::corrupt(format!("the number of change {} is impossible", change.number)));
        }
        rows.iter().try_for_each(RowChange::prove)?;
        Ok(Self { record: change, hash, before, rows })
    }
}

/// A table and a primary key.
pub type RowKey = (String, Vec<Cell>);

impl RowChange {
    fn table(&self) -> Option<&'static Table> {
        SEALED.into_iter().find(|table| table.name == self.table)
    }

    fn is_replicated(&self) -> bool {
        let Some(table) = self.table() else { return false };
        let key = match self.key().1.first() {
            Some(Cell::Text(key)) => key.clone(),
            _ => String::new(),
        };
        match table.name {
            name if name == META.name => key == LAST_EDIT_LOCK || is_hoard_key(&key) || is_quota_key(&key),
            name => name != PACKS.name,
        }
    }

    /// Reads the row as the catalog will: one that it refuses would be in the way of everything.
    ///
    /// # Errors
    /// `Corrupt`; `Refused` for numbers or sizes that are too high.
    fn prove(&self) -> Result<()> {
        let Some(table) = self.table().filter(|_| !self.put.is_empty()) else { return Ok(()) };
        let is_possible = |cell: &Cell| !matches!(cell, Cell::Number(number) if number.unsigned_abs() > FOLLOWED_NUMBER_MAX);
        if !self.put.iter().all(is_possible) {
            return Err(Error::corrupt(format!("a row of {} has an impossible number", table.name)));
        }
        let row = Row::unverified(self.put.iter().map(Value::from).collect());
        let version = |row: &Row| version(row).and_then(|version| refuse_impossible(&version.record));
        match table.name {
            name if name == VERSIONS.name => version(&row),
            name if name == FORMER.name => version(&without_fate(row)),
            name if name == PROTECTED.name => name_of(&row).map(drop),
            name if name == EDIT_LOCKS.name => edit_lock(&row).map(drop),
            name if name == HOARD.name => member(&row).map(drop),
            name if name == IMAGES.name || name == HOARD_FOLLOWED.name => {
                row.text(0).parse::<ImageName>().map(drop)
            }
            name if name == META.name => prove_meta(&row),
            _ => Ok(()),
        }
    }

    /// Which row it is.
    pub fn key(&self) -> RowKey {
        let key = match (self.put.is_empty(), self.table()) {
            (false, Some(table)) => table.key_of(&self.put).to_vec(),
            _ => self.gone.clone(),
        };
        (self.table.clone(), key)
    }

    /// Whether it removes the row.
    pub fn is_removal(&self) -> bool {
        self.put.is_empty()
    }

    /// The key under which a version is listed as former.
    pub fn former_key(version: &RowKey) -> RowKey {
        (FORMER.name.to_owned(), version.1.clone())
    }

    /// The change that removes this row.
    #[must_use]
    pub fn removal(&self) -> Self {
        let (table, gone) = self.key();
        Self { table, put: Vec::new(), gone }
    }

    /// The version that it enters, if it does that.
    ///
    /// # Errors
    /// `Corrupt` when the row contradicts its record.
    pub fn version(&self) -> Result<Option<Version>> {
        if self.table != VERSIONS.name || self.put.is_empty() {
            return Ok(None);
        }
        let values = self.put.iter().map(Value::from).collect();
        version(&Row::unverified(values)).map(Some)
    }

    /// The record of a version that was forgotten or renamed, if it lists one as such.
    pub fn former(&self) -> Option<VersionRecord> {
        match &self.put[..] {
            [_, _, _, _, _, Cell::Text(record)] if self.table == FORMER.name => {
                VersionRecord::from_json(record).ok()
            }
            _ => None,
        }
    }

    /// The key of the version that this row lists as former.
    pub fn version_key(former: &RowKey) -> RowKey {
        (VERSIONS.name.to_owned(), former.1.clone())
    }

    /// Whether a store keeps this row although its origin does not have it: which numbers were assigned, and which versions were
    /// forgotten or renamed. Records in packs have these numbers and names.
    pub fn outlives_origin(&self) -> bool {
        match self.table.as_str() {
            name if name == META.name => {
                matches!(self.key().1.first(), Some(Cell::Text(key)) if key == LAST_EDIT_LOCK)
            }
            name => name == IMAGES.name || name == FORMER.name,
        }
    }

    /// The boot set that it enters, with the name of its version, if it does that.
    pub fn boot_set(&self) -> Option<(BlockId, String)> {
        match &self.put[..] {
            [Cell::Text(image), Cell::Number(number), _, _, _, Cell::Text(id), _]
                if self.table == HOARD.name =>
            {
                Some((BlockId::from_hex(id)?, format!("{image}@{number}")))
            }
            _ => None,
        }
    }

    /// Whether it says which numbers of an image are used.
    pub fn is_of_numbers(&self) -> bool {
        self.table == IMAGES.name
    }

    /// Parses a row from JSON.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| Error::corrupt("invalid row of a follower").with_source(error))
    }

    /// Serializes the row as JSON.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::bug("cannot serialize a row").with_source(error))
    }
}

/// Reads a row of `meta` that followers have.
fn prove_meta(row: &Row) -> Result<()> {
    let (key, value) = (row.text(0), row.text(1));
    if is_quota_key(key) {
        return quota(row).map(drop);
    }
    match value.parse::<i64>() {
        _ if key == HOARD_EPOCH => Ok(()),
        Ok(number) if number.unsigned_abs() <= FOLLOWED_NUMBER_MAX => Ok(()),
        _ => Err(Error::corrupt(format!("the origin's {key} is {value:?}"))),
    }
}

fn standing(connection: &Connection) -> Result<Standing> {
    let text = meta(connection, STANDING)?;
    text.map_or(Ok(Standing::default()), |text| {
        serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("the catalog's standing is invalid").with_source(error))
    })
}

impl Catalog {
    /// What the store is among its copies.
    pub(crate) fn standing(&self) -> Result<Standing> {
        standing(&self.connection)
    }

    /// Returns all rows that followers have.
    pub(crate) fn replicated_rows(&self) -> Result<Vec<RowChange>> {
        let mut rows: Vec<RowChange> = State::read(&self.connection)?.copy().concat();
        rows.retain(RowChange::is_replicated);
        Ok(rows)
    }
}

impl Change<'_> {
    /// What the store is among its copies.
    pub(crate) fn standing(&self) -> Result<Standing> {
        standing(self.transaction)
    }

    pub(crate) fn set_standing(&mut self, standing: &Standing) -> Result<()> {
        let text = serde_json::to_string(standing)
            .map_err(|error| Error::bug("cannot serialize a standing").with_source(error))?;
        self.set_meta(STANDING, &text)
    }

    /// Whether no image ever had a version.
    pub(crate) fn last_numbers_are_empty(&self) -> Result<bool> {
        Ok(super::table::read(self.transaction, &IMAGES, "LIMIT 1", &[])?.is_empty())
    }

    /// Writes and removes rows of an origin. Assigned numbers never go down, because records in packs have them. A version that is
    /// removed, or replaced by another one, without having been forgotten or renamed at the origin is listed as forgotten.
    pub(crate) fn apply(&mut self, rows: &[RowChange]) -> Result<()> {
        for row in rows.iter().filter(|row| row.is_replicated()) {
            let Some(table) = row.table() else { continue };
            match (table.name, &row.put[..]) {
                (name, [Cell::Text(image), Cell::Number(last)]) if name == IMAGES.name => {
                    let image: ImageName = image.parse()?;
                    self.raise_last_number(&image, u64::try_from(*last).unwrap_or(0))?;
                }
                (name, [Cell::Text(key), Cell::Text(last)]) if name == META.name && key == LAST_EDIT_LOCK => {
                    self.raise_last_edit_lock(last.parse().unwrap_or(0))?;
                }
                (name, []) if name == IMAGES.name || name == META.name && row.outlives_origin() => {}
                (name, _) => {
                    if name == VERSIONS.name {
                        self.supersede(row)?;
                    }
                    self.raise_as_named(row)?;
                    match row.put.is_empty() {
                        false => self.put(table, row.put.iter().map(Value::from).collect())?,
                        true => self.remove(table, &row.gone.iter().map(Value::from).collect::<Vec<_>>())?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Raises the highest assigned numbers to those of the version or edit lock that this row enters: the catalog refuses higher ones, and an
    /// origin may be wrong about them.
    fn raise_as_named(&mut self, row: &RowChange) -> Result<()> {
        let [Cell::Text(image), Cell::Number(number), ..] = &row.put[..] else { return Ok(()) };
        let number = u64::try_from(*number)
            .map_err(|_| Error::corrupt(format!("the row of {image}: its number {number} is negative")))?;
        match row.table.as_str() {
            name if name == VERSIONS.name || name == FORMER.name => {
                self.raise_last_number(&image.parse()?, number)
            }
            name if name == EDIT_LOCKS.name => self.raise_last_edit_lock(number),
            _ => Ok(()),
        }
    }

    /// Lists the version that this row removes or replaces as forgotten, unless it is listed as former already or stays the same.
    fn supersede(&mut self, row: &RowChange) -> Result<()> {
        let key: Vec<Value> = row.key().1.iter().map(Value::from).collect();
        let Some(here) = self.row(&VERSIONS, &key)? else { return Ok(()) };
        let here = version(&here)?;
        let stays = row.version()?.is_some_and(|new| new.record.is_same_version(&here.record));
        // A row that the origin has written says what became of its own version of that name.
        if stays || row.is_removal() && self.is_former(&here.name)? {
            return Ok(());
        }
        self.add_forgotten(&here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an origin sends and the catalog would refuse when it is read.
    #[test]
    fn rows_that_the_catalog_refuses_are_not_entered() {
        let prove = |row: &str| RowChange::from_json(row).and_then(|row| row.prove());
        for sound in [
            r#"{"table":"meta","put":["quota/x","5"]}"#,
            r#"{"table":"meta","put":["last_edit_lock","7"]}"#,
            r#"{"table":"meta","put":["hoard_epoch","ab"]}"#,
            r#"{"table":"images","put":["lab/x",4503599627370496]}"#,
            r#"{"table":"edit_locks","put":["lab/x",3,"me",7,""]}"#,
            r#"{"table":"protected","put":["lab/x",3,7]}"#,
            r#"{"table":"former","gone":["lab/x",5]}"#,
        ] {
            assert!(prove(sound).is_ok(), "{sound}: {:?}", prove(sound));
        }
        for wrong in [
            r#"{"table":"meta","put":["quota/x","y"]}"#,
            r#"{"table":"meta","put":["last_edit_lock","9223372036854775807"]}"#,
            r#"{"table":"meta","put":["hoard_day","never"]}"#,
            r#"{"table":"images","put":["lab/x",9223372036854775807]}"#,
            r#"{"table":"images","put":["../x",1]}"#,
            r#"{"table":"edit_locks","put":["../x",3,"me",7,""]}"#,
            r#"{"table":"protected","put":["lab/x",-3,7]}"#,
            r#"{"table":"hoard","put":["lab/x",1,1,null,0,"no hex","{}"]}"#,
            r#"{"table":"hoard_followed","put":["../x","{}"]}"#,
            r#"{"table":"former","put":["lab/x",5,"forgotten",7,"00","{}"]}"#,
        ] {
            assert!(prove(wrong).is_err(), "{wrong}");
        }
    }
}
