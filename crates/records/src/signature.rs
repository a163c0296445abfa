//! A signature of a version: the text of a minisign signature, and the store that the signed statement names.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::identity::StoreId;

/// Maximum length of a signature's text in bytes.
pub const SIGNATURE_LENGTH_MAX: usize = 768;
/// Maximum number of signatures of a version.
pub const SIGNATURES_MAX: usize = 4;

/// A signature of a version. Only `platter-signing` verifies it; everything else passes it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signature {
    /// The store in which the version was signed.
    #[serde(with = "store_text")]
    #[schemars(schema_with = "crate::schema::short_id")]
    pub store: StoreId,
    /// The text of the signature: four lines in the format of minisign, at most [`SIGNATURE_LENGTH_MAX`] bytes.
    #[serde(deserialize_with = "limited")]
    pub text: String,
}

fn limited<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() > SIGNATURE_LENGTH_MAX {
        return Err(de::Error::custom(format!("a signature has at most {SIGNATURE_LENGTH_MAX} bytes")));
    }
    Ok(text)
}

mod store_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(store: &StoreId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(store)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StoreId, D::Error> {
        let text = String::deserialize(deserializer)?;
        StoreId::from_hex(&text).ok_or_else(|| de::Error::custom("not 32 lower-case hexadecimal digits"))
    }
}
