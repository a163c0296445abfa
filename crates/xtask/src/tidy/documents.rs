//! What must be documented: every format has a page, every crate is in ARCHITECTURE.md, every command is in
//! the README, and every decision that a source file cites is in docs/design.md.

use super::Violation;
use super::tree::{Crate, TextFile};

const PAGES: &str = "docs/formats/";

/// Folders whose files may define formats of the project. `crates/disk` is not listed: it reads formats of
/// others.
const FORMAT_OWNERS: &[&str] =
    &["crates/image/src/", "crates/store/src/", "crates/cast/src/", "crates/vdisk/src/"];

/// File stems and folders that indicate a format.
const FORMAT_STEMS: &[&str] = &["format", "wire", "codec"];

/// The violations among all documents of the tree.
pub(super) fn check(files: &[TextFile], crates: &[Crate]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| defines_layout(file)) {
        violations.extend(check_layout(file, files));
    }
    violations.extend(check_pages_used(files));
    violations.extend(check_architecture(files, crates));
    violations.extend(check_commands(files));
    violations.extend(check_decisions(files));
    violations
}

/// A file defines a format if its name says so, or if it has a magic number.
fn defines_layout(file: &TextFile) -> bool {
    let owned = FORMAT_OWNERS.iter().any(|owner| file.path.starts_with(owner)) && file.path.ends_with(".rs");
    let stem = file.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    let has_magic = file.text.lines().any(|line| {
        let line = line.trim_start();
        line.contains("const ")
            && line.split("const ").nth(1).is_some_and(|rest| {
                let name = rest.split(':').next().unwrap_or_default();
                name == "MAGIC" || name.ends_with("_MAGIC")
            })
    });
    owned && (FORMAT_STEMS.contains(&stem) || has_magic)
}

/// The file of a format, or the `mod.rs` beside it, must name its page in its `//!`, and the page must exist.
fn check_layout(file: &TextFile, files: &[TextFile]) -> Option<Violation> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let essay = files.iter().find(|other| other.path == format!("{folder}/mod.rs"));
    let named =
        [Some(file), essay].into_iter().flatten().find_map(|f| head_pages(&f.text).into_iter().next());
    let Some(page) = named else {
        let what = format!("//!` nor its mod.rs names a page {PAGES}NAME.md");
        return Some(Violation::new(&file.path, 1, what));
    };
    let missing = !files.iter().any(|other| other.path == page);
    missing.then(|| Violation::new(&file.path, 1, format!("its page {page} does not exist: write it")))
}

/// The pages named in the opening `//!` lines.
fn head_pages(text: &str) -> Vec<String> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    head.filter_map(|line| {
        let start = line.find(PAGES)?;
        let end = line[start..].find(".md")? + start + ".md".len();
        Some(line[start..end].to_owned())
    })
    .collect()
}

/// A page that no source file names is outdated.
fn check_pages_used(files: &[TextFile]) -> Vec<Violation> {
    let pages = files.iter().filter(|file| file.path.starts_with(PAGES) && file.path.ends_with(".md"));
    pages
        .filter(|page| !page.path.ends_with("/README.md"))
        .filter(|page| !files.iter().any(|f| f.path.ends_with(".rs") && f.text.contains(&page.path)))
        .map(|page| Violation::new(&page.path, 1, "no source file names this page"))
        .collect()
}

fn check_architecture(files: &[TextFile], crates: &[Crate]) -> Vec<Violation> {
    const NAME: &str = "ARCHITECTURE.md";
    let Some(page) = files.iter().find(|file| file.path == NAME) else {
        return vec![Violation::new(NAME, 1, "is missing")];
    };
    let missing = crates.iter().filter(|krate| !page.text.contains(&format!("`{}`", krate.folder)));
    missing
        .map(|krate| Violation::new(NAME, 1, format!("does not mention crate `{}`", krate.folder)))
        .collect()
}

