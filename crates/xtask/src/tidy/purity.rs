//! What the code of a pure crate must not call: parts of the standard library that reach files, sockets,
//! processes or clocks, which no manifest can exclude. Tests may call them.

use super::Violation;
use super::source_text::{code_only, find, is_word, line_of, test_ranges};

const WORLD: &[&str] = &[
    "std::fs",
    "std::net::UdpSocket",
    "std::net::Tcp",
    "std::process",
    "std::env",
    "Instant::now",
    "SystemTime::now",
    "UdpSocket",
];

const FILES: &[&str] = &["std::fs", "File::open", "File::create", "OpenOptions"];

/// The source folder of a crate, and the words that its code may not contain.
const RULES: &[(&str, &[&str])] = &[
    ("crates/image/src/", WORLD),
    ("crates/admission/src/", WORLD),
    ("crates/cast/src/", WORLD),
    // Stores and caches must access every file through the `vfs` trait; the crash tests would miss other accesses.
    ("crates/store/src/", FILES),
    ("crates/pack/src/", FILES),
    ("crates/cache/src/", FILES),
];

/// The violations in one Rust file.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let Some((folder, words)) = RULES.iter().find(|(folder, _)| path.starts_with(folder)) else {
        return Vec::new();
    };
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let code = code_only(text);
    let tests = test_ranges(&code);
    let mut violations = Vec::new();
    for word in *words {
        let mut at = 0;
        while let Some(found) = find(&code, word.as_bytes(), at) {
            at = found + word.len();
            let starts_a_word = found == 0 || !is_word(code[found - 1]);
            if starts_a_word && !tests.iter().any(|range| range.contains(&found)) {
                let what = format!(
                    "`{word}` in {folder}: this crate may use files, sockets and clocks only through its traits"
                );
                violations.push(Violation::new(path, line_of(&code, found), what));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_crate_may_not_open_a_file_or_read_a_clock() {
        let text = "//! std::fs in words is fine\nuse std::fs;\nfn f() { Instant::now(); }\n";
        let lines: Vec<usize> = check("crates/cast/src/a.rs", text).iter().map(|v| v.line).collect();
        assert_eq!(lines, [2, 3]);
        assert_eq!(check("crates/net/src/a.rs", text), vec![]);
    }

    #[test]
    fn tests_of_a_pure_crate_may() {
        let text = "//! A.\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n";
        assert_eq!(check("crates/cast/src/a.rs", text), vec![]);
    }
}
