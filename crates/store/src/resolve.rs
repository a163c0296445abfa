//! Resolves names and scores that a user typed to versions.

use platter_image::{Error, Result};
use platter_records::{ImageName, NumberChoice, Resolved, Version, VersionQuery};

use crate::store::Store;

impl Store {
    /// Returns the newest version of each image, ordered by name.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn images(&self) -> Result<Vec<Version>> {
        self.catalog()?.newest_versions()
    }

    /// Returns all versions, ordered by image and number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn versions(&self) -> Result<Vec<Version>> {
        self.catalog()?.all_versions()
    }

    /// Returns a number that changes whenever names, versions or edit locks change. Cheap to call.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn generation(&self) -> Result<i64> {
        self.catalog()?.generation()
    }

    /// Returns the versions of an image, newest first.
    ///
    /// # Errors
    /// `Missing` when there is no such image; when the catalog cannot be read.
    pub fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let versions = self.catalog()?.history(image)?;
        if versions.is_empty() { Err(self.no_image(image)) } else { Ok(versions) }
    }

    /// Returns one version of an image.
    ///
    /// # Errors
    /// `Missing`, with the newest version in the message; an error when the catalog cannot be read.
    pub fn version(&self, image: &ImageName, choice: NumberChoice) -> Result<Version> {
        let found = self.catalog()?.version(image, choice)?;
        if let Some(version) = found {
            return Ok(version);
        }
        let newest = self.catalog()?.version(image, NumberChoice::Latest)?;
        Err(match (choice, newest) {
            (NumberChoice::Number(number), Some(newest)) => {
                Error::missing(format!("there is no {image}@{number}; the newest is {}", newest.name))
            }
            _ => self.no_image(image),
        })
    }

    /// Resolves `NAME`, `NAME@7`, `NAME@latest` or a score. A score is accepted if the root of its recipe is in the store, even
    /// if no version has it.
    ///
    /// # Errors
    /// `Refused` for any other text; `Missing`; an error when the catalog cannot be read.
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        match text.parse()? {
            VersionQuery::Named(image, choice) => {
                let version = self.version(&image, choice)?;
                Ok(Resolved { score: version.record.score, version: Some(version) })
            }
            VersionQuery::Score(score) => {
                let version = self.catalog()?.oldest_of(score)?;
                if version.is_none() && !self.has(&score.0)? {
                    return Err(Error::missing(format!("no disk in the store has the score {score}")));
                }
                Ok(Resolved { score, version })
            }
        }
    }

    fn no_image(&self, image: &ImageName) -> Error {
        Error::missing(format!("there is no image {image} in {}", self.place().dir().display()))
    }
}
