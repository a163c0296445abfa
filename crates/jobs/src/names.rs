//! Commands that forget versions and rename images.

use platter_api::{ForgetReport, RenameReport, RenamedVersion};
use platter_image::{Error, Result};
use platter_records::{ImageName, NumberChoice, VersionName, VersionQuery};

use platter_fetch::{OpenStore, StoreLocation};

/// The request to forget versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForgetRequest {
    /// One version.
    Version(ImageName, u64),
    /// All versions of an image.
    Image(ImageName),
}

impl ForgetRequest {
    /// `NAME@7` for one version, `NAME` for all versions of an image.
    ///
    /// # Errors
    /// `Refused` for a score or `NAME@latest`.
    pub fn parse(what: &str) -> Result<Self> {
        match what.parse()? {
            VersionQuery::Named(image, NumberChoice::Number(number)) => Ok(Self::Version(image, number)),
            VersionQuery::Named(image, NumberChoice::Latest) if !what.contains('@') => Ok(Self::Image(image)),
            VersionQuery::Named(..) => Err(Error::refused(format!(
                "{what} may refer to another version later: give the version number"
            ))),
            VersionQuery::Score(_) => {
                Err(Error::refused("a score cannot be forgotten: name a version that has it"))
            }
        }
    }
}

impl ForgetRequest {
    fn parts(&self) -> (&ImageName, Option<u64>) {
        match self {
            Self::Version(image, number) => (image, Some(*number)),
            Self::Image(image) => (image, None),
        }
    }
}

/// Forgets a version, or all versions of an image. A later collection releases their space.
///
/// # Errors
/// As [`platter_store::Store::forget`].
pub fn forget(store: &StoreLocation, what: &ForgetRequest) -> Result<ForgetReport> {
    let (image, number) = what.parts();
    Ok(ForgetReport { forgotten: OpenStore::open_reader(store)?.forget(image, number)? })
}

/// Protects a version from being forgotten, or all present versions of an image; `protect` false ends that. Returns the versions
/// whose protection changed.
///
/// # Errors
/// As [`platter_store::Store::protect`].
pub fn protect(store: &StoreLocation, what: &ForgetRequest, protect: bool) -> Result<Vec<VersionName>> {
    let (image, number) = what.parts();
    OpenStore::open_reader(store)?.protect(image, number, protect)
}

/// Renames an image, and all images below it.
///
/// # Errors
/// As [`platter_store::Store::rename`]; `Transient` when another process writes the store.
pub fn rename(store: &StoreLocation, from: &ImageName, to: &ImageName) -> Result<RenameReport> {
    let renamed = OpenStore::open_reader(store)?.rename(from, to)?;
    Ok(RenameReport { renamed: renamed.into_iter().map(|(from, to)| RenamedVersion { from, to }).collect() })
}
