//! Protects versions: a protected version cannot be forgotten by a user or by a retention policy.

use platter_image::{Error, Result};

use crate::store::Store;
use platter_records::{Action, ImageName, Version, VersionName};

impl Store {
    /// Protects one version of an image, or all present ones if `number` is `None`; `protect` false ends that. One commit, durable
    /// on return. Returns the versions whose protection changed.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Transient` when another process holds the writer's lock for more than a few
    /// seconds; `Io`.
    pub fn protect(&self, image: &ImageName, number: Option<u64>, protect: bool) -> Result<Vec<VersionName>> {
        self.change_names(!protect, |change| {
            let mut versions: Vec<Version> = change.versions_below(image)?;
            versions.retain(|version| version.name.image == *image);
            versions.retain(|version| number.is_none_or(|number| version.name.number == number));
            if versions.is_empty() {
                let what = number.map_or(image.to_string(), |number| format!("{image}@{number}"));
                return Ok(Err(Error::missing(format!("there is no {what}"))));
            }
            let mut changed = Vec::new();
            for version in versions {
                if change.set_protected(&version.name, protect)? {
                    changed.push(version.name);
                }
            }
            change.does(match protect {
                true => Action::Protect { versions: changed.clone() },
                false => Action::Unprotect { versions: changed.clone() },
            });
            Ok(Ok(changed))
        })
    }

    /// Returns all protected versions, ordered by image and number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn protected(&self) -> Result<Vec<VersionName>> {
        self.catalog()?.protected()
    }
}
