//! The maximum lengths of files and functions, counted in lines including comments.

use super::Violation;
use super::source_text::{closing_brace, code_only, is_word, line_of, test_ranges};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_FUNCTION_LINES_MAX: usize = 100;

/// Files or functions (`file` or `file:function`) that may be longer, each with a reason. Keep it empty.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// The violations of the limits in one Rust file.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX && !is_excepted(path) {
        let what = format!("{lines} lines, more than {FILE_LINES_MAX}: split it, one noun per file");
        violations.push(Violation::new(path, 1, what));
    }
    let code = code_only(text);
    let tests = test_ranges(&code);
    let is_test_file = path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/");
    for function in functions(&code) {
        let in_test = is_test_file || tests.iter().any(|range| range.contains(&function.start));
        let lines_max = if in_test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
        if function.lines > lines_max && !is_excepted(&format!("{path}:{}", function.name)) {
            let what =
                format!("function {} has {} lines, more than {lines_max}", function.name, function.lines);
            violations.push(Violation::new(path, line_of(&code, function.start), what));
        }
    }
    violations
}

fn is_excepted(place: &str) -> bool {
    EXCEPTIONS.iter().any(|(excepted, _reason)| *excepted == place)
}

struct Function {
    name: String,
    start: usize,
    lines: usize,
}

/// All functions with a body, including nested ones.
fn functions(code: &[u8]) -> Vec<Function> {
    let mut found = Vec::new();
    for start in 0..code.len().saturating_sub(3) {
        let is_keyword = &code[start..start + 2] == b"fn"
            && code[start + 2].is_ascii_whitespace()
            && (start == 0 || !is_word(code[start - 1]));
        if !is_keyword {
            continue;
        }
        let name_start = start + 2 + code[start + 2..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let name_len = code[name_start..].iter().take_while(|b| is_word(**b)).count();
        let body = body_open(code, name_start + name_len);
        if let Some(close) = body.and_then(|open| closing_brace(code, open)) {
            let name = String::from_utf8_lossy(&code[name_start..name_start + name_len]).into_owned();
            let lines = line_of(code, close) - line_of(code, start) + 1;
            found.push(Function { name, start, lines });
        }
    }
    found
}

/// The `{` of a function's body; `None` if the declaration ends in `;`. The brackets of array types are
/// skipped.
fn body_open(code: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (n, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(n),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    let s = \"}\"; // }\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_longer_than_the_limit_fails() {
        assert_eq!(check("a.rs", &function_of(FUNCTION_LINES_MAX)), vec![]);
        let found = check("a.rs", &format!("//! x\n\n{}", function_of(FUNCTION_LINES_MAX + 1)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        assert!(found[0].what.contains("function long has 71 lines"), "{}", found[0].what);
    }

    #[test]
    fn tests_may_be_longer() {
        let inside = |lines| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function_of(lines));
        assert_eq!(check("a.rs", &inside(TEST_FUNCTION_LINES_MAX)), vec![]);
        assert_eq!(check("a.rs", &inside(TEST_FUNCTION_LINES_MAX + 1)).len(), 1);
        assert_eq!(check("crates/x/tests/a.rs", &function_of(TEST_FUNCTION_LINES_MAX)), vec![]);
    }

    #[test]
    fn declarations_pointers_and_array_types_are_not_functions() {
        let text = "trait T { fn a(&self) -> [u8; 4]; fn b() -> u8 { 1 } }\ntype F = fn(u8) -> u8;\n";
        let code = code_only(text);
        let names: Vec<String> = functions(&code).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn a_long_file_fails() {
        assert_eq!(check("a.rs", &"//\n".repeat(FILE_LINES_MAX)), vec![]);
        assert_eq!(check("a.rs", &"//\n".repeat(FILE_LINES_MAX + 1)).len(), 1);
    }
}
