//! The contents of one file.

use std::io::Write;

use platter_fetch::StoreLocation;
use platter_filesystem::{FileKind, Piece, resolve};
use platter_image::{Error, IoContext, Result};

use crate::location::FileLocation;
use crate::opened::with_files;

/// Writes the contents of a file to `output`, and returns their length. Links are followed.
///
/// # Errors
/// `Missing` if there is no such version or file; `Refused` if it is no regular file, or encrypted; those of reading and writing.
pub fn read_file(store: &StoreLocation, location: &FileLocation, output: &mut dyn Write) -> Result<u64> {
    with_files(store, location, |files, path| {
        let inode = resolve(files, path, true)?;
        if inode.metadata().kind != FileKind::Regular {
            return Err(Error::refused(format!("{location} is no regular file")));
        }
        let written = files.visit_contents(&inode, &mut |_, piece| match piece {
            Piece::Zeros(length) => write_zeros(output, length),
            Piece::Bytes(bytes) => output.write_all(bytes).context(|| "writing the output".to_owned()),
        });
        written.map_err(|error| error.within(location.to_string()))?;
        Ok(inode.metadata().size)
    })
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
