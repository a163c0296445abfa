//! Roles of access tokens.

use std::fmt;
use std::str::FromStr;

use platter_image::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a token may do with the images that its patterns match. Each role includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// List and read images.
    Read,
    /// Publish versions.
    Write,
    /// Forget and rename; with the pattern `*` also manage access tokens.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = [Self::Read, Self::Write, Self::Admin].into_iter().find(|role| role.to_string() == text);
        known.ok_or_else(|| Error::refused(format!("role {text:?}: it is read, write or admin")))
    }
}
