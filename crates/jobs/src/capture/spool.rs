//! Unpacks a source that can only be read from beginning to end: standard input, compressed files, Frisbee images, and
//! folders of Clonezilla.
//!
//! The disk goes to a sparse file without a name ([`SpoolFile`]). It is in the store's directory, or in the directory for
//! temporary files if the store is elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use platter_disk::Source;
use platter_disk::device::Watch;
use platter_formats::{Folder, Format, Spool};
use platter_image::{Error, IoContext, Result};

use super::spool_file::SpoolFile;
use crate::Progress;

/// A source of this name is standard input.
const STANDARD_INPUT: &str = "-";

/// Whether the source is standard input.
pub(super) fn is_standard_input(source: &Path) -> bool {
    source == Path::new(STANDARD_INPUT)
}

/// Unpacks the source to a file in `directory`, encrypted if the store is. Returns it with the format of what is in it. `disk` names a
/// disk of a folder.
///
/// # Errors
/// `Corrupt`, `Missing` or `Refused` as the format says, when the source is not what it must be; `Io`, such as no space.
pub(super) fn unpack(
    source: &Path,
    (format, disk): (Format, Option<&str>),
    directory: &Path,
    is_encrypted: bool,
    progress: &dyn Progress,
) -> Result<(SpoolFile, Format)> {
    let mut spool = SpoolFile::create(directory, is_encrypted)?;
    let within = |error: Error| error.within(format!("unpacking {} as {format}", source.display()));
    let is_image = !format.is_stream() && format != Format::Raw;
    let length = if format == Format::Clonezilla {
        let folder = Directory { path: source, progress };
        progress.begin("unpacking", 0);
        platter_formats::read_clonezilla(&folder, disk, &mut spool)
    } else if is_standard_input(source) {
        progress.begin("unpacking", 0);
        let input = Counted { stream: io::stdin().lock(), progress };
        unpack_stream(Box::new(input), if is_image { Format::Raw } else { format }, &mut spool)
    } else {
        unpack_file(source, format, &mut spool, progress)
    };
    let length = length.map_err(within)?;
    spool
        .set_length(length)
        .context(|| format!("making the unpacked disk {length} bytes long"))
        .map_err(within)?;
    Ok((spool, if is_image { format } else { Format::Raw }))
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
            let kind = entry.file_type()?;
            // Links could lead to files elsewhere, and without their contents the disk would lack something.
            if kind.is_symlink() {
                return Err(io::Error::other(Error::refused(format!(
                    "{} is a symbolic link: copy the file into the folder",
                    entry.path().display()
                ))));
            }
            if kind.is_file() {
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
