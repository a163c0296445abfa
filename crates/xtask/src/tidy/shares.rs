//! The largest part of all source lines that one crate may have. A crate that grows past it holds several things: split it by
//! nouns.
//!
//! Counts the lines of `crates/*/src`, with comments and tests as they stand.

use std::collections::BTreeMap;

use super::Violation;
use super::tree::TextFile;

/// Most lines of one crate, in percent of all.
const PERCENT_MAX: usize = 12;

/// The crates that are too large.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let parts = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((name, _)) = parts {
            *lines.entry(name).or_default() += file.text.lines().count();
        }
    }
    let all: usize = lines.values().sum();
    let large = lines.into_iter().filter(|(_, own)| own * 100 > all * PERCENT_MAX);
    large
        .map(|(name, own)| {
            let what = format!("{own} of {all} source lines are in this crate, more than {PERCENT_MAX} %");
            Violation::new(&format!("crates/{name}/Cargo.toml"), 1, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize) -> TextFile {
        TextFile { path: path.to_owned(), text: "line\n".repeat(lines) }
    }

    #[test]
    fn a_crate_above_its_share_is_found_whatever_its_files() {
        let mut files: Vec<TextFile> =
            (0..8).map(|n| file(&format!("crates/c{n}/src/lib.rs"), 110)).collect();
        files.push(file("crates/large/src/lib.rs", 60));
        files.push(file("crates/large/src/folder/tests.rs", 60));
        // Neither documents nor tests beside the sources count.
        files.push(file("docs/page.md", 9000));
        files.push(file("crates/large/tests/all.rs", 9000));
        assert_eq!(check(&files), vec![], "12 % of 1,000 lines");
        files.push(file("crates/large/src/more.rs", 2));
        let found = check(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().contains("crates/large/Cargo.toml"), "{found:?}");
    }
}
