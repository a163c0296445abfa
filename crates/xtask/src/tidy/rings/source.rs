//! What one Rust file defines, imports and names by path. It reads tokens, not the grammar: enough to find
//! the names in `use` lines and before `::`. Code under `#[cfg(test)]` is blanked out first.

use std::collections::BTreeSet;

use crate::tidy::source_text::{closing_brace, code_only, find, is_word, line_of};

/// A `use` of one name, or of all names of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// The name in this file; `*` for all names.
    pub(super) alias: String,
    /// The path as written, without the alias.
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Whether it is a re-export. A re-export is an edge only if this file uses the name itself.
    pub(super) is_public: bool,
}

/// A path in code, such as `crate::name::parse`, or a single name, which may be one that this file
/// re-exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPath {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// What was read from a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Items of the module itself, including inline modules.
    pub(super) items: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    pub(super) paths: Vec<NamedPath>,
    /// Child modules that only tests compile.
    pub(super) test_modules: Vec<String>,
}

const ITEM_KEYWORDS: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];

/// Words that may stand between an item's keyword and its name.
const QUALIFIERS: &[&str] = &["fn", "mut", "unsafe", "async", "extern"];

/// Reads the text of one file.
pub(super) fn read(text: &str) -> Source {
    let mut code = code_only(text);
    let mut source = Source { test_modules: blank_tests(&mut code), ..Source::default() };
    let tokens = tokens(&code);
    let mut depth = 0_usize;
    // Ends of the open inline modules, innermost last. In the outermost of them, `super` means this file.
    let mut inline_ends: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        inline_ends.retain(|end| token.start < *end);
        let mut next = at + 1;
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "use" => {
                let is_public = is_public(&tokens, at);
                let first = source.imports.len();
                next = read_use(&tokens, at + 1, &[], is_public, &mut source.imports);
                for import in &mut source.imports[first..] {
                    leave_inline(&mut import.path, inline_ends.len());
                }
            }
            "pub" => next = after_visibility(&tokens, at),
            keyword if ITEM_KEYWORDS.contains(&keyword) => {
                next = at + usize::from(item_name(&tokens, at).is_some()) + 1;
                if let Some(name) = item_name(&tokens, at) {
                    if depth == 0 {
                        source.items.insert(name.to_owned());
                    }
                    if keyword == "mod" && text_at(&tokens, at + 2) == "{" {
                        inline_ends.extend(closing_brace(&code, tokens[at + 2].start));
                    } else if keyword == "mod" {
                        source.items.remove(name);
                    }
                }
            }
            "macro_rules" => {
                source.items.insert(text_at(&tokens, at + 2).to_owned());
                next = at + 3;
            }
            word if is_name(word) && text_at(&tokens, at.wrapping_sub(1)) != "." => {
                let (mut path, end) = read_path(&tokens, at);
                leave_inline(&mut path, inline_ends.len());
                source.paths.push(NamedPath { path, line: token.line });
                next = end;
            }
            _ => {}
        }
        at = next;
    }
    source
}

struct Token {
    text: String,
    start: usize,
    line: usize,
}

/// Splits code into words, `::`, and single other characters that are not white space.
fn tokens(code: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let (mut line, mut counted) = (1, 0);
    while at < code.len() {
        let word = code[at..].iter().take_while(|b| is_word(**b)).count();
        let length = if word > 0 { word } else { 1 + usize::from(code[at..].starts_with(b"::")) };
        if !code[at].is_ascii_whitespace() {
            line += line_of(&code[counted..at], at) - 1;
            counted = at;
            let text = String::from_utf8_lossy(&code[at..at + length]).into_owned();
            tokens.push(Token { text, start: at, line });
        }
        at += length;
    }
    tokens
}

fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| is_word(b) && !b.is_ascii_digit())
}

/// The name of the item whose keyword is at `at`.
fn item_name(tokens: &[Token], at: usize) -> Option<&str> {
    let name = text_at(tokens, at + 1);
    (is_name(name) && !QUALIFIERS.contains(&name)).then_some(name)
}

/// The position after `pub` or `pub(in a::b)` at `at`.
fn after_visibility(tokens: &[Token], at: usize) -> usize {
    let is_restricted = text_at(tokens, at + 1) == "("
        && matches!(text_at(tokens, at + 2), "crate" | "super" | "self" | "in");
    if !is_restricted {
        return at + 1;
    }
    let close = tokens[at..].iter().position(|token| token.text == ")");
    at + close.unwrap_or(0) + 1
}

