//! Forgetting versions: they have no name any more, and their numbers are never used again.
//!
//! Nothing else happens: their records and frames stay in packs until they are collected, so whoever has opened one
//! goes on reading, and `rebuild --resurrect` brings one back before that.

use platter_image::{Error, Result};

use crate::name::{ImageName, VersionName};
use crate::resolve::Version;
use crate::store::Store;
use crate::token::refusal;

impl Store {
    /// Forgets the version of that number, or all versions of an image, in one commit, durable when it returns. Gives what
    /// was forgotten.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the image is being edited; `Transient` when another
    /// process writes the store for longer than some seconds; `Io`.
    pub fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<VersionName>> {
        self.change_catalog(|change| {
            let mut versions: Vec<Version> = change.versions_below(image)?;
            versions.retain(|version| version.name.image == *image);
            versions.retain(|version| number.is_none_or(|number| version.name.number == number));
            if versions.is_empty() {
                let what = number.map_or(image.to_string(), |number| format!("{image}@{number}"));
                return Ok(Err(Error::missing(format!("there is no {what}"))));
            }
            if let Some(refusal) = refusal(image, None, change.token(image)?.as_ref()) {
                return Ok(Err(refusal));
            }
            for version in &versions {
                change.remove_version(&version.name)?;
            }
            let forgotten: Vec<VersionName> = versions.into_iter().map(|version| version.name).collect();
            // A boot set is forgotten with its version.
            let gone: Vec<_> = forgotten.iter().map(|name| (name.clone(), None)).collect();
            change.move_members(&gone)?;
            Ok(Ok(forgotten))
        })
    }
}
