//! Patterns for names of images: `*` for all, `lab/*` for everything below `lab`, `lab/debian12` for that one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use platter_image::Error;
use platter_records::ImageName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A pattern for names of images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NamePattern {
    /// All images.
    Everything,
    /// All images below a name, at any depth; not the name itself.
    Below(ImageName),
    /// One image.
    Exactly(ImageName),
}

impl NamePattern {
    /// Whether it matches this name.
    pub fn matches(&self, image: &ImageName) -> bool {
        match self {
            Self::Everything => true,
            Self::Below(above) => image.is_below(above),
            Self::Exactly(name) => name == image,
        }
    }

    /// Whether it matches every name that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everything, _) => true,
            (_, Self::Everything) => false,
            (Self::Below(_), Self::Exactly(name)) => self.matches(name),
            (Self::Below(_), Self::Below(above)) => self.matches_below(above),
            (Self::Exactly(name), Self::Exactly(other)) => name == other,
            (Self::Exactly(_), Self::Below(_)) => false,
        }
    }

    /// Whether it matches every name below `image`.
    pub fn matches_below(&self, image: &ImageName) -> bool {
        match self {
            Self::Everything => true,
            Self::Below(above) => above == image || image.is_below(above),
            Self::Exactly(_) => false,
        }
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match (text, text.strip_suffix("/*")) {
            ("*", _) => Ok(Self::Everything),
            (_, Some(above)) => above.parse().map(Self::Below),
            (name, None) => name.parse().map(Self::Exactly),
        }
        .map_err(|error: Error| {
            error.within(format!("pattern {text:?}: it is '*', a name with '/*' behind it, or a name"))
        })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.pad("*"),
            Self::Below(above) => f.pad(&format!("{above}/*")),
            Self::Exactly(name) => name.fmt(f),
        }
    }
}

impl TryFrom<String> for NamePattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.to_string()
    }
}

impl JsonSchema for NamePattern {
    fn schema_name() -> Cow<'static, str> {
        "NamePattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(?:\\*|[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}(/\\*)?)$",
        })
    }
}
