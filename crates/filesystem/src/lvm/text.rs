//! The text in which LVM writes down its metadata: sections of named values.
//!
//! Only parses. Time and memory are bounded by the length of the text ([`TEXT_LENGTH_MAX`]) and by [`DEPTH_MAX`]. What is
//! not in the language, and every name that is there twice, is an error.

use std::collections::BTreeMap;

use platter_image::{Error, Result};

/// A longer text is not read: it would take more than 256 MiB of memory. It has room for thousands of volumes.
pub(super) const TEXT_LENGTH_MAX: u64 = 4 << 20;

/// Sections inside sections: group, volumes, volume, segment, and settings of a segment.
const DEPTH_MAX: usize = 6;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A whole number that is not negative.
    Number(u64),
    /// A text in quotes, or any other number.
    Text(String),
    /// Several of these.
    List(Vec<Value>),
}

/// A section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Its values, by name.
    pub(super) values: BTreeMap<String, Value>,
    /// The sections in it, by name.
    pub(super) sections: BTreeMap<String, Section>,
}

impl Section {
    /// Parses a text.
    ///
    /// # Errors
    /// `Corrupt`, with the offset of what is wrong.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut parser = Parser { text: &text[..end], at: 0 };
        let section = parser.section(0)?;
        match parser.next_byte() {
            None => Ok(section),
            Some(_) => Err(parser.wrong("a section ends that did not begin")),
        }
    }

    /// The number of that name.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(super) fn number(&self, name: &str) -> Result<u64> {
        match self.values.get(name) {
            Some(Value::Number(number)) => Ok(*number),
            _ => Err(Error::corrupt(format!("it has no number {name:?}"))),
        }
    }

    /// The text of that name.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(super) fn text(&self, name: &str) -> Result<&str> {
        match self.values.get(name) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(Error::corrupt(format!("it has no text {name:?}"))),
        }
    }

    /// The list of texts of that name; empty if there is no such value.
    ///
    /// # Errors
    /// `Corrupt` if it is anything else.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<&str>> {
        let wrong = || Error::corrupt(format!("its {name:?} is no list of texts"));
        match self.values.get(name) {
            None => Ok(Vec::new()),
            Some(Value::List(list)) => list
                .iter()
                .map(|one| match one {
                    Value::Text(text) => Ok(text.as_str()),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// Calls `visit` with every text in this section and in those below.
    pub(super) fn visit_texts(&self, visit: &mut dyn FnMut(&str)) {
        for value in self.values.values() {
            match value {
                Value::Text(text) => visit(text),
                Value::List(list) => list.iter().for_each(|one| {
                    if let Value::Text(text) = one {
                        visit(text);
                    }
                }),
                Value::Number(_) => {}
            }
        }
        self.sections.values().for_each(|section| section.visit_texts(visit));
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Error {
        Error::corrupt(format!("at byte {} of its metadata: {what}", self.at))
    }

    /// Skips spaces and comments, and returns the next byte without taking it.
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'#') => {
                    while self.text.get(self.at).is_some_and(|byte| *byte != b'\n') {
                        self.at += 1;
                    }
                }
                other => return other.copied(),
            }
        }
    }

    /// The values and sections up to the end of the text, or to a closing brace, which is not taken.
    fn section(&mut self, depth: usize) -> Result<Section> {
        let mut section = Section::default();
        while self.next_byte().is_some_and(|byte| byte != b'}') {
            let name = self.word()?.to_owned();
            if section.values.contains_key(&name) || section.sections.contains_key(&name) {
                return Err(self.wrong("a name is there twice"));
            }
            match self.next_byte() {
                Some(b'{') if depth < DEPTH_MAX => {
                    self.at += 1;
                    let inner = self.section(depth + 1)?;
                    self.take(b'}')?;
                    section.sections.insert(name, inner);
                }
                Some(b'{') => return Err(self.wrong("sections are too deep")),
                _ => {
                    self.take(b'=')?;
                    let value = self.value()?;
                    section.values.insert(name, value);
                }
            }
        }
        Ok(section)
    }

    fn take(&mut self, byte: u8) -> Result<()> {
        if self.next_byte() != Some(byte) {
            return Err(self.wrong(&format!("expected {:?}", char::from(byte))));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Value> {
        if self.next_byte() != Some(b'[') {
            return self.scalar();
        }
        self.at += 1;
        let mut list = Vec::new();
        while self.next_byte() != Some(b']') {
            list.push(self.scalar()?);
            if self.next_byte() != Some(b']') {
                self.take(b',')?;
            }
        }
        self.at += 1;
        Ok(Value::List(list))
    }

    fn scalar(&mut self) -> Result<Value> {
        if self.next_byte() == Some(b'"') {
            return Ok(Value::Text(self.quoted()?));
        }
        let word = self.word()?;
        if !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Value::Text(word.to_owned()));
        }
        let number = word.parse().ok();
        number.map(Value::Number).ok_or_else(|| self.wrong("a number is too large"))
    }

    /// A name or a number.
    fn word(&mut self) -> Result<&str> {
        self.next_byte();
        let is_in = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+.".contains(byte);
        let start = self.at;
        while self.text.get(self.at).is_some_and(is_in) {
            self.at += 1;
        }
        let word = str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
        if word.is_empty() { Err(self.wrong("expected a name or a value")) } else { Ok(word) }
    }

    /// A text in quotes; a backslash stands before quotes and backslashes in it.
    fn quoted(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let byte = self.text.get(self.at).copied();
            self.at += 1;
            match byte {
                None => return Err(self.wrong("a text does not end")),
                Some(b'"') => break,
                Some(b'\\') if matches!(self.text.get(self.at), Some(b'"' | b'\\')) => {
                    bytes.push(self.text[self.at]);
                    self.at += 1;
                }
                Some(byte) => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_values_and_comments() {
        let text = b"vg { # a group\nid = \"a\\\"b\\\\\"\nsize=42\n list = [\"x\", 7,\n\"y\"]\nempty = []\nf = 0.5\n  inner{n=1}\n}\nlast = 1\n\0\0";
        let top = Section::parse(text).unwrap();
        assert_eq!(top.number("last").unwrap(), 1);
        let vg = &top.sections["vg"];
        assert_eq!((vg.text("id").unwrap(), vg.number("size").unwrap()), ("a\"b\\", 42));
        assert_eq!(vg.sections["inner"].number("n").unwrap(), 1);
        assert_eq!(vg.texts("empty").unwrap(), Vec::<&str>::new());
        assert_eq!(vg.texts("none").unwrap(), Vec::<&str>::new());
        assert!(vg.texts("list").is_err() && vg.number("f").is_err() && vg.text("size").is_err());
        let mut found = Vec::new();
        vg.visit_texts(&mut |text| found.push(text.to_owned()));
        assert_eq!(found, ["0.5", "a\"b\\", "x", "y"]);
    }

    #[test]
    fn anything_else_is_an_error() {
        let deep = ["a{".repeat(8), "}".repeat(8)].concat();
        for text in [
            "a",
            "a =",
            "a = [",
            "a = [1",
            "a = [1,",
            "a = [1 2]",
            "a = \"x",
            "a = \"x\\\"",
            "a {",
            "}",
            "a = 1 }",
            "a { }}",
            "a = 1 a = 2",
            "a { } a { }",
            "a = 1 a { }",
            "a = 99999999999999999999",
            "= 1",
            "a = [[1]]",
            "a = {",
            "\0a",
            "a\0= 1",
            "a = \"\u{0}",
            deep.as_str(),
        ] {
            let error = Section::parse(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("at byte"), "{text}: {error}");
        }
        assert!(Section::parse(b"a = \"\xff\"").is_err());
        assert_eq!(Section::parse(b"").unwrap(), Section::default());
    }

    /// Every beginning of a text, and every text with one byte changed, is parsed or refused.
    #[test]
    fn changed_texts_are_no_danger() {
        let text = b"vg{id=\"a\\\"b\"\nlist=[\"x\",7,\"y\"]# c\n inner{n=1 m=[]}}\nlast=1\n\0";
        for length in 0..text.len() {
            let _ = Section::parse(&text[..length]);
            for byte in 0..=255 {
                let mut changed = text.to_vec();
                changed[length] = byte;
                let _ = Section::parse(&changed);
            }
        }
    }
}
