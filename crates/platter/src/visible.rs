//! What is shown of words that came from elsewhere: from disks, servers, other people.
//!
//! A terminal obeys what is written to it. Labels of file systems, notes, paths in an image and errors of a server may
//! hold sequences that move its cursor, change its title or hide text; a person sees them as they are spelled here. JSON is
//! for programs, which have rules of their own.

use std::borrow::Cow;
use std::fmt::Write;

/// Text of several lines as it may be printed: whatever a terminal would obey, but for the ends of lines, is spelled out.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    spelled(text, |c| c != '\n' && is_obeyed(c))
}

/// Words that stand in one line.
pub(crate) fn words(text: &str) -> Cow<'_, str> {
    spelled(text, is_obeyed)
}

/// Control characters, and those that turn the direction of text or do not show at all.
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
    fn nothing_is_left_that_a_terminal_obeys() {
        let all: String = (0..=char::MAX as u32).filter_map(char::from_u32).collect();
        assert!(!words(&all).chars().any(is_obeyed));
        assert_eq!(lines("a\nb\x1b[2J\r\u{9b}c\u{202e}d"), "a\nb\\u{1b}[2J\\r\\u{9b}c\\u{202e}d");
        assert_eq!(words("a\nb"), "a\\nb");
        for plain in ["", "lab/debian12", "Größe 12 MB", "\\d+"] {
            assert_eq!(lines(plain), plain);
        }
    }
}
