//! JSON schemas of ids and version queries, for the OpenAPI description.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A block id or score: 64 hexadecimal digits.
pub fn id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

/// As [`id`], or null.
pub fn id_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": "^[0-9a-f]{64}$" })
}

/// A random id: 32 hexadecimal digits.
pub fn short_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
}

/// The forms of [`version_query`].
const VERSION_QUERY: &str =
    "[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}(@(latest|[1-9][0-9]{0,18}))?|[0-9a-f]{64}";

/// An image's name, with or without the number of a version, or a score.
pub fn version_query(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": format!("^(?:{VERSION_QUERY})$") })
}

/// What a cast sends: as [`version_query`], or `hoard:@` with the number of a revision.
pub fn cast_title(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": format!("^(?:{VERSION_QUERY}|hoard:@[0-9]{{1,20}})$") })
}
