//! The hoard in the catalog: its members now and before, its revisions, and the images whose versions are recorded
//! again. The tables are made with the first of them: a catalog without has an empty hoard.

use platter_image::{BlockId, Error, Result, Score};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Catalog, Change, failed};
use crate::boot_set::BootSetRecord;
use crate::hoard::HoardMember;
use crate::name::{ImageName, VersionName};
use crate::resolve::Version;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS hoard (
    image TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    boot_set TEXT NOT NULL,
    record TEXT NOT NULL,
    day INTEGER NOT NULL,
    added INTEGER NOT NULL,
    gone INTEGER,
    PRIMARY KEY (image, number, added)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hoard_revisions (
    revision INTEGER PRIMARY KEY,
    day INTEGER NOT NULL,
    time_unix_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS hoard_followed (
    image TEXT PRIMARY KEY,
    settings TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Keys in `meta`: a random name of this run of revisions, the newest of them, the last one that changes can no longer
/// be told since, and the days that were counted.
const EPOCH: &str = "hoard_epoch";
const REVISION: &str = "hoard_revision";
const OLDEST: &str = "hoard_oldest";
const DAY: &str = "hoard_day";
const DATE: &str = "hoard_date";

/// What holds for the whole hoard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoardFacts {
    /// Empty where there never was a member.
    pub(crate) epoch: String,
    /// The newest revision.
    pub(crate) revision: u64,
    /// Changes since this revision, or a later one, can be told.
    pub(crate) oldest: u64,
    /// Days on which the daily work was done.
    pub(crate) day: u64,
    /// The date of the last of them, in days since 1970 UTC; -1 before the first.
    pub(crate) date: i64,
}

struct RawMember {
    image: String,
    number: i64,
    boot_set: String,
    record: String,
    added: i64,
}

impl RawMember {
    const COLUMNS: &str = "image, number, boot_set, record, added";

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            image: row.get(0)?,
            number: row.get(1)?,
            boot_set: row.get(2)?,
            record: row.get(3)?,
            added: row.get(4)?,
        })
    }

    fn check(self) -> Result<HoardMember> {
        let corrupt =
            || Error::corrupt(format!("the catalog's boot set of {}@{} is none", self.image, self.number));
        let record: BootSetRecord =
            serde_json::from_str(&self.record).map_err(|error| corrupt().with_source(error))?;
        let version = name_of(&self.image, self.number).ok_or_else(corrupt)?;
        let boot_set = BlockId::from_hex(&self.boot_set).ok_or_else(corrupt)?;
        let added = u64::try_from(self.added).map_err(|_| corrupt())?;
        Ok(HoardMember { version, boot_set, added, record })
    }
}

fn name_of(image: &str, number: i64) -> Option<VersionName> {
    Some(VersionName { image: image.parse().ok()?, number: u64::try_from(number).ok()? })
}

/// A number as the tables have it: none of ours is larger.
fn to_row(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn has_tables(connection: &Connection) -> Result<bool> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hoard'";
    let found = connection.query_row(sql, [], |_| Ok(())).optional();
    Ok(found.map_err(|error| failed("looking for the hoard in the catalog", error))?.is_some())
}

fn facts(connection: &Connection) -> Result<HoardFacts> {
    if !has_tables(connection)? {
        return Ok(HoardFacts { date: -1, ..HoardFacts::default() });
    }
    let read = |key: &str| -> Result<String> {
        let sql = "SELECT value FROM meta WHERE key = ?1";
        connection
            .query_row(sql, [key], |row| row.get(0))
            .map_err(|error| failed(&format!("reading {key} from the catalog"), error))
    };
    let number = |key: &str| -> Result<i64> {
        let text = read(key)?;
        text.parse().map_err(|_| Error::corrupt(format!("the catalog's {key} is {text:?}")))
    };
    let count = |key: &str| -> Result<u64> { number(key).map(|value| value.max(0) as u64) };
    Ok(HoardFacts {
        epoch: read(EPOCH)?,
        revision: count(REVISION)?,
        oldest: count(OLDEST)?,
        day: count(DAY)?,
        date: number(DATE)?,
    })
}

