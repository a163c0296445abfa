//! Edit locks in the catalog: one row for each edit lock that is held, and the highest number ever assigned.

use platter_image::{Error, Result};
use rusqlite::Connection;

use super::query::meta;
use super::table::{self, EDIT_LOCKS, LAST_EDIT_LOCK, Row, number, text};
use super::{Catalog, Change};
use platter_records::{Action, EditLock, ImageName};

pub(super) fn edit_lock(row: &Row) -> Result<EditLock> {
    let parsed = row.text(0).parse().ok().zip(u64::try_from(row.number(1)).ok());
    let (image, number) = parsed.ok_or_else(|| {
        Error::corrupt(format!("the catalog has an invalid edit lock {} of {:?}", row.number(1), row.text(0)))
    })?;
    let (holder, overlay) = (row.text(2).to_owned(), row.text(4).to_owned());
    Ok(EditLock { image, number, holder, time_unix_ms: row.number(3), overlay })
}

fn read_edit_lock(connection: &Connection, image: &ImageName) -> Result<Option<EditLock>> {
    let rows = table::read(connection, &EDIT_LOCKS, "WHERE image = ?1", &[&image.as_str()])?;
    rows.first().map(edit_lock).transpose()
}

fn read_last_edit_lock(connection: &Connection) -> Result<u64> {
    let text = meta(connection, LAST_EDIT_LOCK)?.unwrap_or_default();
    text.parse()
        .map_err(|_| Error::corrupt(format!("the catalog has an invalid last edit lock number: {text:?}")))
}

impl Catalog {
    /// Returns the edit lock of an image, if it is held.
    pub(crate) fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        read_edit_lock(&self.connection, image)
    }

    /// Returns all edit locks, ordered by image.
    pub(crate) fn edit_locks(&self) -> Result<Vec<EditLock>> {
        table::read(&self.connection, &EDIT_LOCKS, "ORDER BY image", &[])?.iter().map(edit_lock).collect()
    }

    /// Returns the highest number that an edit lock ever had.
    pub(crate) fn last_edit_lock(&self) -> Result<u64> {
        read_last_edit_lock(&self.connection)
    }
}

impl Change<'_> {
    /// Returns the edit lock of an image, if it is held.
    pub(crate) fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        read_edit_lock(self.transaction, image)
    }

    /// Returns all edit locks, ordered by image.
    pub(crate) fn edit_locks(&self) -> Result<Vec<EditLock>> {
        table::read(self.transaction, &EDIT_LOCKS, "ORDER BY image", &[])?.iter().map(edit_lock).collect()
    }

    /// Returns the highest number that an edit lock ever had.
    pub(crate) fn last_edit_lock(&self) -> Result<u64> {
        read_last_edit_lock(self.transaction)
    }

    /// Gives the edit lock of an image to `holder` under a new number, even if it is held. An inner error means that there is no such
    /// image. The number is the time, unless a lock has that or a higher one: it is higher than all before, and says nothing of
    /// how many there were, which others must not know.
    pub(crate) fn grant_edit_lock(
        &mut self,
        image: &ImageName,
        holder: &str,
        time_unix_ms: i64,
    ) -> Result<Result<EditLock>> {
        // An image whose versions were all forgotten still has a row in `images`, but nothing to edit.
        if self.newest_version(image)?.is_none() {
            return Ok(Err(Error::missing(format!("there is no image {image}"))));
        }
        let stolen = self.edit_lock(image)?.is_some();
        let number = self.last_edit_lock()?.saturating_add(1).max(u64::try_from(time_unix_ms).unwrap_or(0));
        self.raise_last_edit_lock(number)?;
        let overlay = String::new();
        let edit_lock =
            EditLock { image: image.clone(), number, holder: holder.to_owned(), time_unix_ms, overlay };
        self.put_edit_lock(&edit_lock)?;
        let (image, holder) = (image.clone(), holder.to_owned());
        self.does(Action::TakeLock { image, lock: number, holder, stolen });
        Ok(Ok(edit_lock))
    }

    /// Sets the overlay of an image's edit lock.
    pub(crate) fn set_overlay(&mut self, image: &ImageName, overlay: &str) -> Result<()> {
        match self.edit_lock(image)? {
            Some(edit_lock) => self.put_edit_lock(&EditLock { overlay: overlay.to_owned(), ..edit_lock }),
            None => Ok(()),
        }
    }

    /// Removes the edit lock of an image: nobody holds it afterwards.
    pub(crate) fn remove_edit_lock(&mut self, image: &ImageName) -> Result<()> {
        self.remove(&EDIT_LOCKS, &[text(image)])
    }

    /// Makes sure that the next edit lock gets a number higher than `number`.
    pub(crate) fn raise_last_edit_lock(&mut self, number: u64) -> Result<()> {
        let last = self.last_edit_lock()?.max(number);
        if last > i64::MAX as u64 {
            return Err(Error::corrupt(format!("edit lock number {last}: all numbers are used up")));
        }
        self.set_meta(LAST_EDIT_LOCK, &last.to_string())
    }

    fn put_edit_lock(&mut self, edit_lock: &EditLock) -> Result<()> {
        let (image, holder, overlay) =
            (text(&edit_lock.image), text(&edit_lock.holder), text(&edit_lock.overlay));
        self.put(
            &EDIT_LOCKS,
            vec![image, number(edit_lock.number), holder, edit_lock.time_unix_ms.into(), overlay],
        )
    }
}
