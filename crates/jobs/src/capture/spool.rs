//! Unpacks a source that can only be read from beginning to end: standard input, compressed files, Frisbee images, and
//! folders of Clonezilla.
//!
//! The disk goes to a sparse file without a name, so nothing stays behind, whatever happens. It is in the store's
//! directory, or in the directory for temporary files if the store is elsewhere; only its owner can read it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platter_disk::Source;
use platter_disk::device::Watch;
use platter_formats::{Folder, Format, Spool};
use platter_image::{Error, IoContext, Result};

use crate::Progress;

/// A source of this name is standard input.
const STANDARD_INPUT: &str = "-";
/// Zeros are found in pieces of this length.
const ZEROS_FOUND: usize = 4096;

/// The file that holds an unpacked disk.
pub(super) struct Spooled {
    file: File,
}

impl Spooled {
    /// Opens the disk for reading.
    pub(super) fn open(&self, sector_size: Option<u32>) -> Result<Source> {
        Source::open(&PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())), sector_size)
    }
}

/// Whether the source is standard input.
pub(super) fn is_standard_input(source: &Path) -> bool {
    source == Path::new(STANDARD_INPUT)
}

/// Unpacks the source to a file in `directory`. Returns it with the format of what is in it.
///
/// # Errors
/// `Corrupt`, `Missing` or `Refused` as the format says, when the source is not what it must be; `Io`, such as no space.
pub(super) fn unpack(
    source: &Path,
    format: Format,
    directory: &Path,
    progress: &dyn Progress,
) -> Result<(Spooled, Format)> {
    let file = tempfile::tempfile_in(directory)
        .context(|| format!("creating a file for the unpacked disk in {}", directory.display()))?;
    let mut spool = SparseFile { file: &file };
    let within = |error: Error| error.within(format!("unpacking {} as {format}", source.display()));
    let is_image = !format.is_stream() && format != Format::Raw;
    let length = if format == Format::Clonezilla {
        let folder = Directory { path: source, progress };
        progress.begin("unpacking", 0);
        platter_formats::read_clonezilla(&folder, &mut spool)
    } else if is_standard_input(source) {
        progress.begin("unpacking", 0);
        let input = Counted { stream: io::stdin().lock(), progress };
        unpack_stream(Box::new(input), if is_image { Format::Raw } else { format }, &mut spool)
    } else {
        unpack_file(source, format, &mut spool, progress)
    };
    let length = length.map_err(within)?;
    file.set_len(length)
        .context(|| format!("making the unpacked disk {length} bytes long"))
        .map_err(within)?;
    Ok((Spooled { file }, if is_image { format } else { Format::Raw }))
}

/// Unpacks a file, which must not change meanwhile.
fn unpack_file(path: &Path, format: Format, spool: &mut dyn Spool, progress: &dyn Progress) -> Result<u64> {
    let source = Source::open(path, None)?;
    let watch = Watch::begin(&source)?;
    let file = File::open(path).context(|| format!("opening {}", path.display()))?;
    progress.begin("unpacking", file.metadata().map_or(0, |metadata| metadata.len()));
    let length = unpack_stream(Box::new(Counted { stream: file, progress }), format, spool)?;
    match watch.change()? {
        Some(change) => Err(Error::refused(format!("the file was written while it was read ({change})"))),
        None => Ok(length),
    }
}

fn unpack_stream<'s>(mut stream: Box<dyn Read + 's>, format: Format, spool: &mut dyn Spool) -> Result<u64> {
    match format {
        Format::Compressed(compression) => {
            platter_formats::read_raw(&mut compression.decompress(stream), spool)
        }
        Format::Ndz => platter_formats::read_ndz(&mut stream, spool),
        Format::Partclone => platter_formats::read_partclone(&mut stream, spool),
        _ => platter_formats::read_raw(&mut stream, spool),
    }
}

/// A stream whose bytes are counted as progress.
struct Counted<'p, R> {
    stream: R,
    progress: &'p dyn Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

/// A file in which zeros become holes.
struct SparseFile<'f> {
    file: &'f File,
}

impl Spool for SparseFile<'_> {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let first = ZEROS_FOUND - (offset % ZEROS_FOUND as u64) as usize;
        let (head, rest) = bytes.split_at(first.min(bytes.len()));
        let mut pieces = [head].into_iter().chain(rest.chunks(ZEROS_FOUND)).peekable();
        let mut at = 0;
        // Neighbours that are not zeros are written together.
        while let Some(piece) = pieces.next() {
            let start = at;
            at += piece.len();
            if is_zero(piece) {
                continue;
            }
            while let Some(next) = pieces.next_if(|next| !is_zero(next)) {
                at += next.len();
            }
            self.file.write_all_at(&bytes[start..at], offset + start as u64)?;
        }
        Ok(())
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The files of a directory.
struct Directory<'p> {
    path: &'p Path,
    progress: &'p dyn Progress,
}

impl Folder for Directory<'_> {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path)? {
            let entry = entry?;
            // Links could lead to files elsewhere.
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let file = File::open(self.path.join(name))?;
        Ok(Box::new(Counted { stream: file, progress: self.progress }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_become_holes_and_bytes_stay_where_they_are() {
        let file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 1 << 20];
        bytes[5000..9000].fill(7);
        bytes[500_000] = 1;
        let mut spool = SparseFile { file: &file };
        spool.write_all_at(&bytes, 777).unwrap();
        file.set_len(777 + bytes.len() as u64).unwrap();
        let mut read = vec![1; bytes.len()];
        spool.read_exact_at(&mut read, 777).unwrap();
        assert!(read == bytes);
        assert!(file.metadata().unwrap().blocks() * 512 <= 6 * 4096);
    }
}
