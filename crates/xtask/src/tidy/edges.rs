//! Which crate may depend on which. The table is the decision: an edge that is not listed is an error. Adding
//! one changes the architecture, so change this table and ARCHITECTURE.md together.

use super::Violation;
use super::tree::Crate;

/// What one crate may depend on.
struct Rule {
    name: &'static str,
    /// Allowed crates of this workspace, for any use including tests.
    own: &'static [&'static str],
    /// If given: the only external crates allowed outside tests. For crates that must not do I/O.
    foreign: Option<&'static [&'static str]>,
}

/// Crates that only tests may depend on.
const TESTS_ONLY: &[&str] = &["platter-testbed"];

/// One row per crate; every crate must be listed.
const RULES: &[Rule] = &[
    Rule {
        name: "platter-image",
        own: &[],
        foreign: Some(&[
            "aes",
            "blake3",
            "chacha20",
            "parking_lot",
            "ring",
            "twox-hash",
            "zeroize",
            "zstd-safe",
        ]),
    },
    Rule { name: "platter-vfs", own: &[], foreign: None },
    Rule { name: "platter-admission", own: &[], foreign: Some(&[]) },
    Rule { name: "platter-transport", own: &["platter-image"], foreign: None },
    // Filesystems are only parsed: no devices, no system calls.
    Rule {
        name: "platter-filesystem",
        own: &["platter-image"],
        foreign: Some(&["crc", "flate2", "lzokay", "self_cell", "sha2", "twox-hash", "zstd-safe"]),
    },
    // Formats of other programs are only parsed: no file is opened.
    Rule {
        name: "platter-formats",
        own: &["platter-image"],
        foreign: Some(&["crc", "flate2", "lzma-rust2", "parking_lot", "twox-hash", "zstd-safe"]),
    },
    Rule { name: "platter-disk", own: &["platter-filesystem", "platter-image"], foreign: None },
    // Keys of versions: no store, no sockets.
    Rule {
        name: "platter-signing",
        own: &["platter-image", "platter-records", "platter-transport"],
        foreign: Some(&["minisign", "rustix", "serde_json"]),
    },
    // Keys of encrypted stores: no files, no terminal; random bytes from the system.
    Rule {
        name: "platter-encryption",
        own: &["platter-image"],
        foreign: Some(&[
            "argon2",
            "blake3",
            "chacha20",
            "chacha20poly1305",
            "getrandom",
            "serde",
            "serde_json",
            "zeroize",
        ]),
    },
    // Metadata, and the types of the API: no database, no sockets.
    Rule {
        name: "platter-records",
        own: &["platter-image"],
        foreign: Some(&["jiff", "schemars", "serde", "serde_json"]),
    },
    Rule {
        name: "platter-api",
        own: &["platter-image", "platter-records"],
        foreign: Some(&["schemars", "serde", "serde_json"]),
    },
    Rule {
        name: "platter-pack",
        own: &["platter-image", "platter-records", "platter-vfs"],
        foreign: Some(&["twox-hash"]),
    },
    // Decisions of collection and retention: no I/O, no clock.
    Rule { name: "platter-collection", own: &["platter-image", "platter-records"], foreign: Some(&["jiff"]) },
    // A cache has no database.
    Rule {
        name: "platter-cache",
        own: &["platter-image", "platter-pack", "platter-records", "platter-vfs"],
        foreign: Some(&["hashbrown", "parking_lot", "serde", "serde_json", "twox-hash"]),
    },
    // The index of blocks has no database.
    Rule {
        name: "platter-index",
        own: &["platter-image", "platter-pack", "platter-records", "platter-vfs"],
        foreign: Some(&["hashbrown", "parking_lot", "twox-hash"]),
    },
    Rule {
        name: "platter-store",
        own: &[
            "platter-collection",
            "platter-encryption",
            "platter-image",
            "platter-index",
            "platter-pack",
            "platter-records",
            "platter-vfs",
        ],
        foreign: None,
    },
    // The protocol is pure: nothing in its manifest can open a socket or file, or read a clock.
    Rule {
        name: "platter-cast",
        own: &["platter-image"],
        foreign: Some(&["blake3", "chacha20poly1305", "twox-hash", "reed-solomon-simd", "zeroize"]),
    },
    Rule { name: "platter-net", own: &["platter-admission", "platter-cast", "platter-image"], foreign: None },
    Rule { name: "platter-vdisk", own: &["platter-image", "platter-vfs"], foreign: None },
    Rule {
        name: "platter-export",
        own: &["platter-admission", "platter-image", "platter-transport", "platter-vdisk"],
        foreign: None,
    },
    // HTTP to an origin: no cache, no scheduler, no database.
    Rule {
        name: "platter-client",
        own: &["platter-api", "platter-image", "platter-records", "platter-transport", "platter-vfs"],
        foreign: None,
    },
    Rule {
        name: "platter-fetch",
        own: &[
            "platter-admission",
            "platter-api",
            "platter-cache",
            "platter-cast",
            "platter-client",
            "platter-image",
            "platter-records",
            "platter-store",
            "platter-testbed",
            "platter-transport",
            "platter-vdisk",
            "platter-vfs",
        ],
        foreign: None,
    },
    Rule {
        name: "platter-analyze",
        own: &["platter-disk", "platter-fetch", "platter-filesystem", "platter-image", "platter-vdisk"],
        foreign: None,
    },
    Rule {
        name: "platter-browse",
        own: &[
            "platter-api",
            "platter-disk",
            "platter-export",
            "platter-fetch",
            "platter-filesystem",
            "platter-image",
            "platter-records",
            "platter-vdisk",
        ],
        foreign: None,
    },
    Rule {
        name: "platter-jobs",
        own: &[
            "platter-api",
            "platter-cast",
            "platter-client",
            "platter-disk",
            "platter-encryption",
            "platter-export",
            "platter-fetch",
            "platter-filesystem",
            "platter-formats",
            "platter-image",
            "platter-net",
            "platter-records",
            "platter-signing",
            "platter-store",
            "platter-testbed",
            "platter-transport",
            "platter-vdisk",
            "platter-vfs",
        ],
        foreign: None,
    },
    Rule {
        name: "platter-live",
        own: &[
            "platter-api",
            "platter-client",
            "platter-disk",
            "platter-export",
            "platter-fetch",
            "platter-image",
            "platter-jobs",
            "platter-records",
            "platter-signing",
            "platter-store",
            "platter-testbed",
            "platter-transport",
            "platter-vdisk",
            "platter-vfs",
        ],
        foreign: None,
    },
    Rule {
        name: "platter-daemon",
        own: &[
            "platter-admission",
            "platter-api",
            "platter-image",
            "platter-records",
            "platter-store",
            "platter-transport",
        ],
        foreign: None,
    },
    Rule {
        name: "platter",
        own: &["platter-analyze", "platter-browse", "platter-jobs", "platter-live", "platter-daemon"],
        foreign: None,
    },
    // What tests of fetch, jobs and live share. It knows none of them.
    Rule {
        name: "platter-testbed",
        own: &[
            "platter-api",
            "platter-client",
            "platter-disk",
            "platter-image",
            "platter-records",
            "platter-store",
            "platter-transport",
        ],
        foreign: None,
    },
    // Runs the fuzz targets as tests, so it needs every crate that parses.
    Rule {
        name: "platter-replay",
        own: &[
            "platter-image",
            "platter-vfs",
            "platter-disk",
            "platter-encryption",
            "platter-filesystem",
            "platter-formats",
            "platter-store",
            "platter-pack",
            "platter-index",
            "platter-cache",
            "platter-transport",
            "platter-cast",
            "platter-vdisk",
            "platter-export",
            "platter-live",
            "platter-records",
        ],
        foreign: Some(&[]),
    },
    Rule { name: "xtask", own: &[], foreign: Some(&["serde_json"]) },
];