/// Each file in the command folder is one command; the README must mention it.
fn check_commands(files: &[TextFile]) -> Vec<Violation> {
    const FOLDER: &str = "crates/platter/src/command/";
    let readme = files.iter().find(|file| file.path == "README.md").map_or("", |file| file.text.as_str());
    let commands = files.iter().filter_map(|file| file.path.strip_prefix(FOLDER)?.strip_suffix(".rs"));
    commands
        .map(|command| command.replace('_', "-"))
        .filter(|command| command != "mod" && !readme.contains(&format!("platter {command}")))
        .map(|command| Violation::new("README.md", 1, format!("does not mention `platter {command}`")))
        .collect()
}

/// `(design: verify)` in a source file cites the decision in docs/design.md whose title begins with that
/// word.
fn check_decisions(files: &[TextFile]) -> Vec<Violation> {
    const PAGE: &str = "docs/design.md";
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str());
    let titles = page.lines().filter_map(|line| line.strip_prefix("### "));
    let decisions: Vec<String> =
        titles.filter_map(|title| Some(title.split_once(':')?.0.to_lowercase())).collect();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (line, text) in (1..).zip(file.text.lines().map(str::trim_start)) {
            let cited = text.starts_with("//").then(|| text.split_once("(design: ")).flatten();
            let Some((_, cited)) = cited else { continue };
            let words = cited.split(')').next().unwrap_or_default().split(", ");
            for word in words.filter(|word| !word.starts_with('`')) {
                if !decisions.iter().any(|decision| decision == word) {
                    let what = format!("cites the decision `{word}`, which is not in {PAGE}");
                    violations.push(Violation::new(&file.path, line, what));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn whats(files: &[TextFile]) -> Vec<String> {
        let crates = [Crate { name: "platter-image".into(), folder: "image".into(), dependencies: vec![] }];
        check(files, &crates).into_iter().map(|v| v.to_string()).collect()
    }

    fn good() -> Vec<TextFile> {
        vec![
            file("ARCHITECTURE.md", "| `image` | what an image is |"),
            file("README.md", "platter capture SOURCE NAME"),
            file("crates/image/src/frame/format.rs", "//! The frame; docs/formats/frame.md has the bytes.\n"),
            file("crates/disk/src/partition/gpt.rs", "//! GPT.\nconst MAGIC: u8 = 1;\n"),
            file("crates/platter/src/command/capture.rs", "//! capture\n"),
            file("docs/formats/frame.md", "# Frame"),
        ]
    }

    #[test]
    fn a_documented_tree_passes() {
        assert_eq!(whats(&good()), Vec::<String>::new());
    }

    #[test]
    fn a_format_without_a_page_fails() {
        let mut files = good();
        files
            .push(file("crates/store/src/pack/footer.rs", "//! Footer.\npub const FOOTER_MAGIC: u32 = 7;\n"));
        assert!(whats(&files)[0].contains("names a page"));
        files.push(file("crates/store/src/pack/mod.rs", "//! See docs/formats/frame.md.\n"));
        assert_eq!(whats(&files), Vec::<String>::new());
        files.truncate(good().len());
        files.retain(|f| f.path != "docs/formats/frame.md");
        assert_eq!(whats(&files).len(), 1);
        assert!(whats(&files)[0].contains("docs/formats/frame.md does not exist"));
    }

    #[test]
    fn a_page_without_a_source_fails() {
        let mut files = good();
        files.push(file("docs/formats/old.md", "# Old"));
        assert_eq!(whats(&files), ["docs/formats/old.md:1: no source file names this page"]);
    }

    #[test]
    fn an_undocumented_crate_or_command_fails() {
        let mut files = good();
        files[0].text.clear();
        files[1].text.clear();
        assert_eq!(whats(&files).len(), 2);
    }

    #[test]
    fn an_unknown_decision_fails() {
        let mut files = good();
        files.push(file("docs/design.md", "# Design\n\n### Verify: once\n"));
        files.push(file("crates/image/src/a.rs", "//! Hashes (design: verify, `docs/formats/frame.md`).\n"));
        assert_eq!(whats(&files), Vec::<String>::new());
        files.push(file("crates/image/src/b.rs", "//! B.\n    /// Sleeps (design: verify, sleep).\n"));
        let what = "crates/image/src/b.rs:2: cites the decision `sleep`, which is not in docs/design.md";
        assert_eq!(whats(&files), [what]);
    }
}
