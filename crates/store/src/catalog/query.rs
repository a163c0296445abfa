//! Queries of the catalog.

use platter_image::{BlockId, Error, Result, Score};
use rusqlite::{Connection, ToSql};

use super::log::{State, is_end_damaged as is_log_end_damaged};
use super::table::{self, IMAGES, META, PACKS, Row, VERSIONS};
use super::write::{compare, read_head};
use super::{Catalog, Change, PackRow, failed, lines};
use crate::place::StorePlace;
use platter_records::Version;
use platter_records::VersionRecord;
use platter_records::{ImageName, NumberChoice};

/// If catalog and log were lost, the next version of each image gets a number that is higher than the last known one by more than this: what is
/// lost, or in a pack that is away, may have the numbers between.
pub(crate) const LOST_NUMBERS: u64 = 1000;

/// Maximum number of differences that are reported.
const DIFFERENCES_MAX: usize = 100;
/// How often to read the log again after another process has replaced it.
const DIFFERENCES_TRIES: u32 = 3;

/// Parses a version's row.
pub(super) fn version(row: &Row) -> Result<Version> {
    let (image, number) = (row.text(0), row.number(1));
    let corrupt = || Error::corrupt(format!("the catalog's row of {image}@{number} contradicts its record"));
    let record_id = BlockId::from_hex(row.text(4)).ok_or_else(corrupt)?;
    let record = VersionRecord::from_json(row.text(5))
        .map_err(|error| error.within(format!("version {image}@{number}")))?;
    let agrees = record.image.as_str() == image
        && i64::try_from(record.number) == Ok(number)
        && record.score.to_string() == row.text(2);
    if agrees { Ok(Version { name: record.name(), record_id, record }) } else { Err(corrupt()) }
}

impl Catalog {
    /// Returns all packs.
    pub(crate) fn packs(&self) -> Result<Vec<PackRow>> {
        packs(&self.connection)
    }

    /// Returns the newest version of each image, ordered by name.
    pub(crate) fn newest_versions(&self) -> Result<Vec<Version>> {
        let tail =
            "AS v WHERE number = (SELECT max(number) FROM versions WHERE image = v.image) ORDER BY image";
        versions(&self.connection, tail, &[])
    }

    /// Returns all versions.
    pub(crate) fn all_versions(&self) -> Result<Vec<Version>> {
        versions(&self.connection, "ORDER BY image, number", &[])
    }

    /// Returns the versions of an image, newest first.
    pub(crate) fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        versions(&self.connection, "WHERE image = ?1 ORDER BY number DESC", &[&image.as_str()])
    }

    /// Returns one version of an image.
    pub(crate) fn version(&self, image: &ImageName, choice: NumberChoice) -> Result<Option<Version>> {
        let found = match choice {
            NumberChoice::Latest => return newest_version(&self.connection, image),
            NumberChoice::Number(number) => {
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                versions(&self.connection, "WHERE image = ?1 AND number = ?2", &[&image.as_str(), &number])
            }
        }?;
        Ok(found.into_iter().next())
    }

    /// Returns the oldest version with that score. Of a disk that was cloned often, there are many.
    pub(crate) fn oldest_of(&self, score: Score) -> Result<Option<Version>> {
        let tail = "WHERE score = ?1 ORDER BY time_unix_ms, image, number LIMIT 1";
        Ok(versions(&self.connection, tail, &[&score.to_string()])?.into_iter().next())
    }

    /// Returns the highest number that each image ever had.
    pub(crate) fn last_numbers(&self) -> Result<Vec<(ImageName, u64)>> {
        let rows = table::read(&self.connection, &IMAGES, "ORDER BY name", &[])?;
        rows.iter().map(|row| Ok((row.text(0).parse()?, last_number(row)?))).collect()
    }

    /// Returns a number that changes when another connection changes the catalog.
    pub(crate) fn data_version(&self) -> Result<i64> {
        let read = self.connection.pragma_query_value(None, "data_version", |row| row.get(0));
        read.map_err(|error| failed("reading the catalog's data version", error))
    }

    /// Returns what SQLite finds wrong with the file, and where rows contradict each other; empty if the catalog is sound.
    pub(crate) fn integrity(&self) -> Result<Vec<String>> {
        let doing = "checking the catalog's file";
        let mut found = lines(&self.connection, doing, "PRAGMA integrity_check(100)")?;
        found.retain(|line| line != "ok");
        if let Err(error) = verify(&self.connection) {
            found.push(error.with_causes());
        }
        Ok(found)
    }
}

