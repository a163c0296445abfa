//! The history of a store: the changes that its logs contain.

use platter_image::Result;

use crate::catalog::read_after;
use crate::store::Store;
use platter_records::History;

impl Store {
    /// Returns up to `count` changes with numbers above `after`, ordered by number, from the present log and earlier ones. Reads
    /// little more than these from the logs.
    ///
    /// # Errors
    /// When catalog or logs cannot be read.
    pub fn changes_after(&self, after: u64, count: usize) -> Result<History> {
        let head = self.catalog()?.head()?;
        let (entries, is_whole) = read_after(self.place(), &head, after, count)?;
        let changes = entries.into_iter().map(|entry| entry.change).collect();
        Ok(History { changes, last: head.number(), is_whole })
    }

    /// Returns the number of the last change.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_change(&self) -> Result<u64> {
        Ok(self.catalog()?.head()?.number())
    }
}
