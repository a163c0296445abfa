//! Version arguments. Invalid names are usage errors, found before a command runs.

use std::fmt;
use std::str::FromStr;

use platter_jobs::{Error, NumberChoice, Result, VersionName, VersionQuery};

/// `NAME`, `NAME@NUMBER`, `NAME@latest` or a score, as typed.
#[derive(Clone, Debug)]
pub(crate) struct VersionArgument(String);

impl VersionArgument {
    /// The text as typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VersionArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let part = text.split_once(':').filter(|(_, number)| number.parse::<u32>().is_ok());
        if let Some((version, number)) = part {
            return Err(Error::refused(format!(
                "a partition cannot be chosen here: write {version}; `platter install {version}:{number} FILE` writes this partition"
            )));
        }
        text.parse::<VersionQuery>()?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VersionArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// `NAME`, `NAME@NUMBER` or `NAME@latest`, as typed; a score is not accepted.
#[derive(Clone, Debug)]
pub(crate) struct NamedVersion(String);

impl NamedVersion {
    /// The text as typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamedVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            VersionQuery::Named(..) => Ok(Self(text.to_owned())),
            VersionQuery::Score(_) => Err(no_name()),
        }
    }
}

/// A version as [`VersionArgument`], or `VERSION:N` for a partition of it, as typed.
#[derive(Clone, Debug)]
pub(crate) struct PartArgument {
    /// The version.
    pub(crate) version: String,
    /// The number of the partition; `None` for the whole disk.
    pub(crate) part: Option<u32>,
}

impl FromStr for PartArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (version, part) = match text.split_once(':') {
            None => (text, None),
            Some((version, number)) => {
                let number = number.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(|| {
                    Error::refused(format!(
                        "{number:?} is no partition number: write {version} or {version}:N (a logical volume cannot be chosen here)"
                    ))
                })?;
                (version, Some(number))
            }
        };
        version.parse::<VersionQuery>()?;
        Ok(Self { version: version.to_owned(), part })
    }
}

/// `NAME@NUMBER` for one version, `NAME` for all versions of an image, as typed.
#[derive(Clone, Debug)]
pub(crate) struct OneOrAll(String);

impl OneOrAll {
    /// The text as typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OneOrAll {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            VersionQuery::Named(_, NumberChoice::Latest) if text.contains('@') => {
                Err(Error::refused(format!("{text} can change its meaning: give the version number")))
            }
            VersionQuery::Named(..) => Ok(Self(text.to_owned())),
            VersionQuery::Score(_) => Err(no_name()),
        }
    }
}

fn no_name() -> Error {
    Error::refused("a score is not accepted here: give NAME or NAME@NUMBER")
}

/// Which forgotten versions to bring back.
#[derive(Clone, Debug)]
pub(crate) enum Resurrected {
    /// None: list them.
    List,
    /// All of them.
    All,
    /// One version.
    Version(VersionName),
}

impl FromStr for Resurrected {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" => return Ok(Self::List),
            "all" => return Ok(Self::All),
            _ => {}
        }
        match text.parse()? {
            VersionQuery::Named(image, NumberChoice::Number(number)) => {
                Ok(Self::Version(VersionName { image, number }))
            }
            _ => Err(Error::refused(format!("{text} is not a version: give NAME@N"))),
        }
    }
}
