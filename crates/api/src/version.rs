//! Versions, and the resolution of names.

use platter_records::{EditLock, MissingBlocks, VersionRecord, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The record of a version, and the edit lock of its image.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VersionFacts {
    /// The record.
    #[serde(flatten)]
    pub record: VersionRecord,
    /// The edit lock of its image, if it is held.
    pub current_edit_lock: Option<EditLock>,
}

/// Result of resolving a name or a score.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResolveReply {
    /// The score of the recipe.
    #[schemars(schema_with = "schema::id")]
    pub score: String,
    /// A version with this score; null if there is none.
    pub version: Option<VersionRecord>,
    /// The identity domain of an encrypted store; absent if the store is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Missing blocks; null if there are none. Absent if the request did not ask for it.
    #[serde(default, with = "asked", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<MissingBlocks>")]
    pub missing: Option<Option<MissingBlocks>>,
}

mod asked {
    //! A field that is absent, null or a value.

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        field: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        field.as_ref().and_then(Option::as_ref).serialize(serializer)
    }

    pub(super) fn deserialize<'a, T: Deserialize<'a>, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_is_absent_if_not_requested_and_null_if_nothing_is_missing() {
        let text = |missing| {
            serde_json::to_string(&ResolveReply { score: "x".into(), version: None, domain: None, missing })
                .unwrap()
        };
        assert_eq!(text(None), r#"{"score":"x","version":null}"#);
        assert_eq!(text(Some(None)), r#"{"score":"x","version":null,"missing":null}"#);
        let read = |text: &str| serde_json::from_str::<ResolveReply>(text).unwrap().missing;
        assert_eq!((read(&text(None)), read(&text(Some(None)))), (None, Some(None)));
    }
}
