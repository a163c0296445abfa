//! The history of versions, as a log records it.

use std::collections::{BTreeMap, BTreeSet};

use platter_image::{BlockId, Error, Result};

use super::{ChangeLogContents, Entry};
use crate::catalog::row::{Cell, RowChange};
use crate::catalog::table::VERSIONS;
use platter_records::Version;
use platter_records::VersionRecord;
use platter_records::{ImageName, VersionName};

/// The history of the versions in a log.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// All versions that any entry names.
    pub(crate) mentioned: BTreeSet<VersionName>,
    /// Versions that exist after the last entry.
    present: BTreeMap<VersionName, Version>,
    /// Versions that were forgotten, without those that were only renamed.
    forgotten: BTreeMap<VersionName, Version>,
}

impl Past {
    /// Collects the history from a log's valid entries.
    pub(crate) fn of(contents: &ChangeLogContents) -> Self {
        let mut past = Self::default();
        contents.entries.iter().for_each(|entry| past.apply(entry));
        past
    }

    fn apply(&mut self, entry: &Entry) {
        let rows = entry.rows.iter().filter(|row| row.table == VERSIONS.name);
        let version = |row: &RowChange| match &row.put[..] {
            [_, _, _, _, Cell::Text(id), Cell::Text(record)] => version_of(id, record).ok(),
            _ => None,
        };
        let mut put: BTreeMap<VersionName, BTreeSet<VersionName>> = BTreeMap::new();
        for version in rows.clone().filter_map(version) {
            put.entry(first_name(&version.record)).or_default().insert(version.name);
        }
        for row in rows {
            if let Some(version) = version(row) {
                self.mentioned.insert(version.name.clone());
                self.forgotten.remove(&version.name);
                self.present.insert(version.name.clone(), version);
            } else if let [Cell::Text(image), Cell::Number(number)] = &row.gone[..] {
                let Some(name) = name_of(image, *number) else { continue };
                self.mentioned.insert(name.clone());
                let Some(version) = self.present.remove(&name) else { continue };
                // A version that the same change writes under another name was renamed.
                let names = put.get(&first_name(&version.record)).into_iter().flatten();
                if names.filter(|other| **other != name).count() == 0 {
                    self.forgotten.insert(name, version);
                }
            }
        }
    }

    /// Returns the versions that were forgotten.
    pub(crate) fn forgotten(&self) -> Vec<Version> {
        self.forgotten.values().cloned().collect()
    }
}

/// Returns the name under which a version was first published.
pub(crate) fn first_name(record: &VersionRecord) -> VersionName {
    record.renamed_from.clone().unwrap_or_else(|| record.name())
}

fn name_of(image: &str, number: i64) -> Option<VersionName> {
    let image: ImageName = image.parse().ok()?;
    Some(VersionName { image, number: u64::try_from(number).ok()? })
}

/// Parses a version's row.
pub(super) fn version_of(record_id: &str, record: &str) -> Result<Version> {
    let record = VersionRecord::from_json(record)?;
    let record_id = BlockId::from_hex(record_id)
        .ok_or_else(|| Error::corrupt(format!("a version has an invalid record id {record_id:?}")))?;
    Ok(Version { name: record.name(), record_id, record })
}