fn members(connection: &Connection, condition: &str, revision: u64) -> Result<Vec<HoardMember>> {
    if !has_tables(connection)? {
        return Ok(Vec::new());
    }
    let doing = "reading the hoard's members from the catalog";
    let sql =
        format!("SELECT {} FROM hoard WHERE {condition} ORDER BY added, image, number", RawMember::COLUMNS);
    let mut statement = connection.prepare_cached(&sql).map_err(|error| failed(doing, error))?;
    let rows = statement.query_map([to_row(revision)], RawMember::from_row);
    let rows: rusqlite::Result<Vec<RawMember>> = rows.and_then(Iterator::collect);
    rows.map_err(|error| failed(doing, error))?.into_iter().map(RawMember::check).collect()
}

impl Catalog {
    /// What holds for the whole hoard.
    pub(crate) fn hoard_facts(&self) -> Result<HoardFacts> {
        facts(&self.connection)
    }

    /// The members, in the order in which they came.
    pub(crate) fn hoard_members(&self) -> Result<Vec<HoardMember>> {
        members(&self.connection, "gone IS NULL AND added > ?1", 0)
    }

    /// The members that came after that revision, and what is no member any more and was one at it.
    pub(crate) fn hoard_changes(&self, since: u64) -> Result<(Vec<HoardMember>, Vec<HoardMember>)> {
        Ok((
            members(&self.connection, "gone IS NULL AND added > ?1", since)?,
            members(&self.connection, "added <= ?1 AND gone > ?1", since)?,
        ))
    }

    /// When each revision was made, as far as they are kept: number, and milliseconds since 1970 UTC (0: not known).
    pub(crate) fn hoard_revisions(&self) -> Result<Vec<(u64, i64)>> {
        if !has_tables(&self.connection)? {
            return Ok(Vec::new());
        }
        let sql = "SELECT revision, time_unix_ms FROM hoard_revisions ORDER BY revision";
        let rows = self.rows("reading the hoard's revisions", sql, &[], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        Ok(rows.into_iter().map(|(revision, time)| (revision.max(0) as u64, time)).collect())
    }

    /// The images whose new versions are to be recorded, with how.
    pub(crate) fn hoard_followed(&self) -> Result<Vec<(ImageName, String)>> {
        if !has_tables(&self.connection)? {
            return Ok(Vec::new());
        }
        let sql = "SELECT image, settings FROM hoard_followed ORDER BY image";
        let rows = self.rows("reading the images that the hoard follows", sql, &[], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.into_iter().map(|(image, settings)| Ok((image.parse()?, settings))).collect()
    }
}

impl Change<'_> {
    /// Makes the tables where they are missing; `epoch` then names this run of revisions.
    pub(crate) fn make_hoard(&mut self, epoch: [u8; 16]) -> Result<()> {
        if has_tables(self.transaction)? {
            return Ok(());
        }
        let doing = |error| failed("making the hoard's tables", error);
        self.transaction.execute_batch(TABLES).map_err(doing)?;
        let epoch: String = epoch.iter().map(|byte| format!("{byte:02x}")).collect();
        for (key, value) in
            [(EPOCH, epoch.as_str()), (REVISION, "0"), (OLDEST, "0"), (DAY, "0"), (DATE, "-1")]
        {
            let sql = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
            self.transaction.execute(sql, [key, value]).map_err(doing)?;
        }
        Ok(())
    }

    /// What holds for the whole hoard.
    pub(crate) fn hoard_facts(&self) -> Result<HoardFacts> {
        facts(self.transaction)
    }

    /// The members, in the order in which they came.
    pub(crate) fn hoard_members(&self) -> Result<Vec<HoardMember>> {
        members(self.transaction, "gone IS NULL AND added > ?1", 0)
    }

    /// The next revision: one for each change of members. The tables must be there.
    pub(crate) fn next_hoard_revision(&mut self, time_unix_ms: i64) -> Result<u64> {
        let facts = self.hoard_facts()?;
        let revision = facts.revision + 1;
        self.set_hoard_meta(REVISION, &revision.to_string())?;
        let sql = "INSERT INTO hoard_revisions VALUES (?1, ?2, ?3)";
        self.transaction
            .execute(sql, params![to_row(revision), to_row(facts.day), time_unix_ms])
            .map_err(|error| failed("entering a revision of the hoard in the catalog", error))?;
        Ok(revision)
    }

    /// Makes a boot set the one of that version from a new revision on.
    pub(crate) fn add_member(
        &mut self,
        name: &VersionName,
        boot_set: BlockId,
        record: &BootSetRecord,
        revision: u64,
    ) -> Result<()> {
        let text = serde_json::to_string(record)
            .map_err(|error| Error::bug("a boot set without a text").with_source(error))?;
        self.end_member(name, revision)?;
        let day = self.hoard_facts()?.day;
        self.transaction
            .execute(
                "INSERT INTO hoard (image, number, boot_set, record, day, added) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    name.image.as_str(),
                    to_row(name.number),
                    boot_set.to_string(),
                    text,
                    to_row(day),
                    to_row(revision)
                ],
            )
            .map_err(|error| failed(&format!("entering the boot set of {name} in the catalog"), error))?;
        Ok(())
    }

