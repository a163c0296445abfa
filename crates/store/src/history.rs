//! The history of a store: all changes that its logs contain.

use platter_image::Result;

use crate::catalog::{ChangePosition, read_history, read_since};
use crate::store::Store;
use platter_records::{ChangeRecord, History};

impl Store {
    /// Returns all changes that the store's logs contain.
    ///
    /// # Errors
    /// When catalog or logs cannot be read.
    pub fn history_of_changes(&self) -> Result<History> {
        let head = self.catalog()?.head()?;
        let (changes, is_whole) = read_history(self.place(), &head)?;
        Ok(History { changes, is_whole })
    }

    /// Returns the position after the last change.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn change_position(&self) -> Result<ChangePosition> {
        Ok(self.catalog()?.head()?.position())
    }

    /// Returns the changes after `position` in order, and the position after them. Reads no more than these, unless a new log has
    /// replaced the one of `position`.
    ///
    /// # Errors
    /// When catalog or log cannot be read.
    pub fn changes_since(&self, position: &ChangePosition) -> Result<(Vec<ChangeRecord>, ChangePosition)> {
        let head = self.catalog()?.head()?;
        let changes = match read_since(self.place(), &head, position)? {
            Some(changes) => changes,
            None => {
                let (mut changes, _) = read_history(self.place(), &head)?;
                changes.retain(|change| change.number > position.number());
                changes
            }
        };
        Ok((changes, head.position()))
    }
}
