//! The place of a file in an image, as typed: `lab/debian12@3:1/etc/hostname`.

use std::fmt;

use platter_filesystem::escaped;
use platter_image::{Error, Result};

/// A partition, a disk without any, or a logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartitionName {
    /// `disk`: the whole disk, which has no partition table.
    WholeDisk,
    /// The number of a partition.
    Number(u32),
    /// The name of a logical volume, as in `/dev/mapper`.
    Volume(String),
}

impl PartitionName {
    const WHOLE_DISK: &str = "disk";

    /// Reads `disk`, a number from 1, or the name of a volume: those of its group and its own, with a hyphen between them.
    pub fn parse(text: &str) -> Option<Self> {
        if text == Self::WHOLE_DISK {
            return Some(Self::WholeDisk);
        }
        let is_in_name = |char: char| char.is_ascii_alphanumeric() || "+_.-".contains(char);
        if text.contains('-') && !text.starts_with('-') && text.chars().all(is_in_name) {
            return Some(Self::Volume(text.to_owned()));
        }
        text.parse().ok().filter(|number| *number > 0).map(Self::Number)
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WholeDisk => f.write_str(Self::WHOLE_DISK),
            Self::Number(number) => write!(f, "{number}"),
            Self::Volume(name) => f.write_str(name),
        }
    }
}

/// A version, a partition or logical volume of it, and a path in its filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// The version: `NAME`, `NAME@NUMBER` or a score.
    pub version: String,
    /// The partition or volume; `None`: the only one with a filesystem that can be read.
    pub partition: Option<PartitionName>,
    /// The path; `None` if only a version was named. It begins with `/`, and need not be UTF-8.
    pub path: Option<Vec<u8>>,
}

impl FileLocation {
    /// Reads `VERSION`, `VERSION:PARTITION`, `VERSION:PARTITION/PATH` or `VERSION:/PATH`, and the same with a volume.
    ///
    /// # Errors
    /// `Refused` for anything else.
    pub fn parse(text: &[u8]) -> Result<Self> {
        // Only a path can contain anything but UTF-8.
        let slash = text.iter().position(|byte| *byte == b':').and_then(|colon| {
            let slash = text[colon..].iter().position(|byte| *byte == b'/');
            slash.map(|slash| colon + slash)
        });
        let (text, path) = text.split_at(slash.unwrap_or(text.len()));
        let path: &[u8] = if path.is_empty() { b"/" } else { path };
        let text = str::from_utf8(text)
            .map_err(|_| Error::refused(format!("{}: no name of an image is like this", escaped(text))))?;
        let Some((version, number)) = text.split_once(':') else {
            return Ok(Self { version: text.to_owned(), partition: None, path: None });
        };
        let partition = match number {
            "" => None,
            name => Some(PartitionName::parse(name).ok_or_else(|| {
                Error::refused(format!(
                    "{text:?}: {name:?} is no partition or volume: write NAME:2/etc, NAME:group-volume/etc, NAME:disk/etc for \
                     a disk without a partition table, or NAME:/etc if there is only one filesystem"
                ))
            })?),
        };
        Ok(Self { version: version.to_owned(), partition, path: Some(path.to_vec()) })
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        let Some(path) = &self.path else { return Ok(()) };
        let partition = self.partition.as_ref().map_or(String::new(), PartitionName::to_string);
        write!(f, ":{partition}{}", escaped(path))
    }
}

#[cfg(test)]
mod tests {
    use super::PartitionName::Number;
    use super::*;

    fn parts(text: &str) -> (String, Option<PartitionName>, Option<String>) {
        let parsed = FileLocation::parse(text.as_bytes()).unwrap();
        (parsed.version, parsed.partition, parsed.path.map(|path| String::from_utf8(path).unwrap()))
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(parts("lab/a"), ("lab/a".into(), None, None));
        assert_eq!(parts("lab/a:2"), ("lab/a".into(), Some(Number(2)), Some("/".into())));
        assert_eq!(parts("lab/a@3:2/etc/x:y"), ("lab/a@3".into(), Some(Number(2)), Some("/etc/x:y".into())));
        assert_eq!(parts("a:disk/etc"), ("a".into(), Some(PartitionName::WholeDisk), Some("/etc".into())));
        assert_eq!(parts("a:/"), ("a".into(), None, Some("/".into())));
        assert_eq!(parts("a:"), ("a".into(), None, Some("/".into())));
        for (name, volume) in [("lab/a@2:vg--0-root/etc", "vg--0-root"), ("a:1.x-y_+--/etc", "1.x-y_+--")] {
            assert_eq!(parts(name).1, Some(PartitionName::Volume(volume.into())));
            assert_eq!(parts(name).2.as_deref(), Some("/etc"));
        }
        for text in ["lab/a:2/etc", "a:/b", "a:disk/", "a:vg--0-root/etc", "a"] {
            assert_eq!(FileLocation::parse(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_partition_is_refused() {
        for text in ["a:0/etc", "a:etc", "a:disks/", "a:-1/", "a:-v-g/", "a:v g-l/", "a:99999999999/"] {
            assert!(FileLocation::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_is_any_bytes() {
        let parsed = FileLocation::parse(b"lab/a:2/odd/\xff\xfe").unwrap();
        assert_eq!(
            (parsed.partition.clone(), parsed.path.as_deref()),
            (Some(Number(2)), Some(&b"/odd/\xff\xfe"[..]))
        );
        assert_eq!(parsed.to_string(), "lab/a:2/odd/\\377\\376");
        for text in [&b"lab/\xff"[..], b"lab/\xff:2/", b"lab/a:\xff/"] {
            assert!(FileLocation::parse(text).is_err());
        }
    }
}
