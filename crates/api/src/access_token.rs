//! Access tokens: roles and images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NamePattern, Role};

/// Maximum length of a token's name in bytes.
pub const TOKEN_NAME_LENGTH_MAX: usize = 255;
/// Maximum number of patterns of a token.
pub const PATTERNS_MAX: usize = 64;

/// An access token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessToken {
    /// The id: 16 hexadecimal digits.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The images that it covers.
    pub patterns: Vec<NamePattern>,
    /// Most bytes of distinct blocks and pages of all images that it covers, uncompressed, when it adds to them; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Time of creation: milliseconds since 1970 UTC.
    pub created_unix_ms: i64,
}

/// A new token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewToken {
    /// The token without its secret.
    #[serde(flatten)]
    pub token: AccessToken,
    /// The secret, which clients send as `Authorization: Bearer`. It is never shown again.
    pub secret: String,
}

/// Request for a new token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddAccessTokenRequest {
    /// A name for people: at most 255 bytes without control characters.
    #[schemars(length(min = 1, max = TOKEN_NAME_LENGTH_MAX))]
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The images that it covers.
    #[schemars(length(min = 1, max = PATTERNS_MAX))]
    pub patterns: Vec<NamePattern>,
    /// Most bytes of distinct blocks and pages of these images, uncompressed; no limit if absent.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
}
