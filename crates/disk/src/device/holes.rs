//! Finds where a sparse file has data, but only where the answer is reliable.
//!
//! Filesystems have reported holes where data was still being written (OpenZFS 15526). So an answer counts
//! only if the file was synced right before, did not change between that sync and the last query, and a
//! sample of the holes was read and contains zeros (design: proof). Otherwise the whole file counts as data.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use platter_image::{Extent, Extents};
use rustix::fs::SeekFrom;

/// The most extents that are kept; a file with more counts as all data. They take 64 MiB of memory.
const EXTENTS_MAX: usize = 4 << 20;

/// The number of holes that are read, evenly distributed over the file.
const HOLES_READ: usize = 64;

/// How many bytes are read of each hole.
const HOLE_READ_LENGTH: u64 = 4096;

/// The data of a regular file of `length` bytes, in whole sectors; `None` if no reliable answer is possible.
pub(super) fn data_extents(file: &File, length: u64) -> io::Result<Option<Extents>> {
    let before = identity(file)?;
    rustix::fs::fdatasync(file)?;
    let Some(data) = ask(file, length)? else { return Ok(None) };
    if !holes_are_zeros(file, &data, length)? || identity(file)? != before || before.0 != length {
        return Ok(None);
    }
    Ok(Some(data))
}

/// Whether a regular file of `length` bytes is more than one hole. If the filesystem cannot tell, it counts
/// as data.
pub(crate) fn has_data(file: &File, length: u64) -> bool {
    length > 0 && !matches!(rustix::fs::seek(file, SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO))
}

/// Returns values that change with the file: length, modification time, change time.
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
    fn written_data_is_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&[1; 8192], 4 << 20).unwrap();
        file.write_all_at(&[2; 100], (16 << 20) - 100).unwrap();
        let data = data_extents(&file, 16 << 20).unwrap().expect("the file does not change");
        assert!(data.contains(4 << 20) && data.contains((4 << 20) + 8191) && data.contains((16 << 20) - 1));
        assert!(data.total() < 1 << 20, "the filesystem of this test keeps files sparse: {data:?}");
        assert_eq!(data_extents(&file, 8 << 20).unwrap(), None, "its length is not the given one");
    }

    #[test]
    fn a_file_of_one_hole_has_no_data() {
        let file = tempfile::tempfile().unwrap();
        assert!(!has_data(&file, 0));
        file.set_len(1 << 20).unwrap();
        assert!(!has_data(&file, 1 << 20));
        file.write_all_at(&[1], (1 << 20) - 1).unwrap();
        assert!(has_data(&file, 1 << 20));
    }

    #[test]
    fn data_in_a_reported_hole_is_detected() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        let wrong: Extents = [Extent::new(0, 4096)].into_iter().collect();
        assert!(!holes_are_zeros(&file, &wrong, 65536).unwrap());
    }
}
