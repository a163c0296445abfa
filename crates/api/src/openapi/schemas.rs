//! JSON schemas of requests and replies.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Path of the reply schemas in the document.
const COMPONENTS: &str = "/components/schemas";

/// Generates schemas. Schemas of replies require every field that is always present, and share their parts in the
/// components of the document. Schemas of requests are self-contained and require only mandatory fields.
pub(super) struct Schemas {
    replies: SchemaGenerator,
    requests: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.meta_schema = None;
        let mut replies = settings.clone().for_serialize();
        replies.definitions_path = COMPONENTS.into();
        let mut requests = settings.for_deserialize();
        requests.inline_subschemas = true;
        Self { replies: replies.into_generator(), requests: requests.into_generator() }
    }

    /// Returns the schema of a reply.
    pub(super) fn of_reply<T: JsonSchema>(&mut self) -> Value {
        self.replies.subschema_for::<T>().to_value()
    }

    /// Returns the schema of a request or parameter.
    pub(super) fn of_request<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// Returns the shared parts of replies.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        self.replies.take_definitions(true)
    }
}
