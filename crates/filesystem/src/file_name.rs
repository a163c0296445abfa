//! Names and paths as text: one line, without control characters, and so that different names never look the same.

use std::fmt::Write;

/// Returns a name or path as `ls -b` shows it, except that spaces stay: `\\` for a backslash, `\n` and the like, and octal numbers
/// for other control characters, characters that are invisible or change the direction of text, and bytes that are not UTF-8.
pub fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match letter(character) {
                Some(letter) => text.extend(['\\', letter]),
                None if is_shown(character) => text.push(character),
                None => octal(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

/// The letter that follows a backslash.
fn letter(character: char) -> Option<char> {
    Some(match character {
        '\\' => '\\',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        _ => return None,
    })
}

fn is_shown(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_ls_does() {
        let cases: [(&[u8], &str); 7] = [
            (b"/etc/a b", "/etc/a b"),
            (b"new\nline", "new\\nline"),
            (b"new\\nline", "new\\\\nline"),
            (b"\xff\xfebin", "\\377\\376bin"),
            (b"\x1b[2J\x7f", "\\033[2J\\177"),
            ("na\u{ef}ve \u{6f22}".as_bytes(), "na\u{ef}ve \u{6f22}"),
            ("\u{202e}".as_bytes(), "\\342\\200\\256"),
        ];
        for (name, text) in cases {
            assert_eq!(escaped(name), text);
        }
    }
}
