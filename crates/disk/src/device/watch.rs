//! Whether a source was written while it was read.
//!
//! A regular file tells by its length and times, a block device by the kernel's counters of what was written to it, and
//! both by the first bytes of their partitions, where file systems keep their state. None of these misses a write by
//! programs that use the system's ordinary calls; a machine elsewhere that shares the disk is not seen unless it changes
//! those first bytes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use platter_image::{DiskRead, IoContext, Result};

use super::Source;

/// So much is kept of each start, in bytes.
const START_LENGTH: u64 = 4096;

/// What a source was when it began to be read.
#[derive(Debug)]
pub struct Watch<'s> {
    source: &'s Source,
    stamp: Stamp,
    starts: Vec<(u64, Option<Vec<u8>>)>,
}

/// What changes when a source is written.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    /// Length, modification and change time of a regular file.
    file: Option<(u64, [i64; 4])>,
    /// Sectors written to a block device, and discarded; `None` where the kernel does not count.
    written: Option<u64>,
}

impl Stamp {
    fn of(file: &File, is_block_device: bool) -> std::io::Result<Self> {
        let metadata = file.metadata()?;
        if is_block_device {
            // What others wrote before is written now, so that it does not count later.
            rustix::fs::fdatasync(file)?;
            return Ok(Self { file: None, written: sectors_written(metadata.rdev()) });
        }
        let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        Ok(Self { file: Some((metadata.len(), times)), written: None })
    }
}

impl<'s> Watch<'s> {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the source cannot be looked at.
    pub fn begin(source: &'s Source) -> Result<Self> {
        Ok(Self { source, stamp: Self::stamp(source)?, starts: Vec::new() })
    }

    /// Watches what stands at the starts of partitions, too.
    pub fn add_starts(&mut self, offsets: impl Iterator<Item = u64>) {
        for offset in offsets {
            let bytes = self.start_at(offset);
            self.starts.push((offset, bytes));
        }
    }

    /// What shows that the source was written since; `None` if nothing does.
    ///
    /// # Errors
    /// When the source cannot be looked at.
    pub fn change(&self) -> Result<Option<String>> {
        let now = Self::stamp(self.source)?;
        if now.file != self.stamp.file {
            return Ok(Some("its length, or one of its times, changed".to_owned()));
        }
        if let (Some(before), Some(now)) = (self.stamp.written, now.written)
            && before != now
        {
            return Ok(Some(format!("{} sectors were written to it", now.wrapping_sub(before))));
        }
        for (offset, before) in &self.starts {
            if self.start_at(*offset) != *before {
                return Ok(Some(format!("what stands at {offset} is different")));
            }
        }
        Ok(None)
    }

    fn stamp(source: &Source) -> Result<Stamp> {
        Stamp::of(source.file(), source.is_block_device())
            .context(|| format!("looking at {}", source.path().display()))
    }

    /// `None` where it cannot be read: whoever captures it says so.
    fn start_at(&self, offset: u64) -> Option<Vec<u8>> {
        let length = self.source.length().saturating_sub(offset).min(START_LENGTH);
        let mut bytes = vec![0; length as usize];
        self.source.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    }
}

/// What `/sys` counts for a block device.
fn sectors_written(device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    parse_counters(&std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

/// Sectors written are the seventh number (kernel: Documentation/block/stat.rst), sectors discarded the fourteenth, which old
/// kernels do not have.
fn parse_counters(text: &str) -> Option<u64> {
    let number = |place: usize| text.split_whitespace().nth(place)?.parse::<u64>().ok();
    Some(number(6)?.wrapping_add(number(13).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_that_is_written_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, vec![7; 65536]).unwrap();
        let source = Source::open(&path, None).unwrap();
        let mut watch = Watch::begin(&source).unwrap();
        watch.add_starts([0, 32768, 65536].into_iter());
        assert_eq!(watch.change().unwrap(), None);
        let writer = File::options().write(true).open(&path).unwrap();
        let times = std::fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        writer.set_times(times).unwrap();
        assert!(watch.change().unwrap().is_some(), "a time alone");
        let watch = {
            let mut watch = Watch::begin(&source).unwrap();
            watch.add_starts([32768].into_iter());
            writer.write_all_at(b"other", 33000).unwrap();
            // As if its times did not tell.
            watch.stamp = Watch::stamp(&source).unwrap();
            watch
        };
        assert_eq!(watch.change().unwrap().unwrap(), "what stands at 32768 is different");
    }

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new = "  1 0 8 0   5 0 640 3  0 3 3  2 0 16 0  1 0\n";
        assert_eq!(parse_counters(new), Some(656));
        assert_eq!(parse_counters("1 0 8 0 5 0 640 3 0 3 3"), Some(640));
        assert_eq!(parse_counters(""), None);
    }
}
