//! The hoard in the catalog: its members now and before, its revisions, and the images whose versions are recorded
//! again. The hoard's keys in `meta` are made with the first of them: a catalog without has an empty hoard.

use platter_image::{BlockId, Error, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql};

use super::query::meta;
use super::table::{self, HOARD, HOARD_FOLLOWED, HOARD_REVISIONS, Row, number, text};
use super::{Catalog, Change};
use crate::boot_set::BootSetRecord;
use crate::hoard_member::HoardMember;
use crate::name::{ImageName, VersionName};

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

fn member(row: &Row) -> Result<HoardMember> {
    let (image, number) = (row.text(0), row.number(1));
    let corrupt = || Error::corrupt(format!("the catalog's boot set of {image}@{number} is none"));
    let record: BootSetRecord =
        serde_json::from_str(row.text(6)).map_err(|error| corrupt().with_source(error))?;
    let name = image.parse().ok().zip(u64::try_from(number).ok());
    let (image, number) = name.ok_or_else(corrupt)?;
    let boot_set = BlockId::from_hex(row.text(5)).ok_or_else(corrupt)?;
    let added = u64::try_from(row.number(2)).map_err(|_| corrupt())?;
    Ok(HoardMember { version: VersionName { image, number }, boot_set, added, record })
}

/// A number as the tables have it: none of ours is larger.
fn to_row(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn facts(connection: &Connection) -> Result<HoardFacts> {
    let Some(epoch) = meta(connection, EPOCH)? else {
        return Ok(HoardFacts { date: -1, ..HoardFacts::default() });
    };
    let number = |key: &str| -> Result<i64> {
        let text = meta(connection, key)?.unwrap_or_default();
        text.parse().map_err(|_| Error::corrupt(format!("the catalog's {key} is {text:?}")))
    };
    let count = |key: &str| -> Result<u64> { number(key).map(|value| value.max(0) as u64) };
    Ok(HoardFacts {
        epoch,
        revision: count(REVISION)?,
        oldest: count(OLDEST)?,
        day: count(DAY)?,
        date: number(DATE)?,
    })
}

fn member_rows(connection: &Connection, condition: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>> {
    table::read(connection, &HOARD, &format!("WHERE {condition} ORDER BY added, image, number"), parameters)
}

fn members(connection: &Connection, condition: &str, revision: u64) -> Result<Vec<HoardMember>> {
    member_rows(connection, condition, &[&to_row(revision)])?.iter().map(member).collect()
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
        let rows = table::read(&self.connection, &HOARD_REVISIONS, "ORDER BY revision", &[])?;
        Ok(rows.iter().map(|row| (row.number(0).max(0) as u64, row.number(2))).collect())
    }

    /// The images whose new versions are to be recorded, with how.
    pub(crate) fn hoard_followed(&self) -> Result<Vec<(ImageName, String)>> {
        let rows = table::read(&self.connection, &HOARD_FOLLOWED, "ORDER BY image", &[])?;
        rows.iter().map(|row| Ok((row.text(0).parse()?, row.text(1).to_owned()))).collect()
    }
}

impl Change<'_> {
    /// Makes an empty hoard where there is none; `epoch` then names this run of revisions.
    pub(crate) fn make_hoard(&mut self, epoch: [u8; 16]) -> Result<()> {
        if meta(self.transaction, EPOCH)?.is_some() {
            return Ok(());
        }
        let epoch: String = epoch.iter().map(|byte| format!("{byte:02x}")).collect();
        let values = [(EPOCH, epoch.as_str()), (REVISION, "0"), (OLDEST, "0"), (DAY, "0"), (DATE, "-1")];
        values.into_iter().try_for_each(|(key, value)| self.set_meta(key, value))
    }

    /// What holds for the whole hoard.
    pub(crate) fn hoard_facts(&self) -> Result<HoardFacts> {
        facts(self.transaction)
    }

    /// The members, in the order in which they came.
    pub(crate) fn hoard_members(&self) -> Result<Vec<HoardMember>> {
        members(self.transaction, "gone IS NULL AND added > ?1", 0)
    }

    /// The next revision: one for each change of members. The hoard must have been made.
    pub(crate) fn next_hoard_revision(&mut self, time_unix_ms: i64) -> Result<u64> {
        let facts = self.hoard_facts()?;
        let revision = facts.revision + 1;
        self.set_meta(REVISION, &revision.to_string())?;
        let row = vec![number(revision), number(facts.day), time_unix_ms.into()];
        self.put(&HOARD_REVISIONS, row)?;
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
        let record = serde_json::to_string(record)
            .map_err(|error| Error::bug("a boot set without a text").with_source(error))?;
        self.end_member(name, revision)?;
        let day = self.hoard_facts()?.day;
        let (image, boot_set) = (text(&name.image), text(boot_set));
        let (version, added, gone) = (number(name.number), number(revision), Value::Null);
        self.put(&HOARD, vec![image, version, added, gone, number(day), boot_set, Value::Text(record)])
    }

    /// That version has no boot set from a new revision on.
    pub(crate) fn end_member(&mut self, name: &VersionName, revision: u64) -> Result<()> {
        let condition = "image = ?1 AND number = ?2 AND gone IS NULL";
        for row in member_rows(self.transaction, condition, &[&name.image.as_str(), &to_row(name.number)])? {
            let mut values = row.values;
            values[3] = number(revision);
            self.put(&HOARD, values)?;
        }
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
        self.set_meta(DATE, &date.to_string())?;
        self.set_meta(DAY, &(facts.day + 1).to_string())?;
        Ok(facts.day + 1)
    }

    /// Forgets what changed on that day or before: whoever has not heard of it gets everything.
    pub(crate) fn forget_changes(&mut self, day_max: u64) -> Result<()> {
        let old = table::read(self.transaction, &HOARD_REVISIONS, "WHERE day <= ?1", &[&to_row(day_max)])?;
        let Some(last) = old.iter().map(|row| row.number(0)).max() else { return Ok(()) };
        for row in member_rows(self.transaction, "gone <= ?1", &[&last])? {
            self.remove(&HOARD, &row.values[..3])?;
        }
        for row in table::read(self.transaction, &HOARD_REVISIONS, "WHERE revision <= ?1", &[&last])? {
            self.remove(&HOARD_REVISIONS, &row.values[..1])?;
        }
        self.set_meta(OLDEST, &last.to_string())
    }

    /// New versions of that image are to be recorded so; or no longer.
    pub(crate) fn follow(&mut self, image: &ImageName, settings: Option<&str>) -> Result<()> {
        match settings {
            Some(settings) => self.put(&HOARD_FOLLOWED, vec![text(image), text(settings)]),
            None => self.remove(&HOARD_FOLLOWED, &[text(image)]),
        }
    }
}
