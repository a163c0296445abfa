//! The result of the checks: a place, and what is wrong there.

use std::fmt;

/// One violation of a rule: where it is, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Path from the root of the tree.
    pub(crate) file: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
}

impl Violation {
    pub(super) fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}
