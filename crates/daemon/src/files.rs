//! Files inside of versions: what the caller of the origin must be able to read, and the limit of downloads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_api::{DirectoryPage, PartitionEntry};
use platter_image::{Error, Result, Score};
use platter_store::Store;

use crate::config::{DOWNLOADS_MAX, DOWNLOADS_OF_ONE_MAX};

/// A place in a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The version's disk.
    pub score: Score,
    /// The version as it was asked for, for messages.
    pub version: String,
    /// The partition or volume; `None`: the only one with files.
    pub partition: Option<String>,
    /// The path. It begins with `/`, and need not be UTF-8.
    pub path: Vec<u8>,
}

/// Reads the files inside of versions. The caller provides it, because the origin knows no filesystems.
pub trait LookInside: Send + Sync {
    /// Returns the partitions of the place's version.
    ///
    /// # Errors
    /// Those of reading.
    fn partitions(&self, store: &Store, place: &FilePlace) -> Result<Vec<PartitionEntry>>;

    /// Returns names of a directory, from this number on; of a file, the file itself. Links are followed.
    ///
    /// # Errors
    /// `Missing` if there is no such partition or path; `Refused` if it cannot be read; those of reading.
    fn list(&self, store: &Store, place: &FilePlace, from: u64) -> Result<DirectoryPage>;

    /// Opens a regular file. Links are followed.
    ///
    /// # Errors
    /// As [`LookInside::list`].
    fn open(&self, store: &Store, place: &FilePlace) -> Result<Box<dyn ReadFile>>;
}

/// A regular file that is open.
pub trait ReadFile: Send + Sync {
    /// Its length in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` with what is at `offset`; returns how many bytes there are.
    ///
    /// # Errors
    /// Those of reading.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}

/// Downloads under way, by the id of the access token. Each keeps a filesystem open.
#[derive(Clone, Default)]
pub(crate) struct Downloads(Arc<Mutex<HashMap<String, usize>>>);

/// One download, until it is dropped.
pub(crate) struct Download {
    all: Downloads,
    who: String,
}

impl Downloads {
    /// # Errors
    /// `Transient` if there are too many.
    pub(crate) fn begin(&self, who: &str) -> Result<Download> {
        let mut counts = self.0.lock();
        let all: usize = counts.values().sum();
        if all >= DOWNLOADS_MAX || counts.get(who).is_some_and(|count| *count >= DOWNLOADS_OF_ONE_MAX) {
            return Err(Error::transient("too many requests for files are under way: try again later"));
        }
        *counts.entry(who.to_owned()).or_default() += 1;
        Ok(Download { all: self.clone(), who: who.to_owned() })
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock();
        if let Some(count) = counts.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.who);
            }
        }
    }
}

/// The part of a file that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WantedPart {
    Whole,
    Part(Range<u64>),
    /// It begins behind the end.
    Outside,
}

impl WantedPart {
    /// Reads a `Range` header (RFC 9110, section 14). What is invalid, or several ranges, mean the whole file.
    pub(crate) fn parse(header: Option<&str>, size: u64) -> Self {
        let range = header.and_then(|text| text.strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|text| text.split_once('-')) else { return Self::Whole };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let wanted = match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
            (Some(first), None) if last.trim().is_empty() => first..size,
            (None, Some(length)) if first.trim().is_empty() => size.saturating_sub(length)..size,
            _ => return Self::Whole,
        };
        if wanted.start < wanted.end { Self::Part(wanted) } else { Self::Outside }
    }
}

/// The value of `Content-Disposition` that makes a browser save a file under its own name (RFC 6266). Nothing of a hostile name
/// ends the value, leads to another directory, or changes the order in which it is shown.
pub(crate) fn disposition(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
    let name = name.filter(|name| !matches!(*name, b"." | b"..")).unwrap_or(b"file");
    let is_unsafe = |char: char| {
        char.is_control()
            || "/\\\u{61c}".contains(char)
            || matches!(char, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text: String =
        String::from_utf8_lossy(name).chars().map(|char| if is_unsafe(char) { '_' } else { char }).collect();
    let is_plain = |char: char| char.is_ascii_alphanumeric() || " ._-+".contains(char);
    let plain: String = text.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    let is_literal = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+".contains(byte);
    let encoded = text
        .bytes()
        .map(|byte| if is_literal(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", encoded.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless() {
        for (path, shown) in [
            (&b"/etc/hosts"[..], "attachment; filename=\"hosts\"; filename*=UTF-8''hosts"),
            (
                b"/a/<script>\"; x=\".html",
                "attachment; filename=\"_script___ x__.html\"; filename*=UTF-8''%3Cscript%3E%22%3B%20x%3D%22.html",
            ),
            (b"/a\r\nX: y", "attachment; filename=\"a__X_ y\"; filename*=UTF-8''a__X%3A%20y"),
            ("/\u{202e}gpj.exe".as_bytes(), "attachment; filename=\"_gpj.exe\"; filename*=UTF-8''_gpj.exe"),
            ("/\u{e4}".as_bytes(), "attachment; filename=\"_\"; filename*=UTF-8''%C3%A4"),
            (b"/a/\xff", "attachment; filename=\"_\"; filename*=UTF-8''%EF%BF%BD"),
            (b"/a\\b", "attachment; filename=\"a_b\"; filename*=UTF-8''a_b"),
            (b"/a/..", "attachment; filename=\"file\"; filename*=UTF-8''file"),
            (b"/", "attachment; filename=\"file\"; filename*=UTF-8''file"),
        ] {
            assert_eq!(disposition(path), shown);
        }
    }

    #[test]
    fn ranges() {
        use WantedPart::{Outside, Part, Whole};
        for (header, wanted) in [
            (None, Whole),
            (Some("bytes=0-0"), Part(0..1)),
            (Some("bytes=4-"), Part(4..10)),
            (Some("bytes=4-99999999999999999999"), Whole),
            (Some("bytes=4-18446744073709551615"), Part(4..10)),
            (Some("bytes=-3"), Part(7..10)),
            (Some("bytes=-30"), Part(0..10)),
            (Some("bytes=-0"), Outside),
            (Some("bytes=10-"), Outside),
            (Some("bytes=3-2"), Whole),
            (Some("bytes=0-1,3-4"), Whole),
            (Some("lines=1-2"), Whole),
            (Some("bytes=-"), Whole),
            (Some("bytes=a-"), Whole),
        ] {
            assert_eq!(WantedPart::parse(header, 10), wanted, "{header:?}");
        }
        assert_eq!(WantedPart::parse(Some("bytes=0-"), 0), Outside);
    }

    #[test]
    fn downloads_are_limited() {
        let downloads = Downloads::default();
        let own: Vec<Download> = (0..DOWNLOADS_OF_ONE_MAX).map(|_| downloads.begin("a").unwrap()).collect();
        assert!(downloads.begin("a").is_err());
        let others = (0..DOWNLOADS_MAX).map_while(|who| downloads.begin(&who.to_string()).ok());
        let others: Vec<Download> = others.collect();
        assert_eq!(others.len(), DOWNLOADS_MAX - DOWNLOADS_OF_ONE_MAX);
        drop((own, others));
        assert!(downloads.0.lock().is_empty());
    }
}
