//! Detects whether a source was written while it was read.
//!
//! For a regular file it compares length and times; for a block device, the kernel's counters of writes; for
//! both, the first bytes of the partitions, where filesystems keep their state. This detects all writes of
//! programs that use ordinary system calls. Another machine that shares the disk is detected only if it
//! changes those first bytes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use platter_image::{DiskRead, IoContext, Result};

use super::Source;

/// How many bytes are kept of each start.
const START_LENGTH: u64 = 4096;

/// The state of a source when reading began.
#[derive(Debug)]
pub struct Watch<'s> {
    source: &'s Source,
    stamp: Stamp,
    starts: Vec<(u64, Option<Vec<u8>>)>,
}

/// Values that change when a source is written.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    /// Length, modification time and change time of a regular file.
    file: Option<(u64, [i64; 4])>,
    /// Sectors written to a block device or discarded; `None` if the kernel does not count them.
    written: Option<u64>,
}

impl Stamp {
    fn of(file: &File, is_block_device: bool) -> std::io::Result<Self> {
        let metadata = file.metadata()?;
        if is_block_device {
            // Flush earlier writes of others now, so that they are not counted later.
            rustix::fs::fdatasync(file)?;
            return Ok(Self { file: None, written: sectors_written(metadata.rdev()) });
        }
        let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        Ok(Self { file: Some((metadata.len(), times)), written: None })
    }
}

impl<'s> Watch<'s> {
    /// Starts watching.
    ///
    /// # Errors
    /// When the source cannot be examined.
    pub fn begin(source: &'s Source) -> Result<Self> {
        Ok(Self { source, stamp: Self::stamp(source)?, starts: Vec::new() })
    }

    /// Also watches the bytes at the starts of partitions.
    pub fn add_starts(&mut self, offsets: impl Iterator<Item = u64>) {
        for offset in offsets {
            let bytes = self.start_at(offset);
            self.starts.push((offset, bytes));
        }
    }

    /// The evidence that the source was written since; `None` if there is none.
    ///
    /// # Errors
    /// When the source cannot be examined.
    pub fn change(&self) -> Result<Option<String>> {
        let now = Self::stamp(self.source)?;
        if now.file != self.stamp.file {
            return Ok(Some("its length or one of its times changed".to_owned()));
        }
        if let (Some(before), Some(now)) = (self.stamp.written, now.written)
            && before != now
        {
            return Ok(Some(format!("{} sectors were written to it", now.wrapping_sub(before))));
        }
        for (offset, before) in &self.starts {
            if self.start_at(*offset) != *before {
                return Ok(Some(format!("the bytes at offset {offset} changed")));
            }
        }
        Ok(None)
    }

    fn stamp(source: &Source) -> Result<Stamp> {
        Stamp::of(source.file(), source.is_block_device())
            .context(|| format!("examining {}", source.path().display()))
    }

    /// `None` if it cannot be read; the capture reports such errors.
    fn start_at(&self, offset: u64) -> Option<Vec<u8>> {
        let length = self.source.length().saturating_sub(offset).min(START_LENGTH);
        let mut bytes = vec![0; length as usize];
        self.source.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    }
}

/// The counter in `/sys` for a block device.
fn sectors_written(device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    parse_counters(&std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

/// The seventh number counts sectors written (kernel: Documentation/block/stat.rst), the fourteenth sectors
/// discarded; old kernels do not have the latter.
fn parse_counters(text: &str) -> Option<u64> {
    let number = |place: usize| text.split_whitespace().nth(place)?.parse::<u64>().ok();
    Some(number(6)?.wrapping_add(number(13).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn writes_to_a_file_are_detected() {
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
            // Pretend that its times did not change.
            watch.stamp = Watch::stamp(&source).unwrap();
            watch
        };
        assert_eq!(watch.change().unwrap().unwrap(), "the bytes at offset 32768 changed");
    }

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new = "  1 0 8 0   5 0 640 3  0 3 3  2 0 16 0  1 0\n";
        assert_eq!(parse_counters(new), Some(656));
        assert_eq!(parse_counters("1 0 8 0 5 0 640 3 0 3 3"), Some(640));
        assert_eq!(parse_counters(""), None);
    }
}
