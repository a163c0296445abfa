//! The result of importing a version of another store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What importing a version has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Imported {
    /// The version was added.
    Added,
    /// The version was there, and got signatures that it lacked.
    SignaturesAdded,
    /// The version was there, with the same record.
    Present,
    /// The version was forgotten or renamed there, and stays so.
    Former,
}
