//! Forgetting versions and renaming images, as a person asks for it.

use platter_image::{Error, Result};
use platter_store::{ImageName, NumberChoice, VersionQuery};
use serde::Serialize;

use crate::{OpenStore, StoreLocation};

/// Versions that were forgotten.
#[derive(Clone, Debug, Serialize)]
pub struct ForgetReport {
    /// Their names: `lab/debian12@7`.
    pub forgotten: Vec<String>,
}

/// Images that were renamed.
#[derive(Clone, Debug, Serialize)]
pub struct RenameReport {
    /// Their versions, by number.
    pub renamed: Vec<RenamedVersion>,
}

/// A version of a renamed image.
#[derive(Clone, Debug, Serialize)]
pub struct RenamedVersion {
    /// What it was called: `lab/debian12@7`.
    pub from: String,
    /// What it is called.
    pub to: String,
}

/// Forgets `NAME@7`, or all versions of `NAME`. Their space is given back by a collection, not by this.
///
/// # Errors
/// `Refused` for a score or `NAME@latest`; as [`platter_store::Store::forget`].
pub fn forget(store: &StoreLocation, what: &str) -> Result<ForgetReport> {
    let (image, number) = match what.parse()? {
        VersionQuery::Named(image, NumberChoice::Number(number)) => (image, Some(number)),
        VersionQuery::Named(image, NumberChoice::Latest) if !what.contains('@') => (image, None),
        VersionQuery::Named(..) => {
            return Err(Error::refused(format!(
                "{what} is another version tomorrow: name the number to forget"
            )));
        }
        VersionQuery::Score(_) => {
            return Err(Error::refused("a score is not forgotten: name a version that has it"));
        }
    };
    Ok(ForgetReport { forgotten: OpenStore::open_reader(store)?.forget(&image, number)? })
}

/// Renames an image, and all images below it.
///
/// # Errors
/// As [`platter_store::Store::rename`]; `Transient` when another process writes the store.
pub fn rename(store: &StoreLocation, from: &ImageName, to: &ImageName) -> Result<RenameReport> {
    let renamed = OpenStore::open_reader(store)?.rename(from, to)?;
    Ok(RenameReport { renamed: renamed.into_iter().map(|(from, to)| RenamedVersion { from, to }).collect() })
}
