//! From what a person types to a version, and the version as the catalog has it.

use platter_image::{BlockId, Error, Result, Score};

use crate::name::{ImageName, NumberChoice, VersionName, VersionQuery};
use crate::record::VersionRecord;
use crate::store::Store;

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub name: VersionName,
    /// The id of its record, a block of kind version in some pack.
    pub record_id: BlockId,
    /// Its record.
    pub record: VersionRecord,
}

/// What a name or a score stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The recipe.
    pub score: Score,
    /// The version; `None` for a score that no version has, but whose recipe is here.
    pub version: Option<Version>,
}

impl Store {
    /// Every image that has versions, by name: each by its newest version.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn images(&self) -> Result<Vec<Version>> {
        self.catalog()?.newest_versions()
    }

    /// Every version of every image, by image and number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn versions(&self) -> Result<Vec<Version>> {
        self.catalog()?.all_versions()
    }

    /// A number that is another one once names, versions or tokens have changed; cheap to ask.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn generation(&self) -> Result<i64> {
        self.catalog()?.generation()
    }

    /// The versions of an image, the newest first.
    ///
    /// # Errors
    /// `Missing` when there is no such image; when the catalog cannot be read.
    pub fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let versions = self.catalog()?.history(image)?;
        if versions.is_empty() { Err(self.no_image(image)) } else { Ok(versions) }
    }

    /// One version of an image.
    ///
    /// # Errors
    /// `Missing`, saying what there is; when the catalog cannot be read.
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

    /// What `NAME`, `NAME@7`, `NAME@latest` or a score stands for. A score is good when its recipe's root is here,
    /// whether a version has it or not.
    ///
    /// # Errors
    /// `Refused` for text that is none of these, `Missing`; when the catalog cannot be read.
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        match text.parse()? {
            VersionQuery::Named(image, choice) => {
                let version = self.version(&image, choice)?;
                Ok(Resolved { score: version.record.score, version: Some(version) })
            }
            VersionQuery::Score(score) => {
                let version = self.catalog()?.versions_of(score)?.into_iter().next();
                if version.is_none() && !self.has(&score.0) {
                    return Err(Error::missing(format!("nothing here has the score {score}")));
                }
                Ok(Resolved { score, version })
            }
        }
    }

    fn no_image(&self, image: &ImageName) -> Error {
        Error::missing(format!("there is no image {image} in {}", self.place().dir().display()))
    }
}
