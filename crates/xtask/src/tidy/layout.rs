//! Rules for each Rust file: it is named after a noun, and begins with a `//!` that says what it is.

use super::Violation;

/// Names that say nothing about the contents.
const NAMELESS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// The violations in one Rust file's name and beginning.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !text.starts_with("//!") {
        violations.push(Violation::new(path, 1, "//!`: say what it is, owns, must never do"));
    }
    for part in path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if NAMELESS.contains(&stem) {
            violations.push(Violation::new(
                path,
                1,
                format!("`{stem}` says nothing about the contents: put a helper beside the type it serves"),
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_begin_with_a_description() {
        assert_eq!(check("crates/a/src/b.rs", "//! B.\n"), vec![]);
        assert_eq!(check("crates/a/src/b.rs", "use c;\n//! B.\n").len(), 1);
    }

    #[test]
    fn a_name_must_be_a_noun() {
        assert_eq!(check("crates/a/src/utility_rate.rs", "//! U.\n"), vec![]);
        assert_eq!(check("crates/a/src/util.rs", "//! U.\n").len(), 1);
        assert_eq!(check("crates/a/src/common/b.rs", "//! U.\n").len(), 1);
    }
}
