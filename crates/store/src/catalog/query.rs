//! What is asked of the catalog.

use platter_image::{BlockId, Error, Result, Score};
use rusqlite::{Connection, Row, ToSql};

use super::{Catalog, Change, PackRow, PackState, failed};
use crate::identity::PackId;
use crate::name::{ImageName, NumberChoice};
use crate::record::VersionRecord;
use crate::resolve::Version;

/// Columns of a version, as [`RawVersion`] takes them.
const VERSION: &str = "image, number, score, record_id, record";

/// A version's row before it has been checked.
struct RawVersion {
    image: String,
    number: i64,
    score: String,
    record_id: String,
    record: String,
}

impl RawVersion {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            image: row.get(0)?,
            number: row.get(1)?,
            score: row.get(2)?,
            record_id: row.get(3)?,
            record: row.get(4)?,
        })
    }

    fn check(self) -> Result<Version> {
        let name = format!("{}@{}", self.image, self.number);
        let corrupt = || Error::corrupt(format!("the catalog's row of {name} does not agree with itself"));
        let record_id = BlockId::from_hex(&self.record_id).ok_or_else(corrupt)?;
        let record = VersionRecord::from_json(&self.record)
            .map_err(|error| error.within(format!("version {name}")))?;
        let agrees = record.image.as_str() == self.image
            && i64::try_from(record.number) == Ok(self.number)
            && record.score.to_string() == self.score;
        if agrees { Ok(Version { name: record.name(), record_id, record }) } else { Err(corrupt()) }
    }
}

impl Catalog {
    /// Every pack.
    pub(crate) fn packs(&self) -> Result<Vec<PackRow>> {
        let rows = self.rows(
            "reading the catalog's packs",
            "SELECT id, state, length, frames, blocks FROM packs ORDER BY id",
            &[],
            |row| {
                let number = |at: usize| row.get::<_, i64>(at).map(|value| value.max(0) as u64);
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, number(2)?, number(3)?, number(4)?))
            },
        )?;
        rows.into_iter()
            .map(|(id, state, length, frames, blocks)| {
                let parsed = PackId::from_hex(&id).zip(PackState::from_word(&state));
                let (id, state) = parsed.ok_or_else(|| {
                    Error::corrupt(format!("the catalog has a pack {id:?} in state {state:?}"))
                })?;
                Ok(PackRow { id, state, length, frames, blocks })
            })
            .collect()
    }

    /// Images that have versions, by name, each with its newest version.
    pub(crate) fn newest_versions(&self) -> Result<Vec<Version>> {
        let sql = format!(
            "SELECT {VERSION} FROM versions AS v WHERE number =
             (SELECT max(number) FROM versions WHERE image = v.image) ORDER BY image"
        );
        self.versions(&sql, &[])
    }

    /// Every version.
    pub(crate) fn all_versions(&self) -> Result<Vec<Version>> {
        self.versions(&format!("SELECT {VERSION} FROM versions ORDER BY image, number"), &[])
    }

    /// The versions of an image, the newest first.
    pub(crate) fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let sql = format!("SELECT {VERSION} FROM versions WHERE image = ?1 ORDER BY number DESC");
        self.versions(&sql, &[&image.as_str()])
    }

    /// One version of an image.
    pub(crate) fn version(&self, image: &ImageName, choice: NumberChoice) -> Result<Option<Version>> {
        let found = match choice {
            NumberChoice::Latest => self.versions(
                &format!("SELECT {VERSION} FROM versions WHERE image = ?1 ORDER BY number DESC LIMIT 1"),
                &[&image.as_str()],
            ),
            NumberChoice::Number(number) => self.versions(
                &format!("SELECT {VERSION} FROM versions WHERE image = ?1 AND number = ?2"),
                &[&image.as_str(), &i64::try_from(number).unwrap_or(i64::MAX)],
            ),
        }?;
        Ok(found.into_iter().next())
    }

    /// The versions of that score, the oldest first.
    pub(crate) fn versions_of(&self, score: Score) -> Result<Vec<Version>> {
        versions_of(&self.connection, score)
    }

    /// The highest number that each image ever had.
    pub(crate) fn last_numbers(&self) -> Result<Vec<(ImageName, u64)>> {
        let sql = "SELECT name, last_number FROM images";
        let take = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
        let found = self.rows("reading the catalog's images", sql, &[], take)?;
        let check = |(name, number): (String, i64)| -> Result<(ImageName, u64)> {
            let number = u64::try_from(number);
            Ok((
                name.parse()?,
                number.map_err(|_| Error::corrupt(format!("image {name}: a last number below 0")))?,
            ))
        };
        found.into_iter().map(check).collect()
    }

    /// A number that changes when another connection has changed the catalog.
    pub(crate) fn data_version(&self) -> Result<i64> {
        let read = self.connection.pragma_query_value(None, "data_version", |row| row.get(0));
        read.map_err(|error| failed("asking whether the catalog has changed", error))
    }

    /// What SQLite finds wrong with the file; nothing, if it is sound.
    pub(crate) fn integrity(&self) -> Result<Vec<String>> {
        let doing = "checking the catalog's file";
        let found: Vec<String> = self.rows(doing, "PRAGMA integrity_check(100)", &[], |row| row.get(0))?;
        let lost = self.rows(doing, "PRAGMA foreign_key_check", &[], |row| row.get::<_, String>(0))?;
        let lost = lost.into_iter().map(|table| format!("a row of {table} refers to nothing"));
        Ok(found.into_iter().filter(|line| line != "ok").chain(lost).collect())
    }

    fn versions(&self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Version>> {
        versions(&self.connection, sql, parameters)
    }

    pub(super) fn rows<T>(
        &self,
        doing: &str,
        sql: &str,
        parameters: &[&dyn ToSql],
        take: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        rows(&self.connection, doing, sql, parameters, take)
    }
}

