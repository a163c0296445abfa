//! No file may contain a path that exists on one machine only: it would work for its author and no one else.

use super::Violation;

/// Beginnings of machine-specific paths. They are split in two, so that this file does not contain them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tm", "p/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

/// The violations in one text file of any kind.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for wanted in MACHINE_PATHS {
            if names_path(line, wanted) {
                let what = format!("`{wanted}…` is a machine-specific path: make it relative or an argument");
                violations.push(Violation::new(path, n + 1, what));
            }
        }
    }
    violations
}

/// Whether `line` names a path that starts with `wanted`, not a path that only contains it (`$ROOT/home/x`).
fn names_path(line: &str, wanted: &str) -> bool {
    line.match_indices(wanted).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '-' | '}' | ')' | '"' | '\'')
        }) || line[..at].ends_with("=\"")
            || line[..at].ends_with(" \"")
            || line[..at].ends_with("(\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_specific_path_fails() {
        for start in MACHINE_PATHS {
            let bad = [
                format!("cd {start}x"),
                format!("OUT={start}x"),
                format!("f(\"{start}x\")"),
                format!("`{start}x`"),
            ];
            for line in bad {
                assert_eq!(
                    check("a.md", &format!("first\n{line}\n")).first().map(|v| v.line),
                    Some(2),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn a_path_inside_another_path_passes() {
        for line in
            ["$MNT/home/dev", "\"$MNT\"/root/x", "${TMPDIR:-/tmp}/x", "~/.local/share", "https://a.b/tmp/x"]
        {
            assert_eq!(check("a.sh", line), vec![], "{line}");
        }
    }
}
