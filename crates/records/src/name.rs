//! Names of images and versions: `lab/debian12`, `lab/debian12@7`, `lab/debian12@latest`.
//!
//! A name has parts separated by `/`. Each part consists of lower-case letters, digits, `.`, `_` and `-`, and starts with a
//! letter or a digit. Such a name is valid on every filesystem and in every URL, and as a path it never leaves its directory.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use platter_image::{Error, Result, Score};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Maximum number of parts in an image's name.
const PARTS_MAX: usize = 8;
/// Maximum length of a part in characters.
const PART_LENGTH_MAX: usize = 63;

/// The name of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(String);

impl ImageName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the image is below another in the tree of names.
    pub fn is_below(&self, above: &Self) -> bool {
        self.0.strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: String| Err(Error::refused(format!("image name {text:?}: {why}")));
        if text.split('/').count() > PARTS_MAX {
            return refused(format!("more than {PARTS_MAX} parts"));
        }
        for part in text.split('/') {
            if part.is_empty() {
                return refused("a part between slashes is empty".into());
            }
            if part.len() > PART_LENGTH_MAX {
                return refused(format!("a part is longer than {PART_LENGTH_MAX} characters"));
            }
            if !part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) {
                return refused(format!("{part:?} must start with a letter a-z or a digit"));
            }
            let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
            if let Some(bad) = part.chars().find(|c| !is_allowed(*c)) {
                return refused(format!(
                    "{bad:?} is not allowed: use a-z, 0-9, '.', '_', '-', and '/' between parts"
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ImageName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> Self {
        name.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for ImageName {
    fn schema_name() -> Cow<'static, str> {
        "ImageName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}$",
            "description": "Such as lab/debian12",
        })
    }
}

/// The name of one version: image and number. Numbers start at 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct VersionName {
    /// The image.
    pub image: ImageName,
    /// The version's number.
    pub number: u64,
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.image, self.number))
    }
}

/// Selects a version of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberChoice {
    /// The version with the highest number.
    Latest,
    /// The version with this number.
    Number(u64),
}

/// How a user refers to a version: by name, by name and number, or by score.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VersionQuery {
    /// `NAME`, `NAME@latest` or `NAME@7`.
    Named(ImageName, NumberChoice),
    /// 64 hexadecimal digits.
    Score(Score),
}

impl FromStr for VersionQuery {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(score) = Score::from_hex(text) {
            return Ok(Self::Score(score));
        }
        let (image, choice) = match text.split_once('@') {
            None => (text, NumberChoice::Latest),
            Some((image, "latest")) => (image, NumberChoice::Latest),
            Some((image, number)) => {
                let is_number = !number.starts_with(['0', '+']) && number.bytes().all(|b| b.is_ascii_digit());
                let number = number.parse().ok().filter(|_| is_number).ok_or_else(|| {
                    Error::refused(format!(
                        "version {text:?}: '@' must be followed by 'latest' or a number from 1"
                    ))
                })?;
                (image, NumberChoice::Number(number))
            }
        };
        Ok(Self::Named(image.parse()?, choice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_accepted() {
        for name in ["a", "lab/debian12", "0/1.2_3-4", &"a".repeat(63), "a/b/c/d/e/f/g/h"] {
            assert_eq!(name.parse::<ImageName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn errors_for_invalid_names_state_the_reason() {
        let long = "a".repeat(64);
        let bad = [
            ("", "empty"),
            ("/a", "empty"),
            ("a/", "empty"),
            ("a//b", "empty"),
            ("../x", "must start"),
            ("-a", "must start"),
            ("aB", "'B' is not allowed"),
            ("a b", "' ' is not allowed"),
            ("aé", "'é' is not allowed"),
            (long.as_str(), "longer than 63"),
            ("a/b/c/d/e/f/g/h/i", "more than 8"),
        ];
        for (name, why) in bad {
            let error = name.parse::<ImageName>().unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn version_queries_are_parsed() {
        let named = |image: &str, choice| VersionQuery::Named(image.parse().unwrap(), choice);
        let parse = |text: &str| text.parse::<VersionQuery>();
        assert_eq!(parse("a/b").unwrap(), named("a/b", NumberChoice::Latest));
        assert_eq!(parse("a@latest").unwrap(), named("a", NumberChoice::Latest));
        assert_eq!(parse("a@12").unwrap(), named("a", NumberChoice::Number(12)));
        let score = "5".repeat(64);
        assert_eq!(parse(&score).unwrap(), VersionQuery::Score(Score::from_hex(&score).unwrap()));
        for bad in ["a@", "a@0", "a@07", "a@-1", "a@+1", "a@1@2", "@1", "a@99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
