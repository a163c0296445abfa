//! Finds and makes holes in a plain file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use platter_image::{Error, Extent, Extents, Result};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Returns where the file has data in `range`; the whole range if the file system cannot tell.
pub(super) fn data(file: &File, range: Extent) -> Result<Extents> {
    let mut found = Extents::new();
    let mut offset = range.offset;
    let failed = |error: Errno| Error::io("looking for data in an imported file", error.into());
    while offset < range.end() {
        let start = match seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Extents::from_unsorted(vec![range])),
            Err(error) => return Err(failed(error)),
        };
        if start >= range.end() {
            break;
        }
        // A file that shrinks meanwhile has no more holes after its data.
        let end = seek(file, SeekFrom::Hole(start)).map_or(range.end(), |end| end.max(start + 1));
        found.push(Extent::between(start, end.min(range.end())));
        offset = end;
    }
    Ok(found)
}

/// Makes a range of the file read as zeros.
pub(super) fn punch(file: &File, range: Extent) -> io::Result<()> {
    let range = Extent::between(range.offset, range.end().min(file.metadata()?.len()));
    if range.length == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, range.offset, range.length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = [0; 64 << 10];
            let mut offset = range.offset;
            while offset < range.end() {
                let piece = (range.end() - offset).min(zeros.len() as u64);
                file.write_all_at(&zeros[..piece as usize], offset)?;
                offset += piece;
            }
            Ok(())
        }
        punched => Ok(punched?),
    }
}
