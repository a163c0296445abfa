//! Where a sparse file has data, asked only where the answer is safe.
//!
//! Filesystems have reported holes where data was on its way (OpenZFS 15526), so an answer counts only when the
//! file was synced right before, did not change from before the sync until after the last question, and some of the
//! holes were read and are zeros (design: proof). Otherwise all of the file is data.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use platter_image::{Extent, Extents};
use rustix::fs::SeekFrom;

/// More extents than this are not kept: the whole file is then taken as data. 64 MiB of memory.
const EXTENTS_MAX: usize = 4 << 20;

/// So many holes are read, evenly spread over the file.
const HOLES_READ: usize = 64;

/// So much of each of them.
const HOLE_READ_LENGTH: u64 = 4096;

/// Where a regular file of `length` bytes has data, in whole sectors; `None` if that is not safe to say.
pub(super) fn data_extents(file: &File, length: u64) -> io::Result<Option<Extents>> {
    let before = identity(file)?;
    rustix::fs::fdatasync(file)?;
    let Some(data) = ask(file, length)? else { return Ok(None) };
    if !holes_are_zeros(file, &data, length)? || identity(file)? != before || before.0 != length {
        return Ok(None);
    }
    Ok(Some(data))
}

/// Whether a regular file of `length` bytes holds anything but one hole. A file system that cannot tell is taken to hold
/// data.
pub(crate) fn has_data(file: &File, length: u64) -> bool {
    length > 0 && !matches!(rustix::fs::seek(file, SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO))
}

/// What changes when a file does: length, modification time, change time.
fn identity(file: &File) -> io::Result<(u64, [i64; 4])> {
    let metadata = file.metadata()?;
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    Ok((metadata.len(), times))
}

fn ask(file: &File, length: u64) -> io::Result<Option<Extents>> {
    let mut data = Extents::new();
    let mut offset = 0;
    while offset < length {
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            // This filesystem cannot tell.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        if start < offset || end <= start || data.as_slice().len() >= EXTENTS_MAX {
            return Ok(None);
        }
        data.push(Extent::between(start, end.min(length)).align_outwards());
        offset = end;
    }
    Ok(Some(data))
}

fn holes_are_zeros(file: &File, data: &Extents, length: u64) -> io::Result<bool> {
    let holes = data.complement(Extent::new(0, length));
    let step = holes.as_slice().len().div_ceil(HOLES_READ).max(1);
    let mut buffer = [0; HOLE_READ_LENGTH as usize];
    for hole in holes.iter().step_by(step) {
        let contents = &mut buffer[..hole.length.min(HOLE_READ_LENGTH) as usize];
        file.read_exact_at(contents, hole.offset)?;
        if contents.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&[1; 8192], 4 << 20).unwrap();
        file.write_all_at(&[2; 100], (16 << 20) - 100).unwrap();
        let data = data_extents(&file, 16 << 20).unwrap().expect("a file at rest");
        assert!(data.contains(4 << 20) && data.contains((4 << 20) + 8191) && data.contains((16 << 20) - 1));
        assert!(data.total() < 1 << 20, "the filesystem of this test keeps files sparse: {data:?}");
        assert_eq!(data_extents(&file, 8 << 20).unwrap(), None, "its length is not what it was at opening");
    }

    #[test]
    fn a_file_without_data() {
        let file = tempfile::tempfile().unwrap();
        assert!(!has_data(&file, 0));
        file.set_len(1 << 20).unwrap();
        assert!(!has_data(&file, 1 << 20));
        file.write_all_at(&[1], (1 << 20) - 1).unwrap();
        assert!(has_data(&file, 1 << 20));
    }

    #[test]
    fn a_wrong_answer_is_found_out() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        let wrong: Extents = [Extent::new(0, 4096)].into_iter().collect();
        assert!(!holes_are_zeros(&file, &wrong, 65536).unwrap());
    }
}
