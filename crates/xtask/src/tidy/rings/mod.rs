//! Forbids rings between the folders of a crate: a folder may not depend on something that depends on the
//! folder.
//!
//! A file uses another if it names something that the other defines, in a `use` line or by a path in its
//! code. Re-exports are followed to the file that defines the name; they neither hide a use nor create one.
//! `mod` lines, re-exports and tests do not count.
//!
//! Each folder is checked on its own. Its entries are its own files, including its `mod.rs`, and its
//! subfolders, each taken as a whole; `a.rs` beside `a/` is the `mod.rs` of `a`. A ring of entries is a
//! violation if one of them is a folder. So two folders may not use each other, and a folder may not use a
//! file of its parent that uses the folder. A folder may use other files of its parent: a shared error type
//! may lie beside the function that joins everything. Files within one folder may use each other.

mod source;
mod uses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Violation;
use super::tree::TextFile;
use uses::{ModulePath, Modules, Use};

/// Folders of crates that may be in a ring with files.
const EXEMPT: &[(&str, &str)] = &[
    // An opened store makes sessions, and adopts the packs of interrupted ones.
    ("store", "session"),
];

/// The rings in all crates, except those of exempt folders.
pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for file in files {
        let parts = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((name, path)) = parts.filter(|(_, path)| path.ends_with(".rs")) {
            crates.entry(name).or_default().push((path, &file.text));
        }
    }
    crates.iter().flat_map(|(name, files)| check_crate(name, files)).collect()
}

fn check_crate(name: &str, files: &[(&str, &str)]) -> Vec<Violation> {
    let modules = Modules::read(files.iter().copied());
    let uses = modules.uses();
    let folders: Vec<&ModulePath> = modules.paths().filter(|path| modules.is_folder(path)).collect();
    let mut violations = Vec::new();
    for folder in folders {
        let inside: Vec<&Use> = uses
            .iter()
            .filter(|u| u.from.starts_with(folder) && u.to.starts_with(folder))
            .filter(|u| entry(folder, &u.from) != entry(folder, &u.to))
            .collect();
        for ring in rings(name, &modules, folder, &inside) {
            violations.push(describe(name, &modules, &ring));
        }
    }
    violations
}

/// The entry of `folder` that contains the module; for the folder's `mod.rs`, the folder's own path.
fn entry<'a>(folder: &ModulePath, module: &'a ModulePath) -> &'a [String] {
    &module[..module.len().min(folder.len() + 1)]
}

/// One shortest ring, as a list of uses, for each group of entries that use each other and include a folder.
fn rings<'a>(name: &str, modules: &Modules, folder: &ModulePath, uses: &[&'a Use]) -> Vec<Vec<&'a Use>> {
    let mut found: Vec<Vec<&Use>> = Vec::new();
    let mut known: BTreeSet<&[String]> = BTreeSet::new();
    let entries: BTreeSet<&[String]> = uses.iter().map(|u| entry(folder, &u.from)).collect();
    for start in entries {
        let is_folder = start.len() > folder.len() && modules.is_folder(&start.to_vec());
        let is_exempt = EXEMPT.contains(&(name, &start.join("/")));
        if !is_folder || is_exempt || known.contains(start) {
            continue;
        }
        if let Some(ring) = shortest_ring(folder, start, uses) {
            // Skip the other entries of this group: they would report the same ring.
            let reached = reachable(folder, start, uses);
            known.extend(reached.into_iter().filter(|other| reachable(folder, other, uses).contains(start)));
            found.push(ring);
        }
    }
    found
}

fn reachable<'a>(folder: &ModulePath, start: &[String], uses: &[&'a Use]) -> BTreeSet<&'a [String]> {
    let mut reached: BTreeSet<&[String]> = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(at) = waiting.pop() {
        for u in uses.iter().filter(|u| entry(folder, &u.from) == at) {
            let to = entry(folder, &u.to);
            if reached.insert(to) {
                waiting.push(to);
            }
        }
    }
    reached
}

