//! The checks behind `cargo xtask tidy`.
//!
//! Each check is a function from text to violations, so that its unit test can show it failing; only this file
//! and `tree` touch the disk. What a check knows about the project (allowed edges, format pages, forbidden words)
//! stands in tables at the head of its file.

mod documents;
mod edges;
mod layout;
mod lengths;
mod paths;
mod purity;
mod source_text;
mod tree;

use std::fmt;
use std::path::Path;

/// One thing that breaks a rule: where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Path from the root of the tree.
    pub(crate) file: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong, in words.
    pub(crate) what: String,
}

impl Violation {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// What a whole run found.
pub(crate) struct Report {
    /// How many text files were read.
    pub(crate) files: usize,
    /// Everything that breaks a rule, by file and line.
    pub(crate) violations: Vec<Violation>,
}

/// Runs every check over the tree at `root`. Fails only where the tree itself cannot be read.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let files = tree::text_files(root)?;
    let crates = tree::crates(root)?;
    let mut violations = edges::check(&crates);
    for file in &files {
        violations.extend(paths::check(&file.path, &file.text));
        if file.path.ends_with(".rs") {
            violations.extend(layout::check(&file.path, &file.text));
            violations.extend(lengths::check(&file.path, &file.text));
            violations.extend(purity::check(&file.path, &file.text));
        }
    }
    violations.extend(documents::check(&files, &crates));
    violations.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(Report { files: files.len(), violations })
}
