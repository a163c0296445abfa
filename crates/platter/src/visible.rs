//! Escapes control characters in text from outside: from disks, servers and other users.
//!
//! A terminal executes escape sequences. Filesystem labels, notes, paths in an image and errors of a server can contain
//! sequences that move the cursor, change the title or hide text. They are printed in escaped form. JSON output has its
//! own escaping.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes control characters except line ends.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    spelled(text, |c| c != '\n' && is_obeyed(c))
}

/// Escapes control characters, line ends included.
pub(crate) fn words(text: &str) -> Cow<'_, str> {
    spelled(text, is_obeyed)
}

/// Control characters, and characters that change the direction of text or are invisible.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_spelled) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_spelled(c) {
            // Writing to a string does not fail.
            true => drop(write!(shown, "{}", c.escape_default())),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_terminal_control_characters() {
        let all: String = (0..=char::MAX as u32).filter_map(char::from_u32).collect();
        assert!(!words(&all).chars().any(is_obeyed));
        assert_eq!(lines("a\nb\x1b[2J\r\u{9b}c\u{202e}d"), "a\nb\\u{1b}[2J\\r\\u{9b}c\\u{202e}d");
        assert_eq!(words("a\nb"), "a\\nb");
        for plain in ["", "lab/debian12", "Größe 12 MB", "\\d+"] {
            assert_eq!(lines(plain), plain);
        }
    }
}
