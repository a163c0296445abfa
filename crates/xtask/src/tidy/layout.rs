//! What every Rust file must be: named after a noun, and opened by saying what it is.

use super::Violation;

/// Names that say nothing about what is inside.
const NAMELESS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// Violations in one Rust file's name and head.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !text.starts_with("//!") {
        violations.push(Violation::new(
            path,
            1,
            "does not open with `//!`: say what it is, owns, must never do",
        ));
    }
    for part in path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if NAMELESS.contains(&stem) {
            violations.push(Violation::new(
                path,
                1,
                format!("`{stem}` names no noun: a helper lives with its noun"),
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_open_by_saying_what_it_is() {
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
