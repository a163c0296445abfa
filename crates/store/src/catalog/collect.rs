//! What collection reads from the catalog and changes in it: the roots, and the states of packs.

use std::collections::BTreeSet;

use platter_image::{BlockId, Error, Result, Score};
use rusqlite::Connection;

use super::query::{packs, versions};
use super::table::{self, HOARD, PACKS, VERSIONS, number, text};
use super::{Catalog, Change, PackRow, PackState, failed};
use platter_records::{PackChange, Version};

/// The roots that the catalog refers to, and its packs, read in one transaction.
#[derive(Debug)]
pub(crate) struct CatalogRoots {
    /// All versions, ordered by image and number.
    pub(crate) versions: Vec<Version>,
    /// The boot sets of current and former members of the hoard, as far back as changes are kept.
    pub(crate) boot_sets: BTreeSet<BlockId>,
    pub(crate) packs: Vec<PackRow>,
}

fn roots(connection: &Connection) -> Result<CatalogRoots> {
    let mut boot_sets = BTreeSet::new();
    for row in table::read(connection, &HOARD, "", &[])? {
        let id = BlockId::from_hex(row.text(5));
        boot_sets.insert(id.ok_or_else(|| {
            Error::corrupt(format!(
                "the catalog has an invalid boot set of {}@{}",
                row.text(0),
                row.number(1)
            ))
        })?);
    }
    let versions = versions(connection, "ORDER BY image, number", &[])?;
    Ok(CatalogRoots { versions, boot_sets, packs: packs(connection)? })
}

impl Catalog {
    /// Returns the roots and the packs, as of one commit.
    pub(crate) fn roots(&self) -> Result<CatalogRoots> {
        let transaction = self.connection.unchecked_transaction();
        roots(&*transaction.map_err(|error| failed("reading the catalog", error))?)
    }
}

impl Change<'_> {
    /// Returns whether a version has that score.
    pub(crate) fn has_score(&self, score: Score) -> Result<bool> {
        let rows =
            table::read(self.transaction, &VERSIONS, "WHERE score = ?1 LIMIT 1", &[&score.to_string()])?;
        Ok(!rows.is_empty())
    }

    /// Returns whether that boot set is, or was within the kept changes, that of a member of the hoard.
    pub(crate) fn knows_boot_set(&self, id: &BlockId) -> Result<bool> {
        let rows = table::read(self.transaction, &HOARD, "WHERE boot_set = ?1 LIMIT 1", &[&id.to_string()])?;
        Ok(!rows.is_empty())
    }

    /// Sets the state of a listed pack, as part of another change.
    ///
    /// # Errors
    /// `Bug` when the catalog does not list the pack, or the change would undo a death.
    pub(crate) fn set_pack_state(&mut self, change: &PackChange) -> Result<()> {
        let PackChange { pack, state, epoch } = *change;
        let row = self.row(&PACKS, &[text(pack)])?;
        let row = row.ok_or_else(|| Error::bug(format!("the catalog does not list pack {pack}")))?;
        let old = PackState::from_word(row.text(1));
        if old.is_some_and(|old| !old.is_readable()) && state.is_readable() {
            return Err(Error::bug(format!("pack {pack} is dead and stays so")));
        }
        let mut values = row.values;
        (values[1], values[2]) = (text(state.as_str()), number(epoch));
        self.put(&PACKS, values)
    }
}
