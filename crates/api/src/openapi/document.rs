//! The OpenAPI document.

use serde_json::{Map, Value, json};

use super::operation;
use super::schemas::Schemas;
use crate::{Endpoint, Scope};

/// Returns the reply to `GET /api/v1/openapi.json`.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.of_reply::<crate::Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in Endpoint::ALL {
        let (method, path) = endpoint.route();
        let described = describe(endpoint, &mut schemas);
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Platter origin",
            "version": "1",
            "description": "A store of disk images over HTTP. docs/api.md tells the rest.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token. None is needed on the unix socket",
                },
            },
            "responses": {
                "Problem": {
                    "description": "What went wrong",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
            "schemas": schemas.finish(),
        },
    })
}

fn describe(endpoint: Endpoint, schemas: &mut Schemas) -> Value {
    let parameters = operation::parameters(endpoint, schemas);
    let body = operation::body(endpoint, schemas);
    let mut described = json!({ "summary": operation::summary(endpoint) });
    match endpoint.role() {
        Some(role) => {
            let everything = if endpoint.scope() == Scope::Everything { ", for all images" } else { "" };
            let note = operation::note(endpoint).map_or_else(String::new, |note| format!(" {note}"));
            described["description"] = json!(format!("Role {role}{everything}.{note}"));
        }
        None => described["security"] = json!([]),
    }
    let (status, success) = operation::success(endpoint, schemas);
    let mut responses = Map::new();
    if endpoint == Endpoint::FileContents {
        responses.insert("206".to_owned(), success.clone());
    }
    responses.insert(status.to_string(), success);
    for status in problems(endpoint, &parameters, body.is_some()) {
        responses.insert(status.to_string(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    if !parameters.is_empty() {
        described["parameters"] = json!(parameters);
    }
    if let Some(body) = body {
        described["requestBody"] = body;
    }
    described["responses"] = Value::Object(responses);
    described
}

/// Returns the error statuses of an endpoint: those that follow from its role, parameters and body, and its own.
fn problems(endpoint: Endpoint, parameters: &[Value], has_body: bool) -> Vec<u16> {
    let mut statuses = vec![403];
    if endpoint.role().is_some() {
        statuses.extend([401, 503]);
    }
    if has_body || parameters.iter().any(|parameter| parameter["in"] != "header") {
        statuses.push(400);
    }
    if has_body {
        statuses.extend([408, 413]);
    }
    statuses.extend(operation::own_statuses(endpoint));
    statuses.sort_unstable();
    statuses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects all `$ref`s of a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    found.push(target.clone());
                }
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_has_a_target() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
    }

    #[test]
    fn path_parameters_match_the_path() {
        let document = document();
        for endpoint in Endpoint::ALL {
            let (method, path) = endpoint.route();
            let parameters = document["paths"][path][method]["parameters"].as_array();
            let described = parameters.into_iter().flatten().filter(|one| one["in"] == "path");
            let described: Vec<&str> = described.map(|one| one["name"].as_str().unwrap()).collect();
            let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(described, names.collect::<Vec<_>>(), "{method} {path}");
        }
    }

    #[test]
    fn replies_require_all_fields_and_requests_only_mandatory_ones() {
        let document = document();
        let schema = |name: &str| &document["components"]["schemas"][name];
        let required = |schema: &Value| schema["required"].as_array().unwrap().len();
        assert_eq!(required(schema("StoreFacts")), 11);
        let body = &document["paths"]["/api/v1/clone"]["post"]["requestBody"]["content"]["application/json"];
        assert_eq!(body["schema"]["required"], json!(["from", "to"]));
        assert_eq!(body["schema"]["additionalProperties"], json!(false));
        assert_eq!(body["schema"]["properties"]["to"]["type"], "string");
    }

    #[test]
    fn roles_are_those_of_the_endpoint_table() {
        let document = document();
        let of = |path: &str, method: &str| document["paths"][path][method]["description"].clone();
        assert_eq!(of("/api/v1/tokens", "get"), "Role admin, for all images.");
        assert_eq!(of("/api/v1/uploads", "post"), "Role write.");
        assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([]));
    }
}