    /// That version has no boot set from a new revision on.
    pub(crate) fn end_member(&mut self, name: &VersionName, revision: u64) -> Result<()> {
        let sql = "UPDATE hoard SET gone = ?3 WHERE image = ?1 AND number = ?2 AND gone IS NULL";
        self.transaction
            .execute(sql, params![name.image.as_str(), to_row(name.number), to_row(revision)])
            .map_err(|error| failed(&format!("removing the boot set of {name} from the catalog"), error))?;
        Ok(())
    }

    /// Versions are gone or have other names: so have their boot sets, in one revision, if there are any.
    pub(crate) fn move_members(&mut self, moved: &[(VersionName, Option<VersionName>)]) -> Result<()> {
        let members = self.hoard_members()?;
        let of = |name: &VersionName| members.iter().find(|member| member.version == *name);
        let moved: Vec<_> = moved.iter().filter_map(|(from, to)| Some((of(from)?, to))).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let revision = self.next_hoard_revision(0)?;
        for (member, to) in moved {
            self.end_member(&member.version, revision)?;
            if let Some(to) = to {
                self.add_member(to, member.boot_set, &member.record, revision)?;
            }
        }
        Ok(())
    }

    /// The members that came on that day or before.
    pub(crate) fn members_of_days(&self, day_max: u64) -> Result<Vec<HoardMember>> {
        members(self.transaction, "gone IS NULL AND day <= ?1", day_max)
    }

    /// Counts another day, if the date is another one than that of the last.
    pub(crate) fn count_day(&mut self, date: i64) -> Result<u64> {
        let facts = self.hoard_facts()?;
        if facts.date == date {
            return Ok(facts.day);
        }
        self.set_hoard_meta(DATE, &date.to_string())?;
        self.set_hoard_meta(DAY, &(facts.day + 1).to_string())?;
        Ok(facts.day + 1)
    }

    /// Forgets what changed on that day or before: whoever has not heard of it gets everything.
    pub(crate) fn forget_changes(&mut self, day_max: u64) -> Result<()> {
        let doing = |error| failed("forgetting old revisions of the hoard", error);
        let sql = "SELECT max(revision) FROM hoard_revisions WHERE day <= ?1";
        let last: Option<i64> =
            self.transaction.query_row(sql, [to_row(day_max)], |row| row.get(0)).map_err(doing)?;
        let Some(last) = last else { return Ok(()) };
        self.transaction.execute("DELETE FROM hoard WHERE gone <= ?1", [last]).map_err(doing)?;
        self.transaction
            .execute("DELETE FROM hoard_revisions WHERE revision <= ?1", [last])
            .map_err(doing)?;
        self.set_hoard_meta(OLDEST, &last.to_string())
    }

    /// New versions of that image are to be recorded so; or no longer.
    pub(crate) fn follow(&mut self, image: &ImageName, settings: Option<&str>) -> Result<()> {
        let changed = match settings {
            Some(settings) => self
                .transaction
                .execute("INSERT OR REPLACE INTO hoard_followed VALUES (?1, ?2)", [image.as_str(), settings]),
            None => self.transaction.execute("DELETE FROM hoard_followed WHERE image = ?1", [image.as_str()]),
        };
        changed.map_err(|error| failed(&format!("entering that the hoard follows {image}"), error))?;
        Ok(())
    }

    /// The versions of that score, by image and number.
    pub(crate) fn versions_of(&self, score: Score) -> Result<Vec<Version>> {
        super::query::versions_of(self.transaction, score)
    }

    fn set_hoard_meta(&mut self, key: &str, value: &str) -> Result<()> {
        self.transaction
            .execute("UPDATE meta SET value = ?2 WHERE key = ?1", [key, value])
            .map_err(|error| failed(&format!("entering {key} in the catalog"), error))?;
        Ok(())
    }
}
