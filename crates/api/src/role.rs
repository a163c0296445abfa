//! What a token is for.

use std::fmt;
use std::str::FromStr;

use platter_image::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a token may do with the images that its patterns name. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See and read them.
    Read,
    /// Make new versions.
    Write,
    /// Forget and rename; with the pattern `*` also make access tokens.
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
