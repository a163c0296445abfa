//! Forgets versions: removes their names from the catalog. Their numbers are never used again.
//!
//! Records and frames stay in packs until they are collected (`collect`), and then in the trash. Until that is emptied, readers
//! that have opened the version can go on reading, and `rebuild --resurrect` can restore it.

use platter_image::{Error, Result};

use crate::catalog::Fate;
use crate::store::Store;
use platter_records::{Action, ImageName, Version, VersionName, edit_lock_refusal};

impl Store {
    /// Forgets one version of an image, or all of them if `number` is `None`, in one commit, durable on return. Returns the names
    /// of the forgotten versions.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the image is being edited or one of the versions is protected; `Transient` when another process
    /// holds the writer's lock for more than a few seconds; `Io`.
    pub fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<VersionName>> {
        self.change_catalog_on_full_disk(|change| {
            let mut versions: Vec<Version> = change.versions_below(image)?;
            versions.retain(|version| version.name.image == *image);
            versions.retain(|version| number.is_none_or(|number| version.name.number == number));
            if versions.is_empty() {
                let what = number.map_or(image.to_string(), |number| format!("{image}@{number}"));
                return Ok(Err(Error::missing(format!("there is no {what}"))));
            }
            if let Some(refusal) = edit_lock_refusal(image, None, change.edit_lock(image)?.as_ref()) {
                return Ok(Err(refusal));
            }
            for version in &versions {
                if change.is_protected(&version.name)? {
                    let what = format!("{} is protected: end that with `platter unprotect`", version.name);
                    return Ok(Err(Error::refused(what)));
                }
            }
            for version in &versions {
                change.remove_version(&version.name, Fate::Forgotten)?;
            }
            let forgotten: Vec<VersionName> = versions.into_iter().map(|version| version.name).collect();
            // The boot sets of these versions are removed from the hoard, too.
            let gone: Vec<_> = forgotten.iter().map(|name| (name.clone(), None)).collect();
            change.move_members(&gone)?;
            change.does(Action::Forget { versions: forgotten.clone() });
            Ok(Ok(forgotten))
        })
    }
}
