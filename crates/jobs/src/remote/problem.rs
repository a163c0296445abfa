//! Errors as they travel: problem+json (RFC 9457) with our kind, back into the error that it was.

use platter_image::{Error, ErrorKind};
use serde::Deserialize;

/// Most bytes that are read of such an answer.
pub(super) const PROBLEM_LENGTH_MAX: u64 = 64 << 10;
/// Most characters of it that are shown.
const SHOWN_MAX: usize = 2000;

#[derive(Deserialize)]
struct Problem {
    kind: Option<String>,
    detail: Option<String>,
    title: Option<String>,
}

/// The error that an answer of that status and body stands for; `origin` says whose answer.
pub(super) fn error_of(status: u16, body: &[u8], origin: &str) -> Error {
    let problem = serde_json::from_slice::<Problem>(body).ok();
    let kind = problem.as_ref().and_then(|problem| ErrorKind::from_word(problem.kind.as_deref()?));
    let words =
        problem.and_then(|problem| problem.detail.or(problem.title)).filter(|words| !words.is_empty());
    let words = words.map_or_else(|| format!("it answers with status {status}"), |words| shown(&words));
    Error::new(kind.unwrap_or_else(|| kind_of_status(status)), format!("{origin}: {words}"))
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

/// It will be printed: what moves a cursor does not belong there.
fn shown(words: &str) -> String {
    words.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
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
            let error = error_of(500, body.as_bytes(), "unix:/x");
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
            let error = error_of(status, b"<html>", "origin");
            assert_eq!(error.kind(), kind, "{status}");
            assert!(error.to_string().contains(&status.to_string()));
        }
    }

    #[test]
    fn hostile_words_cannot_move_a_cursor_nor_fill_a_screen() {
        let detail = format!("\\u001b[2J{}", "x".repeat(10_000));
        let error = error_of(400, format!(r#"{{"detail":"{detail}"}}"#).as_bytes(), "o");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2100);
    }
}
