//! Access tokens: who may use an origin, and for which images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NamePattern, Role};

/// Most bytes of a token's name.
pub const TOKEN_NAME_LENGTH_MAX: usize = 255;
/// Most patterns of a token.
pub const PATTERNS_MAX: usize = 64;

/// An access token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessToken {
    /// Its id: 16 hexadecimal digits.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// With which images.
    pub patterns: Vec<NamePattern>,
    /// When it was made: milliseconds since 1970 UTC.
    pub created_unix_ms: i64,
}

/// A token that was just made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewToken {
    /// What is known of it.
    #[serde(flatten)]
    pub token: AccessToken,
    /// The secret that clients send as `Authorization: Bearer`; shown only this once.
    pub secret: String,
}

/// A token to be made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddAccessTokenRequest {
    /// What a person calls it: at most 255 bytes without control characters.
    #[schemars(length(min = 1, max = TOKEN_NAME_LENGTH_MAX))]
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// With which images.
    #[schemars(length(min = 1, max = PATTERNS_MAX))]
    pub patterns: Vec<NamePattern>,
}
