//! Names of files on standard output. Programs get their bytes, people something that a terminal cannot execute.

use std::io::{self, IsTerminal};

use platter_browse::escaped;

/// How names are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileNames {
    is_escaped: bool,
    end: u8,
}

impl FileNames {
    /// `print0`: each is ended by NUL, and never escaped.
    pub(crate) fn new(print0: bool) -> Self {
        Self { is_escaped: !print0 && io::stdout().is_terminal(), end: if print0 { 0 } else { b'\n' } }
    }

    /// The name as printed.
    pub(crate) fn shown(self, name: &[u8]) -> Vec<u8> {
        if self.is_escaped { escaped(name).into_bytes() } else { name.to_vec() }
    }

    /// A line with what is printed.
    pub(crate) fn line(self, mut shown: Vec<u8>) -> Vec<u8> {
        shown.push(self.end);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_bytes_and_people_text() {
        let name = b"a\\\n\xff";
        let lines = [(true, b'\n'), (false, b'\n'), (false, 0)].map(|(is_escaped, end)| {
            let names = FileNames { is_escaped, end };
            names.line(names.shown(name))
        });
        assert_eq!(lines, [&b"a\\\\\\n\\377\n"[..], b"a\\\n\xff\n", b"a\\\n\xff\0"]);
    }
}
