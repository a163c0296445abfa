//! Words that once named many types, and now name one each.

use std::collections::BTreeMap;

use super::Violation;
use super::source_text::{code_only, is_word, line_of, test_ranges};
use super::tree::TextFile;

/// The words.
const WORDS: [&str; 5] = ["Found", "Kept", "Part", "Place", "Seen"];

/// Files with another type of that name, each with a reason. Keep it empty.
const EXCEPTIONS: &[(&str, &str)] = &[("crates/browse/src/mount/view.rs", "to be renamed to MountNode")];

/// The second and further production types with one of the words as name.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    let mut violations = Vec::new();
    let is_excepted = |path: &str| EXCEPTIONS.iter().any(|(file, _reason)| *file == path);
    for file in files.iter().filter(|file| is_production(&file.path) && !is_excepted(&file.path)) {
        for (word, line) in types(&file.text) {
            let place = format!("{}:{line}", file.path);
            match first.get(word) {
                Some(other) => {
                    let what = format!("a second type {word}, besides that of {other}: say what it is");
                    violations.push(Violation::new(&file.path, line, what));
                }
                None => drop(first.insert(word, place)),
            }
        }
    }
    violations
}

fn is_production(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/testbed/");
    is_source && !is_test
}

/// The types outside of tests that have one of the words as name, and their lines.
fn types(text: &str) -> Vec<(&'static str, usize)> {
    let code = code_only(text);
    let tests = test_ranges(&code);
    let mut found = Vec::new();
    let mut before: &[u8] = b"";
    let mut start = 0;
    while start < code.len() {
        let length = code[start..].iter().take_while(|byte| is_word(**byte)).count();
        if length == 0 {
            start += 1;
            continue;
        }
        let name = &code[start..start + length];
        let is_type = [&b"struct"[..], b"enum", b"trait", b"type", b"union"].contains(&before);
        let word = WORDS.iter().find(|word| word.as_bytes() == name);
        if let Some(word) = word.filter(|_| is_type && !tests.iter().any(|range| range.contains(&start))) {
            found.push((*word, line_of(&code, start)));
        }
        (before, start) = (name, start + length);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        let files: Vec<TextFile> = files.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_word_names_one_production_type() {
        let one = ("crates/a/src/lib.rs", "/// A struct Part.\npub struct Part;\nstruct PartSpool(Part);\n");
        let in_tests = ("crates/b/src/lib.rs", "#[cfg(test)]\nmod tests {\n    struct Part;\n}\n");
        let of_tests = ("crates/b/tests/all.rs", "struct Part;\n");
        assert!(found(&[one, in_tests, of_tests]).is_empty());
        let second = ("crates/b/src/cut.rs", "use a::Part;\n\nenum Part<'a> {}\nenum Place {}\n");
        assert_eq!(
            found(&[one, second]),
            [
                "crates/b/src/cut.rs:3: a second type Part, besides that of crates/a/src/lib.rs:2: say what it is"
            ]
        );
    }
}