impl Catalog {
    /// Returns the differences between the change log and the catalog; empty if they agree.
    pub(crate) fn differences(&self, place: &StorePlace) -> Result<Vec<String>> {
        // Another process may write meanwhile: entries past our catalog's last one are ignored, and it may replace the log.
        for _ in 0..DIFFERENCES_TRIES {
            let transaction = self.connection.unchecked_transaction();
            let transaction = transaction.map_err(|error| failed("reading the catalog", error))?;
            let (head, found) = (read_head(&transaction)?, State::read(&transaction)?);
            drop(transaction);
            let mut contents = super::read_log(place, Some(&head))?;
            if head.is_of(&contents) && !contents.has_holes && contents.last >= head.number() {
                contents.entries.retain(|entry| entry.change.number <= head.number());
                let names = State::replay(&contents).differences(&found);
                let told = names.into_iter().take(DIFFERENCES_MAX);
                let again = "`platter rebuild` restores what the log says";
                // A change is committed to the catalog before the log. So a catalog that lacks a logged change is an old copy.
                let is_old = contents.last > head.number() && read_head(&self.connection)? == head;
                let old = is_old.then(|| format!("catalog: it is older than the change log: {again}"));
                let told = told.map(|name| format!("catalog: {name} differs from the change log: {again}"));
                let garbage = contents.garbage.map(|bytes| {
                    let path = place.change_log();
                    format!(
                        "{} has {bytes} bytes of garbage at its end: the next change cuts them off",
                        path.display()
                    )
                });
                // Another process may have replaced the log meanwhile.
                let is_damaged = is_log_end_damaged(place, &head)? && read_head(&self.connection)? == head;
                let end = is_damaged.then(|| {
                    format!(
                        "{} is damaged at its last change: the next change writes it again from the catalog",
                        place.change_log().display()
                    )
                });
                return Ok(old.into_iter().chain(told).chain(garbage).chain(end).collect());
            }
            if read_head(&self.connection)? == head {
                break;
            }
        }
        Ok(vec![format!(
            "{} is damaged, or belongs to another catalog: `platter rebuild` makes both again from the newer one that is sound",
            place.change_log().display()
        )])
    }
}

/// Verifies the catalog: rows against their checksums, tables against their seals, the numbers of versions and edit locks
/// against the highest assigned ones, and everything against the digest in the log's last entry.
pub(super) fn verify(connection: &Connection) -> Result<()> {
    // One transaction, so that all reads see the same state.
    let failed = |error| failed("reading the catalog", error);
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    table::verify(&transaction)?;
    let above =
        "SELECT v.image || '@' || v.number FROM versions AS v LEFT JOIN images AS i ON i.name = v.image
         WHERE coalesce(i.last_number, 0) < v.number
         UNION ALL SELECT 'edit lock ' || number FROM edit_locks
         WHERE number > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_edit_lock') LIMIT 1";
    if let Some(name) = lines(&transaction, "comparing the catalog's numbers", above)?.first() {
        return Err(Error::corrupt(format!("the catalog contains {name}, but its highest number is lower")));
    }
    compare(&transaction, &read_head(&transaction)?)
}

impl Change<'_> {
    /// Returns the versions of an image and of all images below it, ordered by image and number.
    pub(crate) fn versions_below(&self, image: &ImageName) -> Result<Vec<Version>> {
        // '0' is the character after '/', so this range contains exactly the names that begin with the name and a slash.
        let tail = "WHERE image = ?1 OR (image > ?1 || '/' AND image < ?1 || '0') ORDER BY image, number";
        versions(self.transaction, tail, &[&image.as_str()])
    }

    /// Returns all versions, oldest first.
    pub(crate) fn versions_by_time(&self) -> Result<Vec<Version>> {
        versions(self.transaction, "ORDER BY time_unix_ms, image, number", &[])
    }

    /// Returns the newest version of an image.
    pub(super) fn newest_version(&self, image: &ImageName) -> Result<Option<Version>> {
        newest_version(self.transaction, image)
    }

    /// Returns the highest number that a version of an image ever had; 0 if there was none.
    pub(crate) fn last_number(&self, image: &ImageName) -> Result<u64> {
        self.row(&IMAGES, &[table::text(image)])?.as_ref().map_or(Ok(0), last_number)
    }
}

/// Returns the value of a key in `meta`.
pub(super) fn meta(connection: &Connection, key: &str) -> Result<Option<String>> {
    let rows = table::read(connection, &META, "WHERE key = ?1", &[&key])?;
    Ok(rows.first().map(|row| row.text(1).to_owned()))
}

fn last_number(row: &Row) -> Result<u64> {
    u64::try_from(row.number(1))
        .map_err(|_| Error::corrupt(format!("image {}: invalid last number {}", row.text(0), row.number(1))))
}

fn newest_version(connection: &Connection, image: &ImageName) -> Result<Option<Version>> {
    let tail = "WHERE image = ?1 ORDER BY number DESC LIMIT 1";
    Ok(versions(connection, tail, &[&image.as_str()])?.into_iter().next())
}

/// Returns all packs, ordered by id.
pub(super) fn packs(connection: &Connection) -> Result<Vec<PackRow>> {
    table::read(connection, &PACKS, "ORDER BY id", &[])?
        .iter()
        .map(|row| PackRow::parse(&row.values))
        .collect()
}

pub(super) fn versions(
    connection: &Connection,
    tail: &str,
    parameters: &[&dyn ToSql],
) -> Result<Vec<Version>> {
    table::read(connection, &VERSIONS, tail, parameters)?.iter().map(version).collect()
}