fn is_public(tokens: &[Token], at: usize) -> bool {
    let before = tokens[..at].iter().rposition(|token| token.text == "pub");
    before.is_some_and(|before| after_visibility(tokens, before) == at)
}

/// In an inline module, a path that starts with `super` is relative to the file; only one level is followed.
fn leave_inline(path: &mut [String], levels: usize) {
    if levels > 0 && path.first().is_some_and(|first| first == "super") {
        "self".clone_into(&mut path[0]);
    }
}

/// Reads names joined by `::` from `at`, and returns them with their end.
fn read_path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut path = vec![tokens[at].text.clone()];
    at += 1;
    while text_at(tokens, at) == "::" && is_name(text_at(tokens, at + 1)) {
        path.push(tokens[at + 1].text.clone());
        at += 2;
    }
    (path, at)
}

/// Reads one tree of a `use` line from `at`, and returns its end.
fn read_use(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    is_public: bool,
    imports: &mut Vec<Import>,
) -> usize {
    let mut path = prefix.to_vec();
    let line = tokens.get(at).map_or(1, |token| token.line);
    loop {
        match text_at(tokens, at) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while !matches!(text_at(tokens, at), "}" | "") {
                    at = read_use(tokens, at, &path, is_public, imports);
                    at += usize::from(text_at(tokens, at) == ",");
                }
                return at + 1;
            }
            "*" => {
                imports.push(Import { alias: "*".to_owned(), path, line, is_public });
                return at + 1;
            }
            "self" if !prefix.is_empty() => at += 1,
            "as" => {
                let alias = text_at(tokens, at + 1).to_owned();
                imports.push(Import { alias, path, line, is_public });
                return at + 2;
            }
            name if is_name(name) => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => {
                let alias = path.last().cloned().unwrap_or_default();
                imports.push(Import { alias, path, line, is_public });
                return at;
            }
        }
    }
}

/// Blanks the code after each `#[cfg(test)]`, and returns the child modules declared there.
fn blank_tests(code: &mut [u8]) -> Vec<String> {
    const MARK: &[u8] = b"#[cfg(test)]";
    let mut modules = Vec::new();
    let mut at = 0;
    while let Some(found) = find(code, MARK, at) {
        at = found + MARK.len();
        let Some(stop) = code[at..].iter().position(|b| matches!(b, b'{' | b';')).map(|n| at + n) else {
            continue;
        };
        let end = if code[stop] == b'{' { closing_brace(code, stop) } else { Some(stop) };
        let head = String::from_utf8_lossy(&code[at..stop]).into_owned();
        let mut words = head.split_whitespace().rev();
        if let (Some(name), Some("mod")) = (words.next(), words.next()) {
            modules.push(name.to_owned());
        }
        for byte in &mut code[found..=end.unwrap_or(stop)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &Source) -> Vec<String> {
        source.paths.iter().map(|named| named.path.join("::")).filter(|path| path.contains("::")).collect()
    }

    #[test]
    fn a_use_line_is_split_into_imports() {
        let source = read("//! A.\n\nuse crate::a::{self, b::C as D,\n    e::*};\npub(crate) use f::G;\n");
        let found: Vec<_> = source
            .imports
            .iter()
            .map(|i| (i.alias.as_str(), i.path.join("::"), i.line, i.is_public))
            .collect();
        assert_eq!(
            found,
            [
                ("a", "crate::a".to_owned(), 3, false),
                ("D", "crate::a::b::C".to_owned(), 3, false),
                ("*", "crate::a::e".to_owned(), 4, false),
                ("G", "f::G".to_owned(), 5, true),
            ]
        );
    }

    #[test]
    fn items_of_the_module_and_paths_in_its_code_are_found() {
        let text = "pub(in crate::x) const fn a() { fn inner() {} crate::b::c(super::D::new()); x.y::<u8>() }\n\
                    mod child;\nmod inline { fn f() { super::a(); } }\n";
        let source = read(text);
        assert_eq!(source.items.iter().collect::<Vec<_>>(), ["a", "inline"]);
        assert_eq!(paths(&source), ["crate::b::c", "super::D::new", "self::a"]);
    }

    #[test]
    fn tests_do_not_count() {
        let text = "#[cfg(test)]\nmod golden;\n#[cfg(test)]\nuse crate::a::B;\n\
                    #[cfg(test)]\nmod tests { use crate::c::D; }\nfn f() { e::g() }\n";
        let source = read(text);
        assert_eq!(source.test_modules, ["golden", "tests"]);
        assert_eq!(source.imports, []);
        assert_eq!(paths(&source), ["e::g"]);
    }
}
