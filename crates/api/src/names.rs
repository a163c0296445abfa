//! Clone, forget, protect, rename and sign.

use platter_records::{ImageName, Signature};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Publishes a copy of a version as the next version of another image.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneRequest {
    /// `NAME` or `NAME@7`.
    #[schemars(regex(
        pattern = r"^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}(@(latest|[1-9][0-9]{0,18}))?$"
    ))]
    pub from: String,
    /// The image that gets the new version.
    pub to: ImageName,
    /// Whether that image may already have versions.
    #[serde(default)]
    pub next: bool,
    /// Number of the edit lock of that image.
    #[serde(default)]
    pub edit_lock: Option<u64>,
    /// The program that makes the version, such as `platter 0.1.0`; the origin itself if absent.
    #[serde(default)]
    pub tool_version: Option<String>,
}

/// Forgets versions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    /// The image.
    pub image: ImageName,
    /// Number of one version; all versions if absent.
    #[serde(default)]
    pub number: Option<u64>,
}

/// Versions that were forgotten.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForgetReport {
    /// Their names: `lab/debian12@7`.
    pub forgotten: Vec<String>,
}

/// Protects versions from being forgotten, or ends that.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectRequest {
    /// The image.
    pub image: ImageName,
    /// Number of one version; all present versions if absent.
    #[serde(default)]
    pub number: Option<u64>,
    /// Whether to protect them.
    pub protect: bool,
}

/// Versions whose protection changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProtectReport {
    /// Their names: `lab/debian12@7`.
    pub changed: Vec<String>,
}

/// Renames an image and all images below it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameRequest {
    /// Its name.
    pub from: ImageName,
    /// Its new name.
    pub to: ImageName,
}

/// Images that were renamed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RenameReport {
    /// Their versions, by number.
    pub renamed: Vec<RenamedVersion>,
}

/// A version of a renamed image.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RenamedVersion {
    /// Its old name: `lab/debian12@7`.
    pub from: String,
    /// Its new name.
    pub to: String,
}

/// Adds a signature to a version. The origin does not verify it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    /// The image.
    pub image: ImageName,
    /// The version's number.
    pub number: u64,
    /// The signature.
    pub signature: Signature,
}