impl Change<'_> {
    /// The versions of an image and of all images below it, by image and number.
    pub(crate) fn versions_below(&self, image: &ImageName) -> Result<Vec<Version>> {
        // '0' is the character after '/': between the two is all that begins with the name and a slash.
        let sql = format!(
            "SELECT {VERSION} FROM versions WHERE image = ?1 OR (image > ?1 || '/' AND image < ?1 || '0')
             ORDER BY image, number"
        );
        versions(self.transaction, &sql, &[&image.as_str()])
    }

    /// The highest number that a version of an image ever had; 0 if there was none.
    pub(crate) fn last_number(&self, image: &ImageName) -> Result<u64> {
        let doing = "reading the last number of an image from the catalog";
        let sql = "SELECT last_number FROM images WHERE name = ?1";
        let numbers: Vec<i64> = rows(self.transaction, doing, sql, &[&image.as_str()], |row| row.get(0))?;
        let number = numbers.first().copied().unwrap_or(0);
        u64::try_from(number).map_err(|_| Error::corrupt(format!("image {image}: a last number of {number}")))
    }
}

/// As [`Catalog::versions_of`].
pub(super) fn versions_of(connection: &Connection, score: Score) -> Result<Vec<Version>> {
    let sql = format!("SELECT {VERSION} FROM versions WHERE score = ?1 ORDER BY time_unix_ms, image, number");
    versions(connection, &sql, &[&score.to_string()])
}

fn versions(connection: &Connection, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Version>> {
    let raw = rows(connection, "reading versions from the catalog", sql, parameters, RawVersion::from_row)?;
    raw.into_iter().map(RawVersion::check).collect()
}

fn rows<T>(
    connection: &Connection,
    doing: &str,
    sql: &str,
    parameters: &[&dyn ToSql],
    take: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let failed = |error| failed(doing, error);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let rows = statement.query_map(parameters, take).map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<T>>>().map_err(failed)
}
