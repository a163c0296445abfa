//! The contents of one file.

use std::io::Write;

use platter_fetch::StoreLocation;
use platter_filesystem::ext::{Contents, FileInode, FileKind, Files};
use platter_image::{DiskRead, Error, IoContext, Result};

use crate::location::FileLocation;
use crate::opened::with_files;
use crate::path::resolve;

/// Bytes read at once.
const STEP: u64 = 1 << 20;

/// Writes the contents of a file to `output`, and returns their length. Links are followed.
///
/// # Errors
/// `Missing` if there is no such version or file; `Refused` if it is no regular file, or encrypted; those of reading and writing.
pub fn read_file(store: &StoreLocation, location: &FileLocation, output: &mut dyn Write) -> Result<u64> {
    with_files(store, location, |disk, files, path| {
        let inode = resolve(files, path, true)?;
        if inode.metadata().kind != FileKind::Regular {
            return Err(Error::refused(format!("{location} is no regular file")));
        }
        let written = visit_contents(disk, files, &inode, &mut |_, piece| match piece {
            Piece::Zeros(length) => write_zeros(output, length),
            Piece::Bytes(bytes) => output.write_all(bytes).context(|| "writing the output".to_owned()),
        });
        written.map_err(|error| error.within(location.to_string()))?;
        Ok(inode.metadata().size)
    })
}

/// A piece of a file's contents.
pub(crate) enum Piece<'b> {
    /// As many zeros, which the disk does not store.
    Zeros(u64),
    /// Bytes.
    Bytes(&'b [u8]),
}

/// Calls `visit` with all pieces of a file in order, each with its offset. Together they are as long as the file.
///
/// # Errors
/// `Refused` if it is encrypted; those of reading and of `visit`.
pub(crate) fn visit_contents(
    disk: &dyn DiskRead,
    files: &mut Files<'_>,
    inode: &FileInode,
    visit: &mut dyn FnMut(u64, Piece<'_>) -> Result<()>,
) -> Result<()> {
    if inode.is_encrypted() {
        return Err(Error::refused("its contents are encrypted, and the key is not in the image"));
    }
    let size = inode.metadata().size;
    let mut position = 0;
    match files.contents(inode)? {
        Contents::Inline(bytes) => {
            let bytes = &bytes[..bytes.len().min(size as usize)];
            visit(0, Piece::Bytes(bytes))?;
            position = bytes.len() as u64;
        }
        Contents::Runs(runs) => {
            let mut buffer = Vec::new();
            for run in runs.iter().take_while(|run| run.file_offset < size) {
                if run.file_offset > position {
                    visit(position, Piece::Zeros(run.file_offset - position))?;
                    position = run.file_offset;
                }
                let end = size.min(run.file_offset.saturating_add(run.place.length));
                while position < end {
                    let length = STEP.min(end - position);
                    let at = run.place.offset + (position - run.file_offset);
                    buffer.resize(length as usize, 0);
                    disk.read_exact_at(&mut buffer, at)
                        .context(|| format!("reading {length} bytes of a file at offset {at}"))?;
                    visit(position, Piece::Bytes(&buffer))?;
                    position += length;
                }
            }
        }
    }
    if position < size {
        visit(position, Piece::Zeros(size - position))?;
    }
    Ok(())
}

fn write_zeros(output: &mut dyn Write, length: u64) -> Result<()> {
    let zeros = [0; 64 << 10];
    let mut left = length;
    while left > 0 {
        let step = left.min(zeros.len() as u64);
        output.write_all(&zeros[..step as usize]).context(|| "writing the output".to_owned())?;
        left -= step;
    }
    Ok(())
}
