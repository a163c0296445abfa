//! Errors as they travel: problem+json (RFC 9457), with the kind of the error as every part of Platter knows it.
//!
//! The one codec: the origin writes a [`Problem`], clients turn it back into the error that it was. The causes of an
//! error stay at the origin, because they speak of its machine.

use platter_image::{Error, ErrorKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Most bytes of a problem that clients read.
pub const PROBLEM_LENGTH_MAX: u64 = 64 << 10;
/// Most characters of it that clients show.
const SHOWN_MAX: usize = 2000;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `about:blank`: the status says it.
    #[serde(rename = "type", default)]
    pub type_uri: String,
    /// The status in words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// What was wrong, and where.
    #[serde(default)]
    pub detail: String,
    /// What the client can do about it.
    #[serde(default)]
    #[schemars(schema_with = "kinds")]
    pub kind: String,
}

impl Problem {
    /// A problem as the origin sends it.
    pub fn new(status: u16, title: &str, kind: ErrorKind, detail: String) -> Self {
        let (type_uri, title) = ("about:blank".to_owned(), title.to_owned());
        Self { type_uri, title, status, detail, kind: kind.as_str().to_owned() }
    }

    /// The error that an answer of that status and body stands for; `origin` says whose answer.
    pub fn error_of(status: u16, body: &[u8], origin: &str) -> Error {
        let problem = serde_json::from_slice::<Self>(body).ok();
        let kind = problem.as_ref().and_then(|problem| ErrorKind::from_word(&problem.kind));
        let words = problem.into_iter().flat_map(|problem| [problem.detail, problem.title]);
        let words = words.into_iter().find(|words| !words.is_empty());
        let words = words.map_or_else(|| format!("it answers with status {status}"), |words| shown(&words));
        Error::new(kind.unwrap_or_else(|| kind_of_status(status)), format!("{origin}: {words}"))
    }
}

/// For answers of others, such as a proxy between.
fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        404 | 410 => ErrorKind::Missing,
        408 | 429 | 502..=504 => ErrorKind::Transient,
        400..=499 => ErrorKind::Refused,
        500..=599 => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

/// Text that will be printed, without characters that move a cursor.
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
    fn an_error_comes_back_as_it_was() {
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
    fn an_answer_that_says_nothing_is_told_by_its_status() {
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
    fn hostile_words_cannot_move_a_cursor_nor_fill_a_screen() {
        let detail = format!("\\u001b[2J{}", "x".repeat(10_000));
        let error = Problem::error_of(400, format!(r#"{{"detail":"{detail}"}}"#).as_bytes(), "o");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2100);
    }
}
