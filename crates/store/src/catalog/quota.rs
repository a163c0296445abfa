//! Quotas in the catalog: a row of `meta` each, so that a catalog without quotas is as it was before there were any.

use platter_image::{Error, Result};
use rusqlite::Connection;

use super::table::{self, META, Row, text};
use super::{Catalog, Change};
use platter_records::{Action, ImageName, Quota};

/// Start of a quota's key in `meta`; its prefix follows.
const KEY: &str = "quota/";

/// Returns whether a key of `meta` belongs to a quota.
pub(super) fn is_quota_key(key: &str) -> bool {
    key.starts_with(KEY)
}

fn key_of(prefix: &ImageName) -> String {
    format!("{KEY}{prefix}")
}

pub(super) fn quota(row: &Row) -> Result<Quota> {
    let (key, value) = (row.text(0), row.text(1));
    let prefix = key.strip_prefix(KEY).and_then(|prefix| prefix.parse().ok());
    let parsed = prefix.zip(value.parse().ok()).map(|(prefix, limit_bytes)| Quota { prefix, limit_bytes });
    parsed.ok_or_else(|| Error::corrupt(format!("the catalog has an invalid quota {key:?} of {value:?}")))
}

fn quotas(connection: &Connection) -> Result<Vec<Quota>> {
    // '0' is the character after '/'.
    let rows = table::read(connection, &META, "WHERE key > 'quota/' AND key < 'quota0' ORDER BY key", &[])?;
    rows.iter().map(quota).collect()
}

impl Catalog {
    /// Returns all quotas, ordered by prefix.
    pub(crate) fn quotas(&self) -> Result<Vec<Quota>> {
        quotas(&self.connection)
    }
}

impl Change<'_> {
    /// Returns all quotas, ordered by prefix.
    pub(crate) fn quotas(&self) -> Result<Vec<Quota>> {
        quotas(self.transaction)
    }

    /// Sets the quota of a prefix, or removes it. Returns the one before.
    pub(crate) fn set_quota(
        &mut self,
        prefix: &ImageName,
        limit_bytes: Option<u64>,
    ) -> Result<Option<Quota>> {
        let key = key_of(prefix);
        let before = self.row(&META, &[text(&key)])?.as_ref().map(quota).transpose()?;
        match limit_bytes {
            Some(bytes) => self.set_meta(&key, &bytes.to_string())?,
            None => self.remove(&META, &[text(&key)])?,
        }
        self.does(Action::SetQuota { prefix: prefix.clone(), limit_bytes });
        Ok(before)
    }
}
