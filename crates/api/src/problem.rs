//! Errors in replies: problem+json (RFC 9457) with an additional member for the kind of the error.
//!
//! The origin encodes a [`Problem`], and clients decode it into an error of the same kind. Causes of an error are not
//! sent, because they contain details of the origin's machine.

use platter_image::{Error, ErrorKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Maximum length of a problem in bytes; clients read no more.
pub const PROBLEM_LENGTH_MAX: u64 = 64 << 10;
/// Maximum length of the text that clients show, in characters.
const SHOWN_MAX: usize = 2000;

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Always `about:blank`: no more specific than the status.
    #[serde(rename = "type", default)]
    pub type_uri: String,
    /// The HTTP status in words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// Description of this error.
    #[serde(default)]
    pub detail: String,
    /// Kind of the error.
    #[serde(default)]
    #[schemars(schema_with = "kinds")]
    pub kind: String,
}

impl Problem {
    /// The problem that the origin sends.
    pub fn new(status: u16, title: &str, kind: ErrorKind, detail: String) -> Self {
        let (type_uri, title) = ("about:blank".to_owned(), title.to_owned());
        Self { type_uri, title, status, detail, kind: kind.as_str().to_owned() }
    }

    /// Decodes a reply with an error status. `origin` is the address that the message names.
    pub fn error_of(status: u16, body: &[u8], origin: &str) -> Error {
        let problem = serde_json::from_slice::<Self>(body).ok();
        let kind = problem.as_ref().and_then(|problem| ErrorKind::from_word(&problem.kind));
        let words = problem.into_iter().flat_map(|problem| [problem.detail, problem.title]);
        let words = words.into_iter().find(|words| !words.is_empty());
        let words = words.map_or_else(|| format!("it answers with status {status}"), |words| shown(&words));
        Error::new(kind.unwrap_or_else(|| kind_of_status(status)), format!("{origin}: {words}"))
    }
}

/// For replies that are not from an origin, such as those of a proxy.
fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        404 | 410 => ErrorKind::Missing,
        408 | 429 | 502..=504 => ErrorKind::Transient,
        400..=499 => ErrorKind::Refused,
        500..=599 => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

/// The text without control characters, cut to a maximum length: safe to print.
fn shown(words: &str) -> String {
    words.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ErrorKind::words() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_survive_encoding() {
        for (name, kind) in
            [("missing", ErrorKind::Missing), ("refused", ErrorKind::Refused), ("bug", ErrorKind::Bug)]
        {
            let body =
                format!(r#"{{"type":"about:blank","title":"x","status":1,"detail":"no","kind":"{name}"}}"#);
            let error = Problem::error_of(500, body.as_bytes(), "unix:/x");
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, "unix:/x: no"));
        }
    }

    #[test]
    fn replies_without_a_problem_are_classified_by_their_status() {
        for (status, kind) in [
            (401, ErrorKind::Refused),
            (404, ErrorKind::Missing),
            (503, ErrorKind::Transient),
            (500, ErrorKind::Io),
            (302, ErrorKind::Corrupt),
        ] {
            let error = Problem::error_of(status, b"<html>", "origin");
            assert_eq!(error.kind(), kind, "{status}");
            assert!(error.to_string().contains(&status.to_string()));
        }
    }

    #[test]
    fn hostile_text_is_filtered_and_cut() {
        let detail = format!("\\u001b[2J{}", "x".repeat(10_000));
        let error = Problem::error_of(400, format!(r#"{{"detail":"{detail}"}}"#).as_bytes(), "o");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2100);
    }
}
