//! JSON schemas of the types that travel.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Where schemas of replies are kept.
const COMPONENTS: &str = "/components/schemas";

/// Makes schemas. Replies say every field that they always have, and share their parts in the document's components;
/// requests stand alone and say which fields are needed.
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

    /// What replies of that type are.
    pub(super) fn of_reply<T: JsonSchema>(&mut self) -> Value {
        self.replies.subschema_for::<T>().to_value()
    }

    /// What requests or parameters of that type are.
    pub(super) fn of_request<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// The parts that replies share.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        self.replies.take_definitions(true)
    }
}
