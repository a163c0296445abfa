//! Versions as they are named on the command line: bad names are wrong usage, found before a command runs.

use std::fmt;
use std::str::FromStr;

use platter_jobs::{Error, NumberChoice, Result, VersionName, VersionQuery};

/// `NAME`, `NAME@NUMBER`, `NAME@latest` or a score, as it was typed.
#[derive(Clone, Debug)]
pub(crate) struct VersionArgument(String);

impl VersionArgument {
    /// The words that were typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VersionArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse::<VersionQuery>()?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VersionArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// `NAME`, `NAME@NUMBER` or `NAME@latest`, as it was typed: for what belongs to a name, which a score is not.
#[derive(Clone, Debug)]
pub(crate) struct NamedVersion(String);

impl NamedVersion {
    /// The words that were typed.
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

/// `NAME@NUMBER` for one version, `NAME` for all versions of an image, as it was typed.
#[derive(Clone, Debug)]
pub(crate) struct OneOrAll(String);

impl OneOrAll {
    /// The words that were typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OneOrAll {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            VersionQuery::Named(_, NumberChoice::Latest) if text.contains('@') => {
                Err(Error::refused(format!("{text} is another version tomorrow: give its number")))
            }
            VersionQuery::Named(..) => Ok(Self(text.to_owned())),
            VersionQuery::Score(_) => Err(no_name()),
        }
    }
}

fn no_name() -> Error {
    Error::refused("a score is no name: give NAME or NAME@NUMBER")
}

/// What is to be brought back of what was forgotten.
#[derive(Clone, Debug)]
pub(crate) enum Resurrected {
    /// Nothing: it is listed.
    List,
    /// All of it.
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
            _ => Err(Error::refused(format!("{text} names no version: give NAME@N"))),
        }
    }
}
