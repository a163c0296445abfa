//! The hoard in the catalog: current and former members, revisions, and the images whose new versions are recorded. The hoard's
//! keys in `meta` are created with the first of these: a catalog without them has an empty hoard.

use platter_image::{BlockId, Error, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql};

use super::query::meta;
use super::table::{
    self, HOARD, HOARD_DATE, HOARD_DAY, HOARD_EPOCH, HOARD_FOLLOWED, HOARD_OLDEST, HOARD_REVISION,
    HOARD_REVISIONS, Row, number, text,
};
use super::{Catalog, Change};
use platter_records::BootSetRecord;
use platter_records::HoardMember;
use platter_records::{ImageName, VersionName};

/// State of the whole hoard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoardFacts {
    /// Empty until the hoard is created.
    pub(crate) epoch: String,
    /// The newest revision.
    pub(crate) revision: u64,
    /// The oldest revision since which changes are known.
    pub(crate) oldest: u64,
    /// Number of days on which the daily work ran.
    pub(crate) day: u64,
    /// Date of the last of them, in days since 1970 UTC; -1 before the first.
    pub(crate) date: i64,
}

pub(super) fn member(row: &Row) -> Result<HoardMember> {
    let (image, number) = (row.text(0), row.number(1));
    let corrupt = || Error::corrupt(format!("the catalog has an invalid boot set of {image}@{number}"));
    let record: BootSetRecord =
        serde_json::from_str(row.text(6)).map_err(|error| corrupt().with_source(error))?;
    let name = image.parse().ok().zip(u64::try_from(number).ok());
    let (image, number) = name.ok_or_else(corrupt)?;
    let boot_set = BlockId::from_hex(row.text(5)).ok_or_else(corrupt)?;
    let added = u64::try_from(row.number(2)).map_err(|_| corrupt())?;
    Ok(HoardMember { version: VersionName { image, number }, boot_set, added, record })
}

