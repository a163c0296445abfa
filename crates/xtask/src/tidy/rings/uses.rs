//! Which files of one crate use which others. Names are followed through re-exports to the file that defines
//! them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, Import, Source};

/// The most re-exports that are followed for one name; a longer chain is circular.
const REEXPORTS_MAX: usize = 16;

/// A file's path in the module tree; empty for the crate's root.
pub(super) type ModulePath = Vec<String>;

/// One file names something that another defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: ModulePath,
    pub(super) to: ModulePath,
    /// The line in the file of `from`.
    pub(super) line: usize,
}

struct Module {
    file: String,
    source: Source,
}

/// The files of one crate, by module path.
pub(super) struct Modules(BTreeMap<ModulePath, Module>);

impl Modules {
    /// Reads a crate's sources: pairs of path below `src/` and text.
    pub(super) fn read<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let path = module_path(file);
            if !path.iter().any(|name| name == "tests" || name.ends_with("_tests")) {
                modules.insert(path, Module { file: file.to_owned(), source: source::read(text) });
            }
        }
        let tests: Vec<ModulePath> = modules
            .iter()
            .flat_map(|(path, module)| module.source.test_modules.iter().map(|name| child(path, name)))
            .collect();
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Self(modules)
    }

    /// The file of a module.
    pub(super) fn file(&self, module: &ModulePath) -> &str {
        self.0.get(module).map_or("", |module| &module.file)
    }

    /// The paths of all modules, parents before children.
    pub(super) fn paths(&self) -> impl Iterator<Item = &ModulePath> {
        self.0.keys()
    }

    /// Whether there are modules below this one.
    pub(super) fn is_folder(&self, module: &ModulePath) -> bool {
        self.0.keys().any(|path| path.len() > module.len() && path.starts_with(module))
    }

    /// All uses between files, each with its first line.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut first_lines: BTreeMap<(ModulePath, ModulePath), usize> = BTreeMap::new();
        for (from, module) in &self.0 {
            for (path, line) in named(&module.source) {
                let Some(to) = self.resolve(from, path, 0) else { continue };
                if to != *from {
                    let first = first_lines.entry((from.clone(), to)).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
        first_lines.into_iter().map(|((from, to), line)| Use { from, to, line }).collect()
    }

    /// The module whose file defines what `path` names in `from`; `None` for items of other crates.
    fn resolve(&self, from: &ModulePath, path: &[String], hops: usize) -> Option<ModulePath> {
        let mut at = from.clone();
        let mut rest = path;
        let mut is_own = false;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop(),
                _ => break,
            }
            is_own = true;
            rest = others;
        }
        while let Some((name, others)) = rest.split_first() {
            let module = self.0.get(&at)?;
            let below = child(&at, name);
            let is_module = self.0.contains_key(&below);
            if is_module && !(others.is_empty() && defines(&module.source, name)) {
                at = below;
            } else if module.source.items.contains(name) {
                return Some(at);
            } else if let Some(import) = import_of(&module.source, name).filter(|_| hops < REEXPORTS_MAX) {
                let whole: Vec<String> = import.path.iter().chain(others).cloned().collect();
                // For a name imported from a module of the same name (`use survey::survey`), search below
                // that module.
                return self.resolve(&at, &whole, hops + 1);
            } else {
                return is_own.then_some(at);
            }
            is_own = true;
            rest = others;
        }
        is_own.then_some(at)
    }
}

/// Whether a source has an item or import of that name, which takes precedence over a module of that name.
fn defines(source: &Source, name: &str) -> bool {
    source.items.contains(name)
        || import_of(source, name)
            .is_some_and(|import| import.path != [name] && import.path != ["self", name])
}

fn import_of<'a>(source: &'a Source, name: &str) -> Option<&'a Import> {
    source.imports.iter().find(|import| import.alias == name)
}

/// The paths by which a file uses others. A re-export counts only if the file also uses the name itself.
fn named(source: &Source) -> impl Iterator<Item = (&[String], usize)> {
    let reexports: BTreeSet<&str> =
        source.imports.iter().filter(|import| import.is_public).map(|import| import.alias.as_str()).collect();
    let imports = source.imports.iter().filter(|import| !import.is_public);
    let paths = source
        .paths
        .iter()
        .filter(move |named| named.path.len() > 1 || reexports.contains(named.path[0].as_str()));
    imports
        .map(|import| (import.path.as_slice(), import.line))
        .chain(paths.map(|named| (named.path.as_slice(), named.line)))
}

fn child(module: &[String], name: &str) -> ModulePath {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

/// Maps a file to its module: `a/b.rs` and `a/b/mod.rs` are `a::b`; `lib.rs` and `main.rs` are the root.
fn module_path(file: &str) -> ModulePath {
    let mut path: ModulePath = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_head = path.last().is_some_and(|last| last == "mod")
        || (path.len() == 1 && matches!(path[0].as_str(), "lib" | "main"));
    if is_head {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read(files.iter().copied());
        let uses = modules.uses();
        uses.iter().map(|u| format!("{}:{} {}", modules.file(&u.from), u.line, modules.file(&u.to))).collect()
    }

    const ROOM: &[(&str, &str)] = &[
        ("lib.rs", "mod a;\nmod user;\npub use a::{Noun, verb as act};\n"),
        ("a/mod.rs", "mod noun;\nmod verb;\npub(crate) use noun::Noun;\npub use self::verb::verb;\n"),
        ("a/noun.rs", "pub struct Noun;\n"),
        ("a/verb.rs", "pub fn verb() {}\n"),
    ];

    fn used_by(text: &str) -> Vec<String> {
        let mut files = ROOM.to_vec();
        files.push(("user.rs", text));
        uses(&files)
    }

    #[test]
    fn re_exports_are_followed_to_the_defining_file() {
        assert_eq!(used_by("use crate::Noun;\n"), ["user.rs:1 a/noun.rs"]);
        assert_eq!(used_by("use crate::a::Noun as N;\n"), ["user.rs:1 a/noun.rs"]);
        assert_eq!(used_by("fn f() {\n crate::act();\n}\n"), ["user.rs:2 a/verb.rs"]);
        assert_eq!(used_by("use super::a::verb;\n"), ["user.rs:1 a/verb.rs"]);
        assert_eq!(
            used_by("use crate::a::{self};\nfn f() { a::verb() }\n").last().unwrap(),
            "user.rs:2 a/verb.rs"
        );
    }

    #[test]
    fn foreign_names_and_uses_in_tests_are_no_edges() {
        assert_eq!(used_by("use std::fmt;\nfn f() -> fmt::Result { Noun::new() }\n"), [""; 0]);
        assert_eq!(used_by("#[cfg(test)]\nmod tests { use crate::Noun; }\n"), [""; 0]);
        assert_eq!(
            uses(&[
                ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n"),
                ("tests.rs", "use crate::a;"),
                ("a.rs", "")
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_file_that_uses_its_re_export_has_an_edge() {
        let files =
            [("lib.rs", "mod a;\npub use a::Noun;\nfn f(_: Noun) {}\n"), ("a.rs", "pub struct Noun;\n")];
        assert_eq!(uses(&files), ["lib.rs:3 a.rs"]);
    }

    #[test]
    fn a_function_takes_precedence_over_a_module_of_its_name() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod survey;\npub use survey::survey;\n"),
            ("a.rs", "use crate::survey;\n"),
            ("b.rs", "use crate::survey::Part;\n"),
            ("survey.rs", "pub fn survey() {}\npub struct Part;\n"),
        ];
        assert_eq!(uses(&files), ["a.rs:1 survey.rs", "b.rs:1 survey.rs"]);
    }
}
