//! The checks of `cargo xtask tidy`.
//!
//! Each check is a function from text to violations, so its unit test can make it fail; only this file and
//! `tree` access the disk. What a check knows about the project (allowed edges, format pages, forbidden
//! words) is in tables at the beginning of its file.

mod documents;
mod edges;
mod layout;
mod lengths;
mod names;
mod paths;
mod purity;
mod rings;
mod shares;
mod source_text;
mod tree;
mod violation;

use std::path::Path;

pub(crate) use violation::Violation;

/// The result of a run.
pub(crate) struct Report {
    /// Number of text files read.
    pub(crate) files: usize,
    /// All violations, sorted by file and line.
    pub(crate) violations: Vec<Violation>,
}

/// Runs every check over the tree at `root`. Fails only if the tree cannot be read.
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
    violations.extend(names::check(&files));
    violations.extend(rings::check(&files));
    violations.extend(shares::check(&files));
    violations.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(Report { files: files.len(), violations })
}