/// Converts a number for a table. Larger numbers than SQLite's do not occur.
fn to_row(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn facts(connection: &Connection) -> Result<HoardFacts> {
    let Some(epoch) = meta(connection, HOARD_EPOCH)? else {
        return Ok(HoardFacts { date: -1, ..HoardFacts::default() });
    };
    let number = |key: &str| -> Result<i64> {
        let text = meta(connection, key)?.unwrap_or_default();
        text.parse().map_err(|_| Error::corrupt(format!("the catalog's {key} is {text:?}")))
    };
    let count = |key: &str| -> Result<u64> { number(key).map(|value| value.max(0) as u64) };
    Ok(HoardFacts {
        epoch,
        revision: count(HOARD_REVISION)?,
        oldest: count(HOARD_OLDEST)?,
        day: count(HOARD_DAY)?,
        date: number(HOARD_DATE)?,
    })
}

fn member_rows(connection: &Connection, condition: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
    table::read(connection, &HOARD, &format!("WHERE {condition} ORDER BY added, image, number"), parameters)
}

fn members(connection: &Connection, condition: &str, revision: u64) -> Result<Vec<HoardMember>> {
    member_rows(connection, condition, &[&to_row(revision)])?.iter().map(member).collect()
}

impl Catalog {
    /// Returns the state of the whole hoard.
    pub(crate) fn hoard_facts(&self) -> Result<HoardFacts> {
        facts(&self.connection)
    }

    /// Returns the members in the order in which they were added.
    pub(crate) fn hoard_members(&self) -> Result<Vec<HoardMember>> {
        members(&self.connection, "gone IS NULL AND added > ?1", 0)
    }

    /// Returns the members added after revision `since`, and the members at that revision that were removed later.
    pub(crate) fn hoard_changes(&self, since: u64) -> Result<(Vec<HoardMember>, Vec<HoardMember>)> {
        Ok((
            members(&self.connection, "gone IS NULL AND added > ?1", since)?,
            members(&self.connection, "added <= ?1 AND gone > ?1", since)?,
        ))
    }

    /// Returns the known revisions, each with its time in milliseconds since 1970 UTC (0: unknown).
    pub(crate) fn hoard_revisions(&self) -> Result<Vec<(u64, i64)>> {
        let rows = table::read(&self.connection, &HOARD_REVISIONS, "ORDER BY revision", &[])?;
        Ok(rows.iter().map(|row| (row.number(0).max(0) as u64, row.number(2))).collect())
    }

    /// Returns the images whose new versions are recorded, with their settings.
    pub(crate) fn hoard_followed(&self) -> Result<Vec<(ImageName, String)>> {
        let rows = table::read(&self.connection, &HOARD_FOLLOWED, "ORDER BY image", &[])?;
        rows.iter().map(|row| Ok((row.text(0).parse()?, row.text(1).to_owned()))).collect()
    }
}

impl Change<'_> {
    /// Creates an empty hoard if there is none. `epoch` then identifies its sequence of revisions.
    pub(crate) fn make_hoard(&mut self, epoch: [u8; 16]) -> Result<()> {
        if meta(self.transaction, HOARD_EPOCH)?.is_some() {
            return Ok(());
        }
        let epoch: String = epoch.iter().map(|byte| format!("{byte:02x}")).collect();
        let values = [
            (HOARD_EPOCH, epoch.as_str()),
            (HOARD_REVISION, "0"),
            (HOARD_OLDEST, "0"),
            (HOARD_DAY, "0"),
            (HOARD_DATE, "-1"),
        ];
        values.into_iter().try_for_each(|(key, value)| self.set_meta(key, value))
    }

    /// Returns the state of the whole hoard.
    pub(crate) fn hoard_facts(&self) -> Result<HoardFacts> {
        facts(self.transaction)
    }

    /// Returns the members in the order in which they were added.
    pub(crate) fn hoard_members(&self) -> Result<Vec<HoardMember>> {
        members(self.transaction, "gone IS NULL AND added > ?1", 0)
    }

    /// Starts the next revision and returns its number. Each change of members takes one. The hoard must exist.
    pub(crate) fn next_hoard_revision(&mut self, time_unix_ms: i64) -> Result<u64> {
        let facts = self.hoard_facts()?;
        let revision = facts.revision + 1;
        self.set_meta(HOARD_REVISION, &revision.to_string())?;
        let row = vec![number(revision), number(facts.day), time_unix_ms.into()];
        self.put(&HOARD_REVISIONS, row)?;
        Ok(revision)
    }

    /// Makes a boot set that of a version, from `revision` on.
    pub(crate) fn add_member(
        &mut self,
        name: &VersionName,
        boot_set: BlockId,
        record: &BootSetRecord,
        revision: u64,
    ) -> Result<()> {
        let record = serde_json::to_string(record)
            .map_err(|error| Error::bug("cannot serialize a boot set").with_source(error))?;
        self.end_member(name, revision)?;
        let day = self.hoard_facts()?.day;
        let (image, boot_set) = (text(&name.image), text(boot_set));
        let (version, added, gone) = (number(name.number), number(revision), Value::Null);
        self.put(&HOARD, vec![image, version, added, gone, number(day), boot_set, Value::Text(record)])
    }

    /// Ends the membership of a version's boot set with `revision`.
    pub(crate) fn end_member(&mut self, name: &VersionName, revision: u64) -> Result<()> {
        let condition = "image = ?1 AND number = ?2 AND gone IS NULL";
        for row in member_rows(self.transaction, condition, &[&name.image.as_str(), &to_row(name.number)])? {
            let mut values = row.values;
            values[3] = number(revision);
            self.put(&HOARD, values)?;
        }
        Ok(())
    }

    /// Moves the boot sets of renamed versions and removes those of forgotten versions, in one revision if there are any.
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

    /// Returns the members that were added on that day or earlier.
    pub(crate) fn members_of_days(&self, day_max: u64) -> Result<Vec<HoardMember>> {
        members(self.transaction, "gone IS NULL AND day <= ?1", day_max)
    }

    /// Counts another day if the date differs from that of the last count. Returns the number of days.
    pub(crate) fn count_day(&mut self, date: i64) -> Result<u64> {
        let facts = self.hoard_facts()?;
        if facts.date == date {
            return Ok(facts.day);
        }
        self.set_meta(HOARD_DATE, &date.to_string())?;
        self.set_meta(HOARD_DAY, &(facts.day + 1).to_string())?;
        Ok(facts.day + 1)
    }

    /// Forgets the changes of that day and earlier. A node with an older revision gets all members.
    pub(crate) fn forget_changes(&mut self, day_max: u64) -> Result<()> {
        let old = table::read(self.transaction, &HOARD_REVISIONS, "WHERE day <= ?1", &[&to_row(day_max)])?;
        let Some(last) = old.iter().map(|row| row.number(0)).max() else { return Ok(()) };
        for row in member_rows(self.transaction, "gone <= ?1", &[&last])? {
            self.remove(&HOARD, &row.values[..3])?;
        }
        for row in table::read(self.transaction, &HOARD_REVISIONS, "WHERE revision <= ?1", &[&last])? {
            self.remove(&HOARD_REVISIONS, &row.values[..1])?;
        }
        self.set_meta(HOARD_OLDEST, &last.to_string())
    }

    /// Sets how new versions of an image are to be recorded; `None` ends it.
    pub(crate) fn follow(&mut self, image: &ImageName, settings: Option<&str>) -> Result<()> {
        match settings {
            Some(settings) => self.put(&HOARD_FOLLOWED, vec![text(image), text(settings)]),
            None => self.remove(&HOARD_FOLLOWED, &[text(image)]),
        }
    }
}
