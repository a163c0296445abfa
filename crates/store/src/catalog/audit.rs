//! Keeps the set sums of packs in each change of the catalog.
//!
//! Different code changes them: `added` follows from what a change means to do ([`Change::put_pack`]), the others from the rows that it
//! really writes and removes. They change in the transaction of the rows, and their row is in the change log. A change that loses
//! a pack, or that brings one in otherwise, is not committed. `check` and each collection also compare them with the sums of the rows.

use platter_image::{Error, Result};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::query::{meta, packs};
use super::set_sums::{SET_SUMS, SetSums, Sum};
use super::table::{META, PACKS, Table, text};
use super::{Catalog, Change, PackRow, failed};

fn read(connection: &Connection) -> Result<Option<SetSums>> {
    meta(connection, SET_SUMS)?.map(|text| SetSums::from_text(&text)).transpose()
}

impl Catalog {
    /// Returns how set sums and packs contradict each other; `None` if they agree, or there are no sums yet.
    pub(crate) fn contradiction_of_packs(&self) -> Result<Option<String>> {
        let transaction = self.connection.unchecked_transaction();
        let transaction = transaction.map_err(|error| failed("reading the catalog", error))?;
        let (sums, rows) = (read(&transaction)?, packs(&transaction)?);
        Ok(sums.and_then(|sums| sums.contradiction(&rows)))
    }
}

/// The sums in a change that concerns packs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangedSums {
    before: SetSums,
    now: SetSums,
}

impl Change<'_> {
    /// Adds a pack to those that were ever added, in place of its earlier row.
    pub(super) fn sum_added(&mut self, old: Option<&PackRow>, row: &PackRow) -> Result<()> {
        let added = &mut self.sums()?.added;
        *added = old.map_or(*added, |old| added.without(Sum::of(old))).with(Sum::of(row));
        Ok(())
    }

    /// Takes over a row of the table that is written, or removed. The table has not changed yet.
    pub(super) fn sum_row(&mut self, table: &Table, values: &[Value], is_put: bool) -> Result<()> {
        if table.name != PACKS.name {
            return Ok(());
        }
        let row = PackRow::parse(values)?;
        let side = self.sums()?.side(&row);
        *side = if is_put { side.with(Sum::of(&row)) } else { side.without(Sum::of(&row)) };
        Ok(())
    }

    /// Loads the sums, before the first change of a pack.
    fn sums(&mut self) -> Result<&mut SetSums> {
        if self.set_sums.is_none() {
            let sums = match read(self.transaction)? {
                Some(sums) => sums,
                None => SetSums::of(&packs(self.transaction)?),
            };
            self.set_sums = Some(ChangedSums { before: sums, now: sums });
        }
        let sums = self.set_sums.as_mut().map(|sums| &mut sums.now);
        sums.ok_or_else(|| Error::bug("the set sums were just loaded"))
    }

    /// Writes the sums if the change concerned packs. After that, it changes no more of them.
    ///
    /// # Errors
    /// `Bug` when the change loses a pack, or lists one that it does not add.
    pub(crate) fn write_set_sums(&mut self) -> Result<()> {
        let Some(ChangedSums { before, now }) = self.set_sums.take() else { return Ok(()) };
        if now.missing() != before.missing() {
            return Err(Error::bug(
                "a change of the catalog would lose packs, or list packs that were not added: nothing was changed",
            ));
        }
        self.put(&META, vec![text(SET_SUMS), text(now.to_text())])
    }
}
