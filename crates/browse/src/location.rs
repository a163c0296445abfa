//! The place of a file in an image, as typed: `lab/debian12@3:1/etc/hostname`.

use std::fmt;
use std::str::FromStr;

use platter_image::{Error, Result};

/// A version, a partition of it, and a path in its filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// The version: `NAME`, `NAME@NUMBER` or a score.
    pub version: String,
    /// The number of the partition; `None`: the only one with a filesystem that can be read.
    pub partition: Option<u32>,
    /// The path; `None` if only a version was named. It begins with `/`.
    pub path: Option<String>,
}

impl FromStr for FileLocation {
    type Err = Error;

    /// `VERSION`, `VERSION:PARTITION`, `VERSION:PARTITION/PATH` or `VERSION:/PATH`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((version, inside)) = text.split_once(':') else {
            return Ok(Self { version: text.to_owned(), partition: None, path: None });
        };
        let (number, path) = match inside.find('/') {
            Some(slash) => inside.split_at(slash),
            None => (inside, "/"),
        };
        let partition = match number {
            "" => None,
            number => Some(number.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
                Error::refused(format!(
                    "{text:?}: {number:?} is no partition number: write NAME:2/etc, or NAME:/etc if the image has \
                     only one filesystem"
                ))
            })?),
        };
        Ok(Self { version: version.to_owned(), partition, path: Some(path.to_owned()) })
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        let Some(path) = &self.path else { return Ok(()) };
        let partition = self.partition.map_or(String::new(), |number| number.to_string());
        write!(f, ":{partition}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<u32>, Option<String>) {
        let parsed: FileLocation = text.parse().unwrap();
        (parsed.version, parsed.partition, parsed.path)
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(parts("lab/a"), ("lab/a".into(), None, None));
        assert_eq!(parts("lab/a:2"), ("lab/a".into(), Some(2), Some("/".into())));
        assert_eq!(parts("lab/a@3:2/etc/x:y"), ("lab/a@3".into(), Some(2), Some("/etc/x:y".into())));
        assert_eq!(parts("a:/"), ("a".into(), None, Some("/".into())));
        assert_eq!(parts("a:"), ("a".into(), None, Some("/".into())));
        for text in ["lab/a:2/etc", "a:/b", "a"] {
            assert_eq!(text.parse::<FileLocation>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_partition_is_refused() {
        for text in ["a:0/etc", "a:etc", "a:-1/", "a:99999999999/"] {
            assert!(text.parse::<FileLocation>().is_err(), "{text}");
        }
    }
}
