//! Versions that no longer exist under a name: they were forgotten, or renamed. Their numbers stay assigned, and forgotten
//! versions can be restored while their data is in the store.

use platter_image::{Error, Result};
use rusqlite::Connection;

use super::query::{meta, version};
use super::table::{self, FORMER, PROTECTED, Row, VERSIONS, WAS_LOST, number, text};
use super::{Catalog, Change};
use platter_records::{ImageName, Version, VersionName, VersionRecord};

/// Why a version does not exist under a name any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was forgotten.
    Forgotten,
    /// It got another name.
    Renamed,
}

impl Fate {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Forgotten => "forgotten",
            Self::Renamed => "renamed",
        }
    }
}

/// Returns the name under which a version was first published.
pub(crate) fn first_name(record: &VersionRecord) -> VersionName {
    record.renamed_from.clone().unwrap_or_else(|| record.name())
}

fn forgotten(connection: &Connection) -> Result<Vec<Version>> {
    let tail = "WHERE fate = ?1 ORDER BY image, number";
    let rows = table::read(connection, &FORMER, tail, &[&Fate::Forgotten.as_str()])?;
    rows.into_iter().map(|row| version(&without_fate(row))).collect()
}

fn former(connection: &Connection) -> Result<Vec<Version>> {
    let rows = table::read(connection, &FORMER, "ORDER BY image, number", &[])?;
    rows.into_iter().map(|row| version(&without_fate(row))).collect()
}

/// Converts to a row of `versions`, which has the score in place of the fate.
pub(super) fn without_fate(mut row: Row) -> Row {
    if let Ok(record) = VersionRecord::from_json(row.text(5)) {
        row.values[2] = text(record.score);
    }
    row
}

pub(super) fn name_of(row: &Row) -> Result<VersionName> {
    let image: ImageName = row.text(0).parse()?;
    let number = u64::try_from(row.number(1))
        .map_err(|_| Error::corrupt(format!("the catalog has an invalid number of a version of {image}")))?;
    Ok(VersionName { image, number })
}

impl Catalog {
    /// Returns whether catalog and log were lost once, so that there may be versions below the last numbers that it does not know.
    pub(crate) fn was_lost(&self) -> Result<bool> {
        Ok(meta(&self.connection, WAS_LOST)?.is_some())
    }

    /// Returns all forgotten versions, ordered by image and number.
    pub(crate) fn forgotten(&self) -> Result<Vec<Version>> {
        forgotten(&self.connection)
    }

    /// Returns all versions that no longer exist under these names, ordered by image and number.
    pub(crate) fn former(&self) -> Result<Vec<Version>> {
        former(&self.connection)
    }

    /// Returns all protected versions, ordered by image and number.
    pub(crate) fn protected(&self) -> Result<Vec<VersionName>> {
        let rows = table::read(&self.connection, &PROTECTED, "ORDER BY image, number", &[])?;
        rows.iter().map(name_of).collect()
    }
}

impl Change<'_> {
    /// Removes a version under a name. Its number is never used again. A renamed version keeps its protection under its new
    /// name.
    pub(crate) fn remove_version(&mut self, name: &VersionName, fate: Fate) -> Result<()> {
        let key = [text(&name.image), number(name.number)];
        let Some(row) = self.row(&VERSIONS, &key)? else { return Ok(()) };
        let time = self.time_unix_ms();
        let mut values = row.values;
        (values[2], values[3]) = (text(fate.as_str()), time.into());
        self.put(&FORMER, values)?;
        self.remove(&VERSIONS, &key)?;
        self.remove(&PROTECTED, &key)
    }

    /// Records a version that packs contain but that exists under no name as forgotten.
    pub(crate) fn add_forgotten(&mut self, version: &Version) -> Result<()> {
        let mut values = table::version_row(version)?;
        (values[2], values[3]) = (text(Fate::Forgotten.as_str()), 0.into());
        self.put(&FORMER, values)
    }

    /// Returns whether this version once had the name in its record.
    pub(crate) fn had_version(&self, record: &VersionRecord) -> Result<bool> {
        Ok(self.former_record(&record.name())?.is_some_and(|former| former.is_same_version(record)))
    }

    /// As [`Catalog::was_lost`].
    pub(crate) fn was_lost(&self) -> Result<bool> {
        Ok(meta(self.transaction, WAS_LOST)?.is_some())
    }

    /// Notes that catalog and log were lost.
    pub(crate) fn note_loss(&mut self) -> Result<()> {
        self.set_meta(WAS_LOST, "1")
    }

    /// As [`Catalog::former`].
    pub(crate) fn former(&self) -> Result<Vec<Version>> {
        former(self.transaction)
    }

    /// Returns the record of a version that was forgotten or renamed.
    pub(crate) fn former_record(&self, name: &VersionName) -> Result<Option<VersionRecord>> {
        let row = self.row(&FORMER, &[text(&name.image), number(name.number)])?;
        row.map(|row| VersionRecord::from_json(row.text(5))).transpose()
    }

    /// Returns whether a version of that name once existed.
    pub(crate) fn is_former(&self, name: &VersionName) -> Result<bool> {
        self.row(&FORMER, &[text(&name.image), number(name.number)]).map(|row| row.is_some())
    }

    /// Removes the record of a former version, because one with the same record exists under that name again, or its data is
    /// gone.
    pub(crate) fn drop_former(&mut self, name: &VersionName) -> Result<()> {
        self.remove(&FORMER, &[text(&name.image), number(name.number)])
    }

    /// Returns all forgotten versions, ordered by image and number.
    pub(crate) fn forgotten(&self) -> Result<Vec<Version>> {
        forgotten(self.transaction)
    }

    /// Returns the number of protected versions.
    pub(crate) fn protected_count(&self) -> Result<usize> {
        Ok(table::read(self.transaction, &PROTECTED, "", &[])?.len())
    }

    /// Returns whether a version is protected.
    pub(crate) fn is_protected(&self, name: &VersionName) -> Result<bool> {
        self.row(&PROTECTED, &[text(&name.image), number(name.number)]).map(|row| row.is_some())
    }

    /// Protects a version, or ends its protection. Returns whether that changed anything.
    pub(crate) fn set_protected(&mut self, name: &VersionName, protect: bool) -> Result<bool> {
        let was_protected = self.is_protected(name)?;
        let key = vec![text(&name.image), number(name.number)];
        match (was_protected, protect) {
            (false, true) => {
                let time = self.time_unix_ms();
                self.put(&PROTECTED, key.into_iter().chain([time.into()]).collect())?;
            }
            (true, false) => self.remove(&PROTECTED, &key)?,
            _ => {}
        }
        Ok(was_protected != protect)
    }
}