/// The violations of the table in these crates.
pub(super) fn check(crates: &[Crate]) -> Vec<Violation> {
    crates.iter().flat_map(check_crate).collect()
}

fn check_crate(krate: &Crate) -> Vec<Violation> {
    let manifest = format!("crates/{}/Cargo.toml", krate.folder);
    let Some(rule) = RULES.iter().find(|rule| rule.name == krate.name) else {
        let what =
            format!("crate {} has no row in crates/xtask/src/tidy/edges.rs: add it deliberately", krate.name);
        return vec![Violation::new(&manifest, 1, what)];
    };
    let mut violations = Vec::new();
    if krate.name.trim_start_matches("platter-") != krate.folder {
        let what = format!("folder {} holds crate {}: the names must match", krate.folder, krate.name);
        violations.push(Violation::new(&manifest, 1, what));
    }
    for (dependency, only_tests) in &krate.dependencies {
        let is_own = RULES.iter().any(|rule| rule.name == dependency);
        let allowed = if is_own {
            let is_for_tests = TESTS_ONLY.contains(&dependency.as_str());
            rule.own.contains(&dependency.as_str()) && (*only_tests || !is_for_tests)
        } else {
            *only_tests || rule.foreign.is_none_or(|foreign| foreign.contains(&dependency.as_str()))
        };
        if !allowed {
            let what = format!(
                "{} may not depend on {dependency}: edges are listed in crates/xtask/src/tidy/edges.rs",
                krate.name
            );
            violations.push(Violation::new(&manifest, 1, what));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Crate {
        let dependencies = dependencies.iter().map(|(d, tests)| ((*d).to_owned(), *tests)).collect();
        Crate { name: name.to_owned(), folder: folder.to_owned(), dependencies }
    }

    #[test]
    fn allowed_edges_pass() {
        let good = [
            krate("platter-cast", "cast", &[("platter-image", false), ("proptest", true)]),
            krate("platter-jobs", "jobs", &[("platter-net", false), ("libc", false)]),
        ];
        assert_eq!(check(&good), vec![]);
    }

    #[test]
    fn an_upward_edge_fails_even_for_tests_only() {
        let found = check(&[krate("platter-image", "image", &[("platter-store", true)])]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].to_string().contains("platter-image may not depend on platter-store"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn what_is_for_tests_is_not_shipped() {
        for (only_tests, violations) in [(true, 0), (false, 1)] {
            let found = check(&[krate("platter-jobs", "jobs", &[("platter-testbed", only_tests)])]);
            assert_eq!(found.len(), violations, "{found:?}");
        }
    }

    #[test]
    fn cast_may_not_depend_on_io_crates() {
        let found = check(&[krate("platter-cast", "cast", &[("socket2", false)])]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn an_unknown_crate_and_a_wrong_folder_fail() {
        assert_eq!(check(&[krate("platter-util", "util", &[])]).len(), 1);
        assert_eq!(check(&[krate("platter-vfs", "files", &[])]).len(), 1);
    }
}
