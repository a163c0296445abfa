//! Rust source with comments, strings and character literals blanked out, so that simple scans can count
//! braces and words. It is not a parser: it knows only what can hide a brace. Byte offsets and line breaks do
//! not change.

/// The text with every byte of a comment or literal replaced by a space; line breaks are kept.
pub(super) fn code_only(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = hidden_end(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    code
}

/// The end of the comment or literal that starts at `at`; `at` if none starts there.
fn hidden_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    match rest[0] {
        b'/' if rest.starts_with(b"//") => at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        b'/' if rest.starts_with(b"/*") => block_comment_end(bytes, at),
        b'"' => string_end(bytes, at + 1),
        b'r' | b'b' | b'c' if !after_word => prefixed_string_end(bytes, at),
        b'\'' if !after_word => character_end(bytes, at),
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of an escaped string whose contents start at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `c"…"` or `b'…'`; `start` if it is only a word with such a
/// first letter.
fn prefixed_string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() && at < start + 2 && matches!(bytes[at], b'r' | b'b' | b'c') {
        at += 1;
    }
    let raw = bytes[start..at].contains(&b'r');
    let hashes = if raw { bytes[at..].iter().take_while(|b| **b == b'#').count() } else { 0 };
    match bytes.get(at + hashes) {
        Some(b'"') if raw => raw_string_end(bytes, at + hashes + 1, hashes),
        Some(b'"') => string_end(bytes, at + 1),
        Some(b'\'') if at == start + 1 && bytes[start] == b'b' => character_end(bytes, at),
        _ => start,
    }
}

fn raw_string_end(bytes: &[u8], mut at: usize, hashes: usize) -> usize {
    while at < bytes.len() {
        let closes = bytes[at] == b'"'
            && bytes[at + 1..].iter().take(hashes).filter(|b| **b == b'#').count() == hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    bytes.len()
}

/// The end of a character literal, or `start` if the quote begins a lifetime.
fn character_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start + 1) {
        Some(b'\\') => {
            let close = bytes.iter().skip(start + 3).position(|b| *b == b'\'');
            close.map_or(start, |n| start + 3 + n + 1)
        }
        Some(_) => {
            // One character (up to four bytes of UTF-8) and the closing quote; otherwise it is a lifetime.
            let width = 1 + bytes[start + 2..].iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
            if bytes.get(start + 1 + width) == Some(&b'\'') { start + width + 2 } else { start }
        }
        None => start,
    }
}

/// Whether the byte can be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The line, counted from 1, of the byte at `offset`.
pub(super) fn line_of(code: &[u8], offset: usize) -> usize {
    1 + code[..offset.min(code.len())].iter().filter(|b| **b == b'\n').count()
}

/// The offset of the `}` that closes the `{` at `open`.
pub(super) fn closing_brace(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (n, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(n);
                }
            }
            _ => {}
        }
    }
    None
}

/// The byte ranges that only tests compile: the bodies after `#[cfg(test)]`.
pub(super) fn test_ranges(code: &[u8]) -> Vec<std::ops::Range<usize>> {
    const MARK: &[u8] = b"#[cfg(test)]";
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(found) = find(code, MARK, at) {
        at = found + MARK.len();
        let open = code[at..].iter().position(|b| matches!(b, b'{' | b';')).map(|n| at + n);
        if let Some(end) = open.filter(|o| code[*o] == b'{').and_then(|open| closing_brace(code, open)) {
            ranges.push(found..end);
            at = end;
        }
    }
    ranges
}

/// The first occurrence of `wanted` at or after `from`.
pub(super) fn find(code: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    code.get(from..)?.windows(wanted.len()).position(|window| window == wanted).map(|n| from + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(text: &str) -> String {
        String::from_utf8(code_only(text)).unwrap()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let hiding = [
            "// {",
            "/* { /* { */ } */",
            r#""{\"{""#,
            r##"r#"{"{"#"##,
            r#"b"{""#,
            r##"br#"{"#"##,
            "'{'",
            "b'{'",
            r"'\''",
            r"'\u{7b}'",
            "'\u{e9}'",
        ];
        for text in hiding {
            let line = format!("a {text}\nb");
            assert_eq!(blanked(&line).trim_end_matches('b').trim(), "a", "{text}");
            assert_eq!(blanked(&line).len(), line.len());
        }
    }

    #[test]
    fn code_is_kept() {
        for text in ["fn f<'a>(x: &'a str) {}", "let rb = bar;", "r#type", "x as u8", "'label: loop {}"] {
            assert_eq!(blanked(text), text);
        }
    }

    #[test]
    fn test_modules_and_lines_are_found() {
        let code = code_only("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        let ranges = test_ranges(&code);
        assert_eq!(ranges.len(), 1);
        assert_eq!(line_of(&code, ranges[0].start), 2);
        assert_eq!(line_of(&code, ranges[0].end), 5);
    }
}
