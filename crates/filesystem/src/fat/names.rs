//! The names in a directory: long ones, or the 11 bytes of short ones.
//!
//! A long name is in entries before the one that it names, each with 13 UTF-16 units, the last part first. They have the checksum
//! of the short name, so that a long name whose short one was changed by an old system is ignored.

use super::directory::ENTRY_LENGTH;
use crate::fields::le16;

const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTES_LONG: u8 = 0x0f;
/// Units in an entry of a long name, and their offsets.
const UNITS: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
/// The most entries of a long name.
const PARTS_MAX: u8 = 20;
/// Flags at offset 12: the base or the extension, stored in upper case, is shown in lower case.
const LOWER_BASE: u8 = 8;
const LOWER_EXTENSION: u8 = 16;

/// The entries of files and directories, each with its index and its name.
pub(super) fn named(bytes: &[u8]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut long = Long::default();
    for (index, entry) in bytes.chunks_exact(ENTRY_LENGTH).enumerate() {
        match entry {
            // Linux and Windows end here.
            [0, ..] => break,
            [0xe5, ..] => long = Long::default(),
            _ if entry[11] & 0x3f == ATTRIBUTES_LONG => long.push(entry),
            _ if entry[11] & ATTRIBUTE_LABEL != 0 => long = Long::default(),
            _ => {
                let name = std::mem::take(&mut long).name(entry).unwrap_or_else(|| short(entry));
                found.push((index, name));
            }
        }
    }
    found
}

/// A long name that is being read.
#[derive(Default)]
struct Long {
    /// All units, the last part first.
    parts: Vec<[u16; 13]>,
    /// The number of the next part; 0 if the name is complete.
    next: u8,
    checksum: u8,
}

impl Long {
    fn push(&mut self, entry: &[u8]) {
        let (number, is_last) = (entry[0] & 0x3f, entry[0] & 0x40 != 0);
        if is_last && (1..=PARTS_MAX).contains(&number) {
            *self = Self { parts: Vec::new(), next: number, checksum: entry[13] };
        }
        if self.next == 0 || number != self.next || entry[13] != self.checksum {
            *self = Self::default();
            return;
        }
        self.parts.push(UNITS.map(|at| le16(entry, at)));
        self.next -= 1;
    }

    /// The name, if it is complete and belongs to this entry.
    fn name(self, entry: &[u8]) -> Option<String> {
        let sum = entry[..11].iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
        if self.parts.is_empty() || self.next != 0 || sum != self.checksum {
            return None;
        }
        let units = self.parts.iter().rev().flatten().copied().take_while(|unit| *unit != 0);
        let name = String::from_utf16_lossy(&units.collect::<Vec<_>>());
        (!name.is_empty()).then_some(name)
    }
}

/// The upper half of code page 437, in which the kernel reads short names by default. Nothing in the filesystem names the code page.
const CODE_PAGE_437: &str = "\
    ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// A short name: eight bytes and three, filled with spaces.
fn short(entry: &[u8]) -> String {
    let letter = |byte: u8| match byte.checked_sub(0x80) {
        None => char::from(byte),
        Some(index) => CODE_PAGE_437.chars().nth(index.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let part = |bytes: &[u8], is_lower: bool| {
        let text: String = bytes.iter().map(|byte| letter(*byte)).collect();
        let text = text.trim_end_matches(' ').to_owned();
        if is_lower { text.to_lowercase() } else { text }
    };
    let mut base = entry[..8].to_vec();
    if base[0] == 5 {
        base[0] = 0xe5;
    }
    let base = part(&base, entry[12] & LOWER_BASE != 0);
    let extension = part(&entry[8..11], entry[12] & LOWER_EXTENSION != 0);
    if extension.is_empty() { base } else { format!("{base}.{extension}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(name: &[u8; 11], attributes: u8, lower: u8) -> [u8; 32] {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(name);
        (entry[11], entry[12]) = (attributes, lower);
        entry
    }

    fn long(number: u8, text: &str, checksum: u8) -> [u8; 32] {
        let mut entry = [0; 32];
        (entry[0], entry[11], entry[13]) = (number, ATTRIBUTES_LONG, checksum);
        for (at, unit) in UNITS.iter().zip(text.encode_utf16().chain([0]).chain(std::iter::repeat(0xffff))) {
            entry[*at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        entry
    }

    fn sum(name: &[u8; 11]) -> u8 {
        name.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte))
    }

    #[test]
    fn short_names_are_in_code_page_437() {
        assert_eq!(CODE_PAGE_437.chars().count(), 128);
        assert_eq!(short(&raw(b"\x8eRZTE   T\x99T", 0x20, 0)), "ÄRZTE.TÖT");
        assert_eq!(short(&raw(b"\x9a       \xff  ", 0x20, LOWER_BASE)), "ü.\u{a0}");
        assert_eq!(short(&raw(b"\x05X      \xe1  ", 0x20, 0)), "σX.ß");
    }

    #[test]
    fn long_and_short_names() {
        let short = b"ALONGN~1TXT";
        let directory = [
            raw(b"DISK       ", 8, 0),
            long(0x42, "me.txt", sum(short)),
            long(1, "a long näme, ", sum(short)),
            raw(short, 0x20, 0),
            raw(b"README  MD ", 0x20, LOWER_BASE),
            long(0x41, "stale", 1),
            raw(b"FOLDER     ", 0x10, 0),
            long(0x41, "gone", 0),
            raw(b"\xe5ONE       ", 0x20, 0),
            raw(b"\x05BC     TXT", 0x20, 0),
            [0; 32],
            raw(b"BEYOND     ", 0x20, 0),
        ];
        let names = named(&directory.concat());
        let expected = [(3, "a long näme, me.txt"), (4, "readme.MD"), (6, "FOLDER"), (9, "σBC.TXT")];
        assert_eq!(names, expected.map(|(index, name)| (index, name.to_owned())));
    }
}
