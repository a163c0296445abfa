//! Everything printed to standard output and standard error, as text or JSON, and the exit code of each error kind.

use std::error::Error as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use platter_jobs::{Error, ErrorKind};
use serde::Serialize;

use crate::visible;

/// Exit code for damaged data.
pub(crate) const EXIT_CORRUPT: u8 = 4;
/// Exit code when two compared versions differ.
pub(crate) const EXIT_DIFFERENT: u8 = 6;

/// Why a fact could not be printed.
static NOT_PRINTED: OnceLock<String> = OnceLock::new();

/// Output format and verbosity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether facts are printed as JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether progress and notes are left out.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Prints one fact: as a line of JSON, or as the text for people.
    pub(crate) fn fact(self, fact: &impl Serialize, text: impl FnOnce() -> String) {
        let line = if self.json {
            let line = serde_json::to_string(fact);
            without_controls(&line.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")))
        } else {
            visible::lines(&text()).into_owned()
        };
        print(&[line.trim_end().as_bytes(), b"\n"].concat());
    }

    /// Prints one fact that contains names of files: as a line of JSON, or `bytes` as they are.
    pub(crate) fn bytes(self, fact: &impl Serialize, bytes: impl FnOnce() -> Vec<u8>) {
        if self.json { self.fact(fact, String::new) } else { print(&bytes()) }
    }

    /// The exit code of a command that succeeded with this one, unless not all of its output could be written.
    pub(crate) fn end(self, code: ExitCode) -> ExitCode {
        match NOT_PRINTED.get() {
            Some(error) => self.fail(&Error::new(ErrorKind::Io, format!("writing standard output: {error}"))),
            None => code,
        }
    }

    /// Prints a note to standard error.
    pub(crate) fn note(self, note: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "note: {}", visible::lines(note));
        }
    }

    /// Note lines to append to a result; empty with `--quiet`.
    pub(crate) fn notes(self, notes: &[impl AsRef<str>]) -> String {
        let said = notes.iter().filter(|_| !self.quiet);
        said.map(|note| format!("\nnote: {}", note.as_ref())).collect()
    }

    /// Prints an error with all its causes, and returns the exit code.
    pub(crate) fn fail(self, error: &Error) -> ExitCode {
        let text = error.with_causes();
        let kind = kind(error);
        let code = exit_code(kind);
        let printed = if self.json {
            let fact = serde_json::json!({ "error": text, "kind": kind.as_str(), "exit_code": code });
            writeln!(io::stderr().lock(), "{}", without_controls(&fact.to_string()))
        } else {
            writeln!(io::stderr().lock(), "platter: {}", visible::lines(&text))
        };
        // Standard error may be closed.
        drop(printed);
        ExitCode::from(code)
    }

    /// Prints a usage error. `text` is clap's message, which begins with "error: ".
    pub(crate) fn wrong_usage(self, text: &str, code: i32) {
        // Standard error may be closed.
        let _ = if self.json {
            let error = text.trim_start_matches("error: ").trim_end();
            let fact = serde_json::json!({ "error": error, "kind": "usage", "exit_code": code });
            writeln!(io::stderr().lock(), "{fact}")
        } else {
            write!(io::stderr().lock(), "{}", visible::lines(text))
        };
    }

    /// Prints the state that an interrupted job leaves.
    pub(crate) fn interrupted(self, signal: i32, state: &str) {
        let text = format!("interrupted: {state}");
        // Standard error may be closed.
        let _ = if self.json {
            let code = EXIT_SIGNAL + signal;
            let fact = serde_json::json!({ "error": text, "kind": "interrupted", "exit_code": code });
            writeln!(io::stderr().lock(), "{fact}")
        } else {
            // The line break ends the line of a progress bar or of a question.
            writeln!(io::stderr().lock(), "\nplatter: {text}")
        };
    }
}

fn print(bytes: &[u8]) {
    match io::stdout().lock().write_all(bytes) {
        // The reader may have closed the pipe (`| head`).
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = NOT_PRINTED.set(error.to_string());
        }
        _ => {}
    }
}

/// Exit code offset for a process ended by a signal, as in shells.
const EXIT_SIGNAL: i32 = 128;

/// The exit code of an error of that kind.
pub(crate) fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Missing => 3,
        ErrorKind::Corrupt => EXIT_CORRUPT,
        ErrorKind::Refused => 5,
        ErrorKind::Io | ErrorKind::Transient | ErrorKind::Bug => 1,
    }
}

/// The error's kind. A missing file counts as `Missing`, unless a layer said what that means.
fn kind(error: &Error) -> ErrorKind {
    let mut cause = error.source().filter(|_| error.kind() == ErrorKind::Io);
    while let Some(error) = cause {
        match error.downcast_ref::<Error>() {
            Some(inner) if inner.kind() != ErrorKind::Io => return inner.kind(),
            _ => {}
        }
        if error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::NotFound) {
            return ErrorKind::Missing;
        }
        cause = error.source();
    }
    error.kind()
}

/// Formats rows as aligned columns; the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| visible::words(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let number = cell.starts_with(|c: char| c.is_ascii_digit());
            if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Escapes the control characters that JSON permits in strings, because terminals obey them.
fn without_controls(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\u{7f}'..='\u{9f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_leaves_notes_out_of_results() {
        assert_eq!(Output::new(false, false).notes(&["one", "two"]), "\nnote: one\nnote: two");
        assert_eq!(Output::new(false, true).notes(&["one"]), "");
    }
}
