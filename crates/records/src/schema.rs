//! JSON schemas of texts that have a form of their own, for descriptions of interfaces.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A name of contents: 64 hexadecimal digits.
pub fn id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

/// As [`id`], or null.
pub fn id_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": "^[0-9a-f]{64}$" })
}

/// A name of a machine's or a process's making: 32 hexadecimal digits.
pub fn short_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
}

/// An image's name, with or without the number of a version, or a score.
pub fn version_query(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": "^(?:[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}(@(latest|[1-9][0-9]{0,18}))?|[0-9a-f]{64})$",
    })
}
