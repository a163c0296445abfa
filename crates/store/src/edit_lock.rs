//! Edit locks: the right to publish the next version of an image. One holder at a time, fenced by a number.
//!
//! Why a suspended holder cannot harm its successor (design: fencing): whoever takes an edit lock gets a number higher than any edit lock
//! of this store had before. Publishing compares its number with the current edit lock's number in the same transaction that creates
//! the version. Clocks decide nothing; times are only displayed. Edit locks are stored in the catalog and in its change log. A
//! store that lost both has no edit locks after a rebuild, and publishing under an older edit lock is refused.
//!
//! A change of an edit lock is one transaction under the writer's lock. A store opened for reading takes that lock only for the
//! transaction: a process that serves a live disk for weeks does not keep others from writing.

use platter_image::Result;
use platter_records::{
    Action, EditLock, HOLDER_LENGTH_MAX, ImageName, OVERLAY_LENGTH_MAX, check_text, edit_lock_refusal,
};

use crate::catalog::{Catalog, Change};
use crate::home;
use crate::place::Format;
use crate::reserve::lend;
use crate::salvage::refuse_older_catalog;
use crate::standing::refusal;
use crate::store::{Store, check_store, take_lock};

impl Store {
    /// Returns the current edit lock of an image; `None` when nobody holds one.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        self.catalog()?.edit_lock(image)
    }

    /// Returns all edit locks that are held, ordered by image.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn edit_locks(&self) -> Result<Vec<EditLock>> {
        self.catalog()?.edit_locks()
    }

    /// Takes the edit lock of an image. It must be free. Durable on return.
    ///
    /// # Errors
    /// `Refused` when the edit lock is held, even by the same holder, or when the holder's name is invalid; `Missing` when there is
    /// no such image; `Transient` when another process holds the writer's lock for more than a few seconds; `Io`.
    pub fn take_edit_lock(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<EditLock> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog(|change| {
            match edit_lock_refusal(image, None, change.edit_lock(image)?.as_ref()) {
                Some(refusal) => Ok(Err(refusal)),
                None => change.grant_edit_lock(image, holder, time_unix_ms),
            }
        })
    }

    /// Takes the edit lock of an image even if it is held. The previous holder can no longer publish under its number. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Store::take_edit_lock`], except that a held edit lock is no error.
    pub fn steal_edit_lock(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<EditLock> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog_on_full_disk(|change| change.grant_edit_lock(image, holder, time_unix_ms))
    }

    /// Records which overlay holds the edits. The overlay's name contains the edit lock's number, so it is set after taking the
    /// edit lock.
    ///
    /// # Errors
    /// `Refused` when the edit lock is no longer current, or the overlay's name is invalid; `Transient`, `Io` as
    /// [`Store::take_edit_lock`].
    pub fn set_overlay(&self, edit_lock: &EditLock, overlay: &str) -> Result<EditLock> {
        check_text("overlay", overlay, 0, OVERLAY_LENGTH_MAX)?;
        self.change_held(edit_lock, false, |change| {
            change.set_overlay(&edit_lock.image, overlay)?;
            change.does(Action::SetOverlay { image: edit_lock.image.clone(), lock: edit_lock.number });
            Ok(EditLock { overlay: overlay.to_owned(), ..edit_lock.clone() })
        })
    }

    /// Releases an edit lock. Its number is never used again. Durable on return.
    ///
    /// # Errors
    /// `Refused` when the edit lock is no longer current; `Transient`, `Io` as [`Store::take_edit_lock`].
    pub fn release_edit_lock(&self, edit_lock: &EditLock) -> Result<()> {
        self.change_held(edit_lock, true, |change| {
            change.does(Action::ReleaseLock { image: edit_lock.image.clone(), lock: edit_lock.number });
            change.remove_edit_lock(&edit_lock.image)
        })
    }

    /// Checks whether the next version of `image` could be published now under edit lock `number` (`None`: without an edit lock). Used
    /// before long work; publishing checks again.
    ///
    /// # Errors
    /// `Refused` when it could not be published; an error when the catalog cannot be read.
    pub fn check_edit_lock(&self, image: &ImageName, number: Option<u64>) -> Result<()> {
        let held = self.edit_lock(image)?;
        edit_lock_refusal(image, number, held.as_ref()).map_or(Ok(()), Err)
    }

    /// Runs `change` if `edit_lock` is still the image's current edit lock, `on_full_disk` with the space of the reserve.
    fn change_held<T>(
        &self,
        edit_lock: &EditLock,
        on_full_disk: bool,
        change: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names(on_full_disk, |catalog| {
            let held = catalog.edit_lock(&edit_lock.image)?;
            match edit_lock_refusal(&edit_lock.image, Some(edit_lock.number), held.as_ref()) {
                Some(refusal) => Ok(Err(refusal)),
                None => change(catalog).map(Ok),
            }
        })
    }

    /// Runs `change`, which adds nothing to packs, as one transaction under the writer's lock. An inner error means refused: the
    /// store stays usable.
    pub(crate) fn change_catalog<T>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        self.change_names(false, change)
    }

    /// As [`Store::change_catalog`], with the space of the reserve if the disk is full. Only for changes after which a collection
    /// can free space, or after which versions can be forgotten.
    pub(crate) fn change_catalog_on_full_disk<T>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        self.change_names(true, change)
    }

    /// As [`Store::change_catalog`]; with `frees_space`, as [`Store::change_catalog_on_full_disk`].
    pub(crate) fn change_names<T>(
        &self,
        frees_space: bool,
        change: impl FnOnce(&mut Change<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        // Before a lock is waited for.
        self.standing()?.refusal().map_or(Ok(()), Err)?;
        self.change_locked(frees_space, |catalog| match refusal(catalog)? {
            Some(refusal) => Ok(Err(refusal)),
            None => change(catalog),
        })
    }

    /// As [`Store::change_catalog`], whatever the store is among its copies.
    pub(crate) fn change_locked<T>(
        &self,
        frees_space: bool,
        change: impl FnOnce(&mut Change<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        if let Some(writer) = &self.0.writer {
            writer.check()?;
            let mut catalog = writer.catalog();
            let _space = frees_space.then(|| lend(self.place()));
            return writer.poison(catalog.change(self.actor(), change))?;
        }
        let _lock = take_lock(self.place())?;
        let _space = frees_space.then(|| lend(self.place()));
        let format = Format { id: self.id(), domain: self.domain() };
        let mut catalog = Catalog::open_writer(self.place(), |catalog| check_store(catalog, format))?;
        let listed = catalog.packs()?.iter().map(|row| row.id).collect();
        refuse_older_catalog(self.place(), self.id(), catalog.head()?.number(), &listed)?;
        home::note(self.place());
        catalog.change(self.actor(), change)?
    }
}