/// The shortest path along uses from an entry back to itself.
fn shortest_ring<'a>(folder: &ModulePath, start: &[String], uses: &[&'a Use]) -> Option<Vec<&'a Use>> {
    let mut came_by: BTreeMap<&[String], &'a Use> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(at) = waiting.pop_front() {
        for &u in uses.iter().filter(|u| entry(folder, &u.from) == at) {
            let to = entry(folder, &u.to);
            if came_by.contains_key(to) {
                continue;
            }
            came_by.insert(to, u);
            waiting.push_back(to);
        }
    }
    let mut ring = vec![*came_by.get(start)?];
    loop {
        let from = entry(folder, &ring[ring.len() - 1].from);
        if from == start {
            break;
        }
        ring.push(*came_by.get(from)?);
    }
    ring.reverse();
    Some(ring)
}

fn describe(name: &str, modules: &Modules, ring: &[&Use]) -> Violation {
    let file = |module: &ModulePath| format!("crates/{name}/src/{}", modules.file(module));
    let edges: Vec<String> =
        ring.iter().map(|u| format!("{}:{} uses {}", file(&u.from), u.line, modules.file(&u.to))).collect();
    let what = format!("ring of folders: remove one of these uses\n    {}", edges.join("\n    "));
    Violation::new(&file(&ring[0].from), ring[0].line, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check_crate("x", files).iter().map(ToString::to_string).collect()
    }

    const A: (&str, &str) = ("a/mod.rs", "mod one;\nmod two;\npub(crate) use one::One;\n");
    const B: (&str, &str) = ("b/mod.rs", "mod three;\nmod four;\npub(crate) use three::Three;\n");
    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod top;\nmod base;\npub use a::One;\n");

    #[test]
    fn folders_that_use_each_other_are_a_ring_even_if_their_files_are_not() {
        let files = [
            LIB,
            A,
            B,
            ("a/one.rs", "pub struct One;\n"),
            ("a/two.rs", "\nuse crate::b::Three;\n"),
            ("b/three.rs", "pub struct Three;\n"),
            ("b/four.rs", "fn f() {\n\n crate::One }\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/a/two.rs:2: ring of folders"), "{}", found[0]);
        assert!(found[0].contains("crates/x/src/a/two.rs:2 uses b/three.rs"), "{}", found[0]);
        assert!(found[0].contains("crates/x/src/b/four.rs:3 uses a/one.rs"), "{}", found[0]);
    }

    #[test]
    fn a_folder_and_a_file_of_its_parent_can_form_a_ring() {
        let files = [
            LIB,
            ("a/mod.rs", "mod one;\npub(crate) use one::One;\n"),
            ("a/one.rs", "use crate::base::Base;\npub struct One;\n"),
            ("base.rs", "use crate::top::Top;\npub struct Base;\n"),
            ("top.rs", "use crate::One;\npub struct Top;\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].lines().count(), 4, "{}", found[0]);
    }

    #[test]
    fn a_mod_file_with_logic_and_a_folder_below_it_can_form_a_ring() {
        let files = [
            ("lib.rs", "mod a;\npub struct Root;\nfn f() { a::One::new() }\n"),
            ("a/mod.rs", "mod one;\npub(crate) use one::One;\n"),
            ("a/one.rs", "use crate::Root;\npub struct One;\n"),
        ];
        assert_eq!(found(&files).len(), 1);
        let declares_only = [("lib.rs", "mod a;\npub struct Root;\npub use a::One;\n"), files[1], files[2]];
        assert_eq!(found(&declares_only), [""; 0]);
    }

    #[test]
    fn a_deep_ring_is_found_once() {
        let files = [
            ("lib.rs", "mod deep;\n"),
            ("deep/mod.rs", "mod a;\nmod b;\n"),
            ("deep/a.rs", "mod one;\nuse super::b;\n"),
            ("deep/a/one.rs", "pub struct One;\n"),
            ("deep/b.rs", "use super::a::one::One;\n"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn shared_files_and_rings_within_a_folder_pass() {
        let files = [
            LIB,
            A,
            ("a/one.rs", "use super::two::Two;\nuse crate::base::Base;\npub struct One;\n"),
            ("a/two.rs", "use super::One;\npub struct Two;\n"),
            ("base.rs", "pub struct Base;\n"),
            ("top.rs", "use crate::{One, base::Base};\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn uses_in_tests_do_not_count() {
        let files = [
            LIB,
            A,
            ("a/one.rs", "pub struct One;\n#[cfg(test)]\nmod tests { use crate::top::Top; }\n"),
            ("a/two.rs", ""),
            ("top.rs", "use crate::One;\npub struct Top;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
